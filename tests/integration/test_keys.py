"""What a job runs is in its key: every stage runs once, traced, and what it called is compared with the code of its key."""

import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.chat_server import ChatServer, says
from tests.integration.conftest import REPOSITORY, Checkout, copy_repository
from threespo.paths import Paths
from threespo.pipeline.plan import plan_jobs
from threespo.pipeline.stages import Job, list_jobs
from threespo.provenance import code, modules
from threespo.study.load import dump_study, load_study, parse_study

pytestmark = pytest.mark.slow

TRACING = Path(__file__).parent / "tracing"
PACKAGE = REPOSITORY / "threespo"

VALUES = {
    "name": "traced",
    "description": "every stage once",
    "seeds": [0],
    "alfworld": {
        "source": "embedded",
        "difficulty": "small",
        "games": {"train": 8, "calibration": 4, "valid_seen": 2, "valid_unseen": 2},
        "max_steps": 15,
    },
    "webshop": {
        "source": "embedded",
        "products": 500,
        "goals": {"calibration": 4, "test": 2},
        "max_steps": 15,
        "history_length": 0,
    },
    "policies": {
        "tiny-s": {"kind": "tiny", "stands_for": "qwen2.5-1.5b-instruct", "max_response_tokens": 32},
        "gpt-4o": {
            "kind": "endpoint",
            "stands_for": "gpt-4o",
            "endpoint": {"model": "gpt-4o", "input_price": 2.5, "output_price": 10.0},
        },
    },
    "methods": {
        "grpo": {"method": "grpo", "parts": ["ablation"]},
        "search": {
            "method": "threespo",
            "options": {"preset": "calibrated"},
            "parts": ["main", "figures"],
        },
    },
    # Each method in one environment is enough, and each environment with one method.
    "parts": {"ablation": {"environments": ["alfworld"]}},
    "agents": {
        "direct": {"agent": "direct", "policies": ["tiny-s"]},
        "closed": {"agent": "react", "policies": ["gpt-4o"]},
    },
    "training": {
        "generations": 60,
        "tasks_per_epoch": 1,
        "group_size": 2,
        "snapshots": 2,
        "recorded_tasks": 8,
    },
    "tuning": {"learning_rates": [1e-4, 3e-4], "generations": 20},
    "evaluation": {"seeds": [1], "learning": {"games": 2}},
    "probe": {"methods": ["search"], "snapshots": 1, "games": 1, "states": 2, "continuations": 2},
    "credit_audit": {"methods": ["search"], "tasks": 1, "passes": 1, "rows": 2, "continuations": 2},
    "laboratory": {
        "families": {
            "small": {"depth": 2, "solutions": 2, "trees": 2, "trees_per_epoch": 1, "generations": 100}
        },
        "methods": {"grpo": {"method": "grpo"}, "search": {"method": "threespo"}},
        "learning_rates": [10.0],
        "seeds": 2,
        "tuning_seeds": 1,
    },
}

NOTEBOOKS = ("main_results", "claims", "learning_curves", "schematics", "reasoning", "main_table")
"""Of the catalogue, one of every kind: figures, texts, a table, one that computes a search of its own."""

MUTANTS = 80

SEED = 20261125


class Traced(NamedTuple):
    """A finished study, and what its jobs have called."""

    checkout: Checkout
    calls: dict[Job, set[tuple[str, str]]]
    """(module, unit) of every function that the job called."""


