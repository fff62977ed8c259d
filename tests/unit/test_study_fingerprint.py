"""A fingerprint changes with the meaning of code, and with nothing else."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from threespo.errors import InputError
from threespo.study import fingerprint as module
from threespo.study.load import load_study
from threespo.study.stages import Job, jobs

FILES = {
    "__init__.py": "",
    "a.py": '"""A."""\nfrom threespo.b import g\n\n\ndef f(x):\n    """Doc."""\n    # comment\n    return g(x) + 1\n',
    "b.py": "def g(x):\n    import threespo.tools.deep as deep\n    return deep.h(x)\n",
    "tools/__init__.py": "",
    "tools/deep.py": "from . import beside\n\n\ndef h(x):\n    return x\n",
    "tools/beside.py": "FOLDER = 'shipped'\n",
    "tools/shipped/weights.bin": "1",
    "tools/table.json": "{}",
    "methods/__init__.py": "",
    "methods/registry.py": "from threespo.methods import one\n",
    "methods/one.py": "from threespo.methods.registry import x\n",
    "other.py": "",
    "weights/unnamed.bin": "1",
    "user.py": "from threespo.methods.registry import x\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def fresh(*names: str) -> str:
    module.forget()
    return module.fingerprint(names)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "from threespo.b import g\ndef f(x):\n\n    return (g(x)   + 1)  # other\n"),
        ("a.py", '"""Else."""\nfrom threespo.b import g\n\n\ndef f(x):\n    """Other."""\n    return g(x) + 1\n'),
        ("other.py", "changed = 1\n"),
        ("tools/README.md", "words"),
        ("a.py", FILES["a.py"].replace('"""A."""', '"""weights"""')),
    ],
)
def test_what_means_the_same_has_the_same_fingerprint(package, name, text):
    before = fresh("threespo.a")
    (package / name).write_text(text)
    assert fresh("threespo.a") == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", FILES["a.py"].replace("+ 1", "+ 2")),
        ("b.py", FILES["b.py"].replace("g(x)", "g(x, y=1)")),
        ("tools/deep.py", FILES["tools/deep.py"].replace("return x", "return -x")),
        ("tools/beside.py", "FOLDER = 'shipped'\nMORE = 1\n"),
        ("tools/__init__.py", "import os\n"),
        ("tools/table.json", "{1}"),
        ("tools/shipped/weights.bin", "2"),
    ],
)
def test_a_change_of_anything_imported_changes_it(package, name, text):
    before = fresh("threespo.a")
    (package / name).write_text(text)
    assert fresh("threespo.a") != before


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return where what was parsed is kept, and a function that does what a new process does."""
    path = tmp_path / "kept" / "fingerprints.cache"
    monkeypatch.setattr(module, "_cache_file", lambda: path)
    monkeypatch.setattr(module.sys, "dont_write_bytecode", False)

    def new_process():
        module._cache.cache_clear()
        module._written.clear()
        return fresh("threespo.a")

    yield path, new_process
    module._cache.cache_clear()
    module._written.clear()


@pytest.fixture
def parsed(monkeypatch):
    """Return the list of what is parsed from now on."""
    parse, asked = module._parse, []
    monkeypatch.setattr(module, "_parse", lambda content, package: asked.append(content) or parse(content, package))
    return asked


def test_what_was_parsed_once_is_not_parsed_again_before_it_changes(package, cache, parsed):
    path, new_process = cache
    before = new_process()
    assert path.is_file()
    parsed.clear()
    assert new_process() == before
    assert parsed == []

    # Also a change that leaves size and times as they are.
    times = (package / "b.py").stat()
    (package / "b.py").write_text(FILES["b.py"].replace("deep.h", "deep.i"))
    os.utime(package / "b.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert new_process() != before
    assert len(parsed) == 1
    (package / "b.py").write_text(FILES["b.py"])
    assert new_process() == before
    assert len(parsed) == 1


def test_a_module_that_appears_is_seen_though_nothing_that_was_parsed_changes(package, cache):
    _, new_process = cache
    (package / "a.py").write_text(FILES["a.py"].replace("import g", "import g, late"))
    before = new_process()
    (package / "b.py").unlink()
    (package / "b").mkdir()
    (package / "b" / "__init__.py").write_text(FILES["b.py"])
    assert new_process() == before, "the same module as a package"
    (package / "b" / "late.py").write_text("")
    assert new_process() != before


MADE_BY = f'"made_by": "{module._MADE_BY}"'


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 200_000,
        '{"made_by": 1}',
        '{"made_by": "x", "modules": {"a": ["b", [], []]}}',
        f"{{{MADE_BY}}}",
        f'{{{MADE_BY}, "modules": []}}',
        f'{{{MADE_BY}, "modules": {{"KEY": ["x"]}}}}',
        f'{{{MADE_BY}, "modules": {{"KEY": 1}}}}',
    ],
)
def test_what_is_kept_and_cannot_be_used_is_parsed_anew(package, cache, damage):
    path, new_process = cache
    before = new_process()
    # A key that is asked for, so that its entry would be taken.
    path.write_text(damage.replace("KEY", next(iter(module._cache()))))
    assert new_process() == before
    assert json.loads(path.read_text())["made_by"] == module._MADE_BY


