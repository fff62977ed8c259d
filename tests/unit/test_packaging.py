"""One set of pins, two commands, and a command line that starts fast and fails politely."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from threespo import cli
from threespo.envs.registry import ENVIRONMENTS
from threespo.pipeline.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
NAMED = (
    "snakemake",
    "torch",
    "transformers",
    "vllm",
    "deepspeed",
    "alfworld",
    "pandas",
    "seaborn",
    "papermill",
    "dvc",
)


def _pins(lines):
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;]+)", line.strip())
        if match:
            found[canonicalize_name(match[1])] = match[2]
    return found


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def constraints():
    return _pins((ROOT / "constraints.txt").read_text().splitlines())


@pytest.fixture(scope="module")
def conda():
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def _names(lines):
    """Return the distributions that requirements name, this package's own extras apart."""
    names = {re.split(r"[\[=<>!~ ]", line)[0] for line in lines}
    return {canonicalize_name(name) for name in names} - {"threespo"}


def _asked(project):
    return [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]


def test_versions_stand_in_constraints_alone(project, constraints, conda):
    lines = [*_asked(project), *next(entry["pip"] for entry in conda if isinstance(entry, dict))]
    assert not [line for line in lines if "==" in line]
    assert _names(_asked(project)) <= constraints.keys()


def test_ranges_hold_what_constraints_pin(project, constraints):
    for line in _asked(project):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name != "threespo":
            assert constraints[name] in requirement.specifier, line


def test_environment_yml_has_all_ten_packages(conda):
    lines = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert set(NAMED) <= _names(lines)


def test_environment_yml_installs_the_package_itself_at_the_constraints(conda, constraints):
    lines = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert "-c constraints.txt" in lines
    assert "-e .[workflow,dev]" in lines
    assert f"pip={constraints['pip']}" in conda


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0"])
def test_what_is_pinned_admits_the_first_pythons_that_the_readme_names(python, constraints):
    """Debian 12 has Python 3.11.2: pip says no more than "conflicting dependencies" where one package asks for 3.11.5."""
    asked = {each.name: each.metadata["Requires-Python"] for each in distributions()}
    found = {name: asks for name, asks in asked.items() if canonicalize_name(name) in constraints}
    assert len(found) > 150
    assert {
        name: asks for name, asks in found.items() if asks and not SpecifierSet(asks).contains(python)
    } == {}


def test_constraints_name_each_package_once():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(_pins(lines)) == len(lines)


def test_the_running_environment_has_these_versions(project, constraints):
    for name in _names([*project["dependencies"], *project["optional-dependencies"]["workflow"]]):
        assert version(name).split("+")[0] == constraints[name], name


def test_every_import_of_the_package_is_declared(project):
    declared = _names(_asked(project))
    distributions = {"huggingface_hub": "huggingface-hub", "yaml": "pyyaml", "skyrl_gym": "skyrl-gym"}
    distributions |= {"fastapi": "openenv", "uvicorn": "openenv"}
    for path in (ROOT / "threespo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in (
                {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"threespo"}
            ):
                assert distributions.get(name, name).lower() in declared, f"{path} imports {name}"


def test_the_license_is_apache(project):
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


def test_the_build_server_runs_what_a_person_runs_and_nothing_else():
    lines = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make lint", "exec make test"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_an_image_takes_along_nothing_that_git_ignores():
    """Credentials of remotes (``.dvc/config.local``) least of all."""

    def patterns(file, before=""):
        lines = (line.strip("/") for line in (ROOT / file).read_text().splitlines())
        return {before + line for line in lines if line and not line.startswith("#")}

    ignored = patterns(".gitignore") | patterns(".dvc/.gitignore", ".dvc/")
    left_out = {pattern.removeprefix("**/") for pattern in patterns(".dockerignore")}
    assert ".dvc/config.local" in ignored
    assert [
        name for name in sorted(ignored) if not any(fnmatchcase(name, pattern) for pattern in left_out)
    ] == []
    assert not any(fnmatchcase(".git", pattern) for pattern in left_out), "results name the commit"


def test_make_help_lists_the_two_commands():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("install", "test", "reproduce"):
        assert re.search(rf"^{target}\b", done.stdout, re.M)