def _fewer_notebooks(folder: Path) -> None:
    """Leave most notebooks out of the catalogue: each takes seconds, and they are drawn by the same few modules."""
    file = folder / "config" / "paper" / "items.yaml"
    values = yaml.safe_load(file.read_text())
    values["items"] = [item for item in values["items"] if item["notebook"] in NOTEBOOKS]
    values["notebooks"] = {
        name: entry for name, entry in values["notebooks"].items() if name in NOTEBOOKS
    }
    file.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _record_replies(checkout: Checkout, paths: Paths, environment: dict[str, str]) -> None:
    """Play the closed model's row against a server here, so that its replies are there to be played again."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from threespo.paths import Paths\n"
        "from threespo.pipeline.stages import STAGES, Job\n"
        "from threespo.study.load import load_study\n"
        "paths = Paths(Path(sys.argv[1]))\n"
        "study = load_study(paths.study)\n"
        "for env in study.environments:\n"
        "    for job in (Job('data', env), Job('evaluate', f'{env}/gpt-4o/closed/seed-0')):\n"
        "        STAGES[job.stage].run(job.settings(study, paths))\n"
    )
    with ChatServer() as server:
        server.otherwise = says("<think>I look.</think><action>look</action>")
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.url, "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-c", program, str(paths.root)]
        subprocess.run(command, cwd=checkout.folder, env=environment | key, check=True)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    checkout = copy_repository(tmp_path_factory.mktemp("traced") / "repository")
    _fewer_notebooks(checkout.folder)
    paths = Paths(checkout.folder / "results" / "traced")
    paths.root.mkdir(parents=True)
    paths.study.write_text(dump_study(parse_study(VALUES, "test")))

    package = checkout.folder / "threespo"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI", "PYTHONDONT"))
    }
    environment |= {"OMP_NUM_THREADS": "1", "TRACED_PACKAGE": str(package)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TRACING), str(checkout.folder)])
    _record_replies(checkout, paths, environment)
    notes = checkout.folder / "notes"
    command = [sys.executable, str(TRACING / "run_jobs.py"), str(paths.root), str(notes)]
    done = subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    units = Units(package)
    calls = {}
    for job in _jobs(checkout):
        folder = notes / str(job).replace("/", ".")
        noted = [entry for file in folder.glob("*.json") for entry in json.loads(file.read_text())]
        calls[job] = {units.at(Path(file), line) for file, line, _ in noted}
    return Traced(checkout, calls)


def _jobs(checkout: Checkout) -> list[Job]:
    before = Path.cwd()
    os.chdir(checkout.folder)
    try:
        return list_jobs(load_study(checkout.folder / "results" / "traced" / "study.json"))
    finally:
        os.chdir(before)


class Units:
    """Top-level definitions of the package's modules, by place."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self._trees: dict[Path, ast.Module] = {}

    def tree(self, file: Path) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse(file.read_bytes())
        return self._trees[file]

    def at(self, file: Path, line: int) -> tuple[str, str]:
        """Return the module and the name of the unit that a line belongs to."""
        parts = file.relative_to(self._package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in self.tree(file).body:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            if first <= line <= (node.end_lineno or first):
                return module, _name(node)
        raise AssertionError(f"{file}:{line} is in no statement")


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    target: ast.AST | None = None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    if isinstance(target, ast.Tuple):
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else "<import>"


def test_every_function_that_a_job_called_is_in_the_code_of_its_key(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traced.checkout.folder)
    study = load_study(traced.checkout.folder / "results" / "traced" / "study.json")
    stages = {job.stage for job in traced.calls}
    assert len(stages) == 12
    for job, called in traced.calls.items():
        # A job that calls nothing has not been traced.
        assert len(called) > 5, job
        covered = job.code(study)
        assert not {f"{module}:{name}" for module, name in called} - covered.keys(), job


class Mutant(NamedTuple):
    """A module's text with one small change of what a function does."""

    module: str
    unit: str
    file: Path
    text: str
    what: str


FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def _mutations(function: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function's body that can be changed."""
    body = [node for statement in getattr(function, "body", []) for node in ast.walk(statement)]
    documents = {id(node.value) for node in body if isinstance(node, ast.Expr)}
    found = []
    for node in body:
        number = (
            isinstance(node, ast.Constant)
            and not isinstance(node.value, str)
            and id(node) not in documents
        )
        compares = isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED
        if number or compares or (isinstance(node, ast.IfExp | ast.If) and node.orelse):
            found.append(node)
    return found


def _mutate(node: ast.AST) -> str:
    """Change a node in place, and say how."""
    if isinstance(node, ast.Constant):
        before = node.value
        node.value = (
            not before
            if isinstance(before, bool)
            else before + 1
            if isinstance(before, int | float)
            else 0
        )
        return f"{before!r} -> {node.value!r}"
    if isinstance(node, ast.Compare):
        node.ops[0] = FLIPPED[type(node.ops[0])]()
        return "a comparison"
    assert isinstance(node, ast.IfExp | ast.If)
    node.body, node.orelse = node.orelse, node.body  # type: ignore[assignment]
    return "branches swapped"


def mutants(package: Path, units: list[tuple[str, str]], draw: random.Random) -> Iterator[Mutant]:
    """Yield mutants of units, one of each as far as there is something to change."""
    for module, name in units:
        base = package.joinpath(*module.split(".")[1:])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        tree = ast.parse(file.read_bytes())
        for node in tree.body:
            if (
                _name(node) == name
                and isinstance(node, ast.FunctionDef | ast.ClassDef)
                and (places := _mutations(node))
            ):
                what = _mutate(draw.choice(places))
                yield Mutant(module, name, file, ast.unparse(tree), what)


def test_a_mutant_of_what_jobs_called_is_named_with_them(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traced.checkout.folder)
    monkeypatch.setattr(modules, "ROOT", traced.checkout.folder / "threespo")
    paths = Paths(Path("results") / "traced")
    study = load_study(paths.study)
    draw = random.Random(SEED)
    called = sorted({unit for units in traced.calls.values() for unit in units})
    draw.shuffle(called)
    code.clear_caches()
    assert not [
        verdict for verdict in plan_jobs(study, paths, None) if verdict.changes or verdict.damage
    ]

    tried = 0
    for mutant in mutants(traced.checkout.folder / "threespo", called, draw):
        before = mutant.file.read_bytes()
        mutant.file.write_text(mutant.text)
        code.clear_caches()
        try:
            named = {
                verdict.job
                for verdict in plan_jobs(study, paths, None)
                if any(f"code   {mutant.module}:{mutant.unit}:" in line for line in verdict.changes)
            }
        finally:
            mutant.file.write_bytes(before)
        meant = {job for job, units in traced.calls.items() if (mutant.module, mutant.unit) in units}
        assert meant <= named, mutant
        tried += 1
        if tried == MUTANTS:
            break
    assert tried >= 60
    code.clear_caches()


def test_a_mutant_of_what_no_job_can_call_reruns_nothing(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traced.checkout.folder)
    package = traced.checkout.folder / "threespo"
    monkeypatch.setattr(modules, "ROOT", package)
    paths = Paths(Path("results") / "traced")
    study = load_study(paths.study)
    code.clear_caches()
    known = {name for job in traced.calls for name in job.code(study)}
    called = {unit for units in traced.calls.values() for unit in units}
    everything = {
        (module, _name(node))
        for file in sorted(package.rglob("*.py"))
        for module in [".".join(file.relative_to(package.parent).with_suffix("").parts)]
        for node in ast.parse(file.read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and file.name != "__init__.py"
    }
    idle = sorted(everything - called)
    apart = [unit for unit in idle if f"{unit[0]}:{unit[1]}" not in known]
    # Keys are no blanket: of what these jobs did not call, most is in none of them.
    assert len(apart) > 0.5 * len(idle)

    draw = random.Random(SEED)
    draw.shuffle(apart)
    tried = 0
    for mutant in mutants(package, apart, draw):
        before = mutant.file.read_bytes()
        mutant.file.write_text(mutant.text)
        code.clear_caches()
        try:
            changed = [verdict for verdict in plan_jobs(study, paths, None) if verdict.changes]
        finally:
            mutant.file.write_bytes(before)
        assert not changed, mutant
        tried += 1
        if tried == 20:
            break
    assert tried == 20
    code.clear_caches()