def test_the_oldest_of_what_was_parsed_go(package, cache, parsed, monkeypatch):
    path, new_process = cache
    monkeypatch.setattr(module, "_MOST", 3)
    before = new_process()
    assert len(json.loads(path.read_text())["modules"]) == 3
    parsed.clear()
    assert new_process() == before
    assert parsed


def test_where_nothing_can_be_kept_nothing_is(package, cache):
    path, new_process = cache
    path.parent.write_text("a file where the folder should be")
    before = new_process()
    assert new_process() == before


def test_what_is_kept_is_no_part_of_the_package_and_no_data_of_a_module():
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert not [pattern for pattern in patterns if module._cache_file().match(pattern)]
    assert not [name for name in module.describe(["threespo.study.fingerprint"]) if "__pycache__" in name]


def test_a_call_of_the_workflow_waits_for_neither_pandas_nor_scipy():
    files = [Path("workflow/Snakefile"), *sorted(Path("workflow/rules").glob("*.smk"))]
    # Statements at the top of a file; what stands deeper is imported where it is needed.
    lines = [line for file in files for line in file.read_text().splitlines() if line.startswith("from threespo")]
    assert len(lines) > 3
    program = "\n".join([*lines, "import sys", "print({'pandas', 'scipy'} & set(sys.modules))"])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_the_registry_is_left_out(package):
    before = fresh("threespo.user")
    (package / "methods" / "one.py").write_text("changed = 1\n")
    (package / "methods" / "registry.py").write_text("changed = 1\n")
    assert fresh("threespo.user") == before


def test_a_missing_or_broken_module_is_named(package):
    with pytest.raises(InputError, match=r"threespo\.nowhere does not exist"):
        fresh("threespo.nowhere")
    (package / "b.py").write_text("def (")
    with pytest.raises(InputError, match=r"b\.py: line 1"):
        fresh("threespo.a")


STUDY = load_study(Path(__file__).resolve().parents[2] / "config" / "studies" / "smoke.yaml")


def code(stage: str, name: str = "") -> set[str]:
    return set(Job(stage, name).code(STUDY))


def test_real_stages_depend_on_what_they_call_and_not_on_other_methods():
    grpo = code("train", "alfworld/tiny-s/grpo/seed-0")
    assert {"threespo.runs.train", "threespo.methods.grpo", "threespo.envs.episode"} <= grpo
    left_out = {"threespo.methods.threespo", "threespo.methods.registry", "threespo.envs.registry", "threespo.cli"}
    assert not left_out & grpo
    assert not [name for name in grpo if name.startswith("threespo.study")]
    assert "threespo.methods.search" in code("train", "alfworld/tiny-s/threespo-literal/seed-0")
    assert all((module.ROOT / name).is_file() for name in grpo if not name.startswith("threespo"))


@pytest.mark.parametrize("stage", ["data", "policy", "train", "evaluate"])
def test_a_stage_of_one_environment_does_not_depend_on_the_other(stage):
    run = {"data": "", "policy": "/tiny-s"}.get(stage, "/tiny-s/grpo/seed-0")
    games, shop = (code(stage, env + run) for env in ("alfworld", "webshop"))
    assert {"threespo.envs.alfworld.spec", "threespo.envs.alfworld.engine"} <= games - shop
    assert {"threespo.envs.webshop.spec", "threespo.envs.webshop.shop"} <= shop - games
    assert not [name for name in games if "webshop" in name]
    assert not [name for name in shop if "alfworld" in name]
    # How results are shown reruns nothing but tables, notebooks and report.
    assert not [name for name in games | shop if "presentation" in name]


def test_a_base_policy_depends_on_its_own_curriculum_and_shipped_weights_alone():
    games, shop = code("policy", "alfworld/tiny-s"), code("policy", "webshop/tiny-s")
    assert {"threespo.imitation.alfworld.curriculum", "threespo.imitation.alfworld.expert"} <= games
    assert [name for name in games if name.endswith("small-s/base/model.safetensors")]
    assert [name for name in shop if name.endswith("500-s/base/model.safetensors")]


def test_results_depend_on_how_their_environments_are_shown():
    shown = {"threespo.envs.alfworld.presentation", "threespo.envs.webshop.presentation"}
    for stage, name in (("tables", ""), ("notebook", "main_results"), ("report", "")):
        assert shown <= code(stage, name)


def test_every_stage_has_a_fingerprint():
    first = {job.stage: job for job in reversed(jobs(STUDY))}
    prints = {str(sorted(job.code(STUDY).items())) for stage, job in first.items() if stage != "notebook"}
    assert len(prints) == len(first) - 1
    assert Path(module.__file__).parents[1] == module.ROOT


def test_a_notebook_depends_on_no_more_than_it_shows():
    """The theory is the same in every study: neither another figure, nor another row, nor a label draws it anew."""
    of_study = {"threespo.study.matrix", "threespo.study.catalogue"}
    theory, results, curves = (code("notebook", name) for name in ("theory", "main_results", "learning_curves"))
    assert "threespo.results.figures" in theory
    assert not [name for name in theory if name in of_study or name.endswith("presentation")]
    assert not of_study & results
    assert "threespo.envs.alfworld.presentation" in results
    assert of_study <= curves