def test_make_refuses_other_pythons(tmp_path):
    fake = tmp_path / "python3.9"
    fake.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo Python 3.9.1; exit 0; fi\nexit 1\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "install", f"PYTHON={fake}", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "threespo needs Python 3.11 or 3.12" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_missing_compiler_is_said_before_anything_is_installed(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make", "grep", "sed", "expand", "touch", "test", "echo", "python3"):
        (tools / name).symlink_to(sys.executable if name == "python3" else shutil.which(name))
    done = subprocess.run(
        ["make", "install", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no C++ compiler" in done.stderr
    assert "apt install g++" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_missing_extra_is_named(project, monkeypatch, capsys):
    """Of each module that a command may lack, and that the bare package does not bring."""
    extras = {name: _names(lines) for name, lines in project["optional-dependencies"].items()}
    for module, extra in cli.EXTRA_BY_MODULE.items():
        assert module.replace("_", "-") in extras[extra]
        assert module not in _names(project["dependencies"])

        def lacking(*_, module=module):
            raise ModuleNotFoundError(f"No module named {module!r}", name=f"{module}.part")

        monkeypatch.setattr(cli, "_run_why", lacking)
        assert cli.main(["why", "results/smoke"]) == 2
        assert f"pip install 'threespo[{extra}]'" in capsys.readouterr().err


def test_the_workflows_readme_names_every_rule_and_every_command():
    readme = (ROOT / "workflow" / "README.md").read_text()
    files = [ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    named = {
        name
        for file in files
        for name in re.findall(r"^(?:rule|checkpoint) (\w+):", file.read_text(), re.M)
    }
    assert {"train", "tune", "default"} <= named
    for name in named:
        assert f"`{name}`" in readme, name
    for stage in STAGES:
        assert f"`threespo {stage.replace('_', '-')}`" in readme, stage


def test_no_file_of_the_package_is_longer_than_five_hundred_lines():
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "threespo").rglob("*.py")}
    assert not {str(path): length for path, length in lengths.items() if length > 500}


PLACES = ("*.md", "*/*.md", "docs/*/*.md")
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for place in PLACES for path in ROOT.glob(place))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_documents_link_to_is_there(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((ROOT / document).parent / target).exists(), target
    if document in ("CONTRIBUTING.md", "docs/architecture.md"):
        folders = ("threespo", "tests", "workflow", "notebooks")
        names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}
        places = (ROOT, ROOT / "threespo", ROOT / "threespo" / "methods")
        for name in re.findall(r"`([\w/.-]+\.(?:py|yaml|toml|smk|md|ipynb|txt))`", text):
            assert "NAME" in name or any((place / name).exists() for place in places) or name in names, (
                name
            )


@pytest.mark.parametrize(
    "folder", sorted(path.parent.name for path in ROOT.glob("*/README.md")) or ["none"]
)
def test_folders_explain_themselves(folder):
    assert len((ROOT / folder / "README.md").read_text()) > 100


BARE = """
import sys
from pathlib import Path

from threespo import cli
from threespo.envs.alfworld import sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.webshop.data import prepare_shop, read_shop_products

out = Path(sys.argv[1])
(game,) = generate_games("train", 1, 1, "small")
sources.write_compact([game], out / "games")
prepare_shop(out / "shop", read_shop_products("embedded", count=500), goals="synthetic")
sys.stdin = open(sys.argv[2])
for place in ("games", "shop"):
    assert cli.main(["play", str(out / place)]) == 0
assert cli.main(["verify", "losses", "x"]) == 2
assert not {"torch", "pandas", "transformers", "snakemake"} & set(sys.modules)
"""


@pytest.mark.slow
def test_the_bare_package_plays_a_game_and_a_shop_and_starts_at_once(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", str(ROOT)]
    subprocess.run(install, check=True, cwd=tmp_path)

    (tmp_path / "actions").write_text("look\nquit\n" * 2)
    script = [python, "-c", BARE, tmp_path / "out", tmp_path / "actions"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Admissible:") == 4
    assert "pip install 'threespo[train]'" in done.stderr

    installed = subprocess.run(
        [python, "-m", "pip", "list"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"torch", "pandas", "snakemake"} & set(installed)
    # The best of several, since other work on the machine is not the package's.
    code = "import time; begun = time.process_time(); import {}; print(time.process_time() - begun)"
    imports = [
        python,
        "-c",
        code.format("threespo.cli, threespo.envs.registry, threespo.methods.registry"),
    ]
    runs = [
        subprocess.run(imports, check=True, cwd=tmp_path, capture_output=True, text=True)
        for _ in range(5)
    ]
    assert min(float(run.stdout) for run in runs) < 0.5


def test_no_torch_is_imported_by_the_package_its_environments_or_its_command_line():
    code = "import sys, threespo, threespo.cli, threespo.envs, threespo.pipeline.stages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "benchmarks").glob("*.py")))
def test_what_a_benchmark_imports_of_the_package_is_there(script):
    """Benchmarks run by hand, so a move in the package would break them unseen."""
    tree = ast.parse((ROOT / "benchmarks" / script).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "threespo",
            "benchmarks",
        ):
            if node.module == "benchmarks.peer_trl":
                continue  # needs the extra `bench`
            module = import_module(node.module)
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                assert hasattr(module, alias.name) or find_spec(submodule), f"{script}: {submodule}"


NAMES_AN_ENVIRONMENT = {
    "gym/tasks.py": "where each environment's tasks are, for other frameworks",
    "panels/build.py": "which panels there are",
    "panels/commands.py": "what generated panels are made with",
    "adapters/openenv.py": "a default",
    "adapters/skyrl.py": "a default",
    "adapters/verifiers.py": "a default, and types of a configuration",
    "envs/registry.py": "the registry",
    "cli.py": "a library of that name",
    "verify/replay.py": "kinds of reference files",
    "verify/alfworld.py": "a kind of reference file",
    "verify/webshop.py": "a kind of reference file",
    "results/provenance.py": "a library of that name",
    "scaling/doctor.py": "a library of that name",
    "scaling/shapes.py": "sizes of tiny vocabularies, as measured",
    "scaling/workload.py": "lengths of texts, as measured",
    "results/paper_numbers.py": "columns of the paper's tables, and which environment it details",
}


def test_no_other_file_names_an_environment():
    """Whoever adds an environment must not have to look for places that choose by name."""
    found = set()
    for path in (ROOT / "threespo").rglob("*.py"):
        place = path.relative_to(ROOT / "threespo")
        if place.parts[:2] in {(part, env) for part in ("envs", "imitation") for env in ENVIRONMENTS}:
            continue
        strings = (
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant)
        )
        if any(value in ENVIRONMENTS for value in strings if isinstance(value, str)):
            found.add(place.as_posix())
    assert found == NAMES_AN_ENVIRONMENT.keys()
