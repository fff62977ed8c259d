"""The table of edits: which jobs run after each, what `why` says of it, and that a pulled clone does and says the same."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.integration.conftest import Checkout
from threespo.paths import Paths
from threespo.pipeline.plan import plan_jobs
from threespo.pipeline.stages import list_jobs
from threespo.provenance.digests import DigestCache
from threespo.study.catalogue import read_catalogue
from threespo.study.load import load_study

pytestmark = pytest.mark.slow

CI = ("study=ci",)
GRPO, SEARCH = (
    [f"alfworld/tiny-s/{name}/seed-{seed}" for seed in (0, 1)]
    for name in ("grpo", "threespo-calibrated")
)
REFERENCES = [f"alfworld/tiny-s/{name}/seed-0" for name in ("base", "strong")]
REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = Path("results/ci")
FIGURES = ROOT / "figures"
RUN = ROOT / "runs" / GRPO[0]


def train(*runs: str) -> set[str]:
    return {f"train {run}" for run in runs}


def evaluate(*runs: str) -> set[str]:
    return {f"evaluate {run}" for run in runs}


def learn(*runs: str) -> set[str]:
    return {f"learning {run}" for run in runs}


def notebooks(*names: str) -> set[str]:
    return {f"notebook {name}" for name in names}


PROBE = {f"probe {SEARCH[0]}"}
ENDS = {"tables", "report"}
# The ci study has no row with a uniform number of samples, no decision trees, no trials of rates and no audits of credit.
LACKS = (None, "adaptive_curves", "decision_trees", "dose_response", "credit")
ITEMS = [
    item for item in read_catalogue(REPOSITORY / "config" / "paper").items if item.notebook not in LACKS
]
DRAWN = notebooks(*(str(item.notebook) for item in ITEMS if item.kind != "table"))
# They read one table, which has the cells of all of them.
CELLS = notebooks("main_table", "ablation", "thresholds", "alpha", "efficiency")
# Its tables hold times, so it is drawn again after every training.
CURVES = notebooks("learning_curves")
# Its tables hold times of all jobs, so it is written again with all tables.
TIMES = notebooks("compute")


def substitute(file: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has changed; this edit needs {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return edit


def remove(path: Path) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        there = folder / path
        shutil.rmtree(there) if there.is_dir() else there.unlink()

    return edit


def flip(path: Path) -> Callable[[Path], None]:
    """Change one byte, and put the file's times back, as somebody who wants to hide it would."""

    def edit(folder: Path) -> None:
        before = (folder / path).stat()
        data = bytearray((folder / path).read_bytes())
        data[len(data) // 2] ^= 1
        with (folder / path).open("r+b") as stream:
            stream.write(data)
        os.utime(folder / path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return edit


def win_every_game(folder: Path) -> None:
    path = folder / RUN / "evaluation.parquet"
    pd.read_parquet(path).assign(success=True).to_parquet(path)


def nothing_that_counts(folder: Path) -> None:
    for module in ("methods/grpo.py", "results/tables.py", "envs/episode.py"):
        path = folder / "threespo" / module
        path.write_text('"""Another docstring."""\n# a comment\n' + path.read_text().split('"""', 2)[2])
    for name in ("results", "claims"):
        path = folder / "config" / "paper" / f"{name}.yaml"
        path.write_text("# another comment\n" + path.read_text())
    for path in (
        *(folder / "results").rglob("*"),
        *(folder / "config").rglob("*.*"),
        *(folder / "notebooks").iterdir(),
    ):
        os.utime(path)
    shutil.rmtree(folder / ".snakemake", ignore_errors=True)


@dataclass(frozen=True)
class Edit:
    """An edit of a finished study."""

    name: str
    do: Callable[[Path], None]
    changed: set[str]
    """Jobs of which `why` says what has changed. The others follow, or are unchanged."""
    ran: set[str]
    """Jobs that are really done again; others are looked at, and left because what they read came out the same."""
    says: tuple[str, ...] = ()
    """Lines of `why`."""


# The stand-ins for training write the same weights for the same learning rate, so evaluations stand; tables hold times.
STUDY_TABLES = {"tables", "report"}
LEARN = learn(*GRPO, *SEARCH, REFERENCES[0])
FIRST = GRPO[0], SEARCH[0]
NEW = {job.replace("seed-0", "seed-2") for job in train(*FIRST) | evaluate(*FIRST) | learn(*FIRST)}
EVERY_RUN = train(*GRPO, *SEARCH) | evaluate(*GRPO, *SEARCH, *REFERENCES) | LEARN | PROBE | CURVES

EDITS = [
    Edit("comments, docstrings, touched files, no .snakemake", nothing_that_counts, set(), set()),
    Edit(
        "a method's file",
        substitute("threespo/methods/grpo.py", "\n\n\n", "\n\nADDED = 1\n\n\n"),
        train(*GRPO),
        train(*GRPO) | ENDS | CURVES,
    ),
    Edit(
        "alpha in a preset",
        substitute("threespo/methods/threespo_options.py", '"alpha": 1.0', '"alpha": 2.0'),
        # The schematics are drawn from a search of their own.
        train(*SEARCH) | PROBE | notebooks("schematics"),
        train(*SEARCH) | PROBE | notebooks("schematics") | ENDS | CURVES,
        ("  field  options.alpha: 1.0 -> 2.0",),
    ),
    Edit(
        "an ablation's field",
        substitute(
            "config/studies/ci.yaml",
            "{preset: calibrated}",
            "{preset: calibrated, max_paths_per_task: 16}",
        ),
        train(*SEARCH) | PROBE | STUDY_TABLES,
        train(*SEARCH) | PROBE | STUDY_TABLES | CURVES | notebooks("hyperparameters"),
    ),
    Edit(
        "a learning rate",
        substitute("config/studies/ci.yaml", "learning_rate: 3.0e-4", "learning_rate: 1.0e-4"),
        train(*GRPO) | STUDY_TABLES,
        train(*GRPO)
        | evaluate(*GRPO)
        | learn(*GRPO)
        | STUDY_TABLES
        | CURVES
        | notebooks("state_scores", "training_curves", "hyperparameters", "limitations"),
        ("  field  learning_rate: 0.0003 -> 0.0001",),
    ),
    Edit(
        "a seed",
        substitute("config/studies/ci.yaml", "seeds: [0, 1]\nalf", "seeds: [0, 1, 2]\nalf"),
        NEW | STUDY_TABLES,
        NEW
        | STUDY_TABLES
        | CURVES
        | CELLS
        | notebooks(
            "claims",
            "main_results",
            "state_scores",
            "training_curves",
            "limitations",
            "performance_profiles",
        ),
    ),
    Edit(
        "evaluation seeds",
        substitute("config/studies/ci.yaml", "[123, 456]", "[123, 789]"),
        evaluate(*GRPO, *SEARCH, *REFERENCES) | STUDY_TABLES,
        evaluate(*GRPO, *SEARCH, *REFERENCES)
        | STUDY_TABLES
        | notebooks("main_results", "performance_profiles"),
        ("  field  evaluation.seeds: [123, 456] -> [123, 789]",),
    ),
    Edit(
        "games of the learning curves",
        substitute("config/studies/ci.yaml", "seeds: [123", "learning: {games: 5}, seeds: [123"),
        LEARN | STUDY_TABLES,
        LEARN | STUDY_TABLES,
        ("  field  learning.games: null -> 5",),
    ),
    Edit(
        "a label",
        substitute("config/studies/ci.yaml", ", paper_row: grpo", ""),
        STUDY_TABLES,
        STUDY_TABLES | notebooks("claims", "main_results", "limitations") | CELLS | CURVES,
    ),
    Edit(
        "games",
        substitute("config/studies/ci.yaml", "train: 8", "train: 9"),
        {"data alfworld", "policy alfworld/tiny-s"} | STUDY_TABLES,
        {"data alfworld", "policy alfworld/tiny-s"} | EVERY_RUN | STUDY_TABLES,
    ),
    Edit(
        "a caption",
        substitute("config/paper/items.yaml", "Figure 3c", "Figure 3 (c)"),
        {"report"},
        {"report"},
    ),
    Edit(
        "a claim's text",
        substitute(
            "config/paper/claims.yaml", "is above GRPO in ALFWorld", "is far above GRPO in ALFWorld"
        ),
        {"tables"},
        ENDS | notebooks("claims", "limitations"),
    ),
    Edit(
        "a claim's rule",
        substitute("config/paper/claims.yaml", "alfworld_in: 22.6", "alfworld_in: 2.6"),
        {"tables"},
        ENDS | notebooks("claims", "limitations"),
    ),
    Edit(
        "a notebook",
        substitute("notebooks/main_results.ipynb", "set_style()", "set_style();"),
        notebooks("main_results"),
        notebooks("main_results") | {"report"},
    ),
    Edit(
        "the paper's curve",
        substitute("config/paper/fig3a.csv", "\n", "\n\n"),
        notebooks("training_curves"),
        notebooks("training_curves") | {"report"},
    ),
    Edit(
        "a deleted figure",
        remove(FIGURES / "claims.svg"),
        notebooks("claims"),
        notebooks("claims") | {"report"},
    ),
    Edit("all figures deleted", remove(FIGURES), DRAWN, DRAWN | {"report"}),
    Edit("a deleted table", remove(ROOT / "tables" / "claims.parquet"), {"tables"}, ENDS),
    Edit(
        "a deleted metrics table",
        remove(RUN / "metrics.parquet"),
        train(GRPO[0]),
        train(GRPO[0]) | ENDS | CURVES,
    ),
    Edit(
        "a deleted run",
        remove(RUN),
        train(GRPO[0]) | evaluate(GRPO[0]) | learn(GRPO[0]),
        train(GRPO[0]) | evaluate(GRPO[0]) | learn(GRPO[0]) | ENDS | CURVES,
    ),
    Edit(
        "a deleted record",
        remove(ROOT / "stages" / "train" / f"{GRPO[0]}.json"),
        train(GRPO[0]),
        train(GRPO[0]) | ENDS | CURVES,
        ("  has not ended yet in this folder",),
    ),
    Edit("a deleted report", remove(ROOT / "report.html"), {"report"}, {"report"}),
    Edit(
        "damaged weights",
        flip(RUN / "weights" / "model.safetensors"),
        train(GRPO[0]),
        train(GRPO[0]) | ENDS | CURVES,
        (
            f"  runs/{GRPO[0]}/weights/model.safetensors: damaged or edited, its content is not what the job has written",
        ),
    ),
    Edit("an edited evaluation", win_every_game, evaluate(GRPO[0]), evaluate(GRPO[0])),
    Edit(
        "a damaged game file",
        flip(ROOT / "data" / "alfworld" / "train.jsonl.xz"),
        {"data alfworld"},
        {"data alfworld"},
    ),
]

# Rows that are made together, since each test needs two clones and a run: what changes, and what is done again, is the union
# of the rows'. None of them hides what another one changes.
TOGETHER = (
    ("comments, docstrings, touched files, no .snakemake",),
    (
        "a method's file",
        "a notebook",
        "the paper's curve",
        "a deleted figure",
        "a deleted report",
        "a claim's rule",
    ),
    (
        "alpha in a preset",
        "a label",
        "games of the learning curves",
        "a deleted metrics table",
        "an edited evaluation",
    ),
    ("an ablation's field", "a learning rate", "a seed"),
    ("games", "evaluation seeds", "damaged weights"),
    ("a claim's text", "a caption", "a deleted record", "a damaged game file"),
    ("all figures deleted", "a deleted table", "a deleted run"),
)


def verdicts(checkout: Checkout) -> dict[str, list[str]]:
    """Return what `why` says of every job: its state, then the reasons."""
    done = subprocess.run(
        [sys.executable, "-m", "threespo.cli", "why", str(ROOT)],
        cwd=checkout.folder,
        env=checkout.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line)
        else:
            job, _, state = line.partition(": ")
            found[job] = [state]
    return found


def records(checkout: Checkout) -> dict[str, int]:
    """Return when each job of the study has last written its record."""
    paths = Paths(checkout.results())
    files = {str(job): paths.record(job.stage, job.name) for job in list_jobs(load_study(paths.study))}
    return {job: file.stat().st_mtime_ns for job, file in files.items() if file.is_file()}


@pytest.fixture(scope="module")
def pulled(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return what another clone has after a pull: the repository and the results, without what this machine remembers."""
    clone = Checkout(tmp_path_factory.mktemp("elsewhere") / "a deeper" / "clone")
    shutil.copytree(
        finished.folder,
        clone.folder,
        symlinks=True,
        ignore=shutil.ignore_patterns(".snakemake", "*.log", ".*"),
    )
    for path in clone.results().rglob("*"):
        os.utime(path)
    return clone


LONG = ("a method's file", "an ablation's field", "games")


@pytest.mark.parametrize(
    "names",
    [pytest.param(names, marks=pytest.mark.long if names[0] in LONG else ()) for names in TOGETHER],
    ids=lambda names: names[0].replace(" ", "-"),
)
def test_an_edit_reruns_what_depends_on_it_and_why_says_so_in_both_clones(
    names, finished_copy, pulled, tmp_path
):
    edits = [edit for edit in EDITS if edit.name in names]
    assert len(edits) == len(names)
    other = Checkout(tmp_path / "pulled")
    shutil.copytree(pulled.folder, other.folder, symlinks=True)
    for edit, checkout in itertools.product(edits, (finished_copy, other)):
        edit.do(checkout.folder)

    said = verdicts(finished_copy)
    assert verdicts(other) == said
    assert {job for job, (state, *_) in said.items() if state == "changed"} == set().union(
        *(edit.changed for edit in edits)
    )
    for line in (line for edit in edits for line in edit.says):
        assert any(line in lines for lines in said.values()), said

    # Snakemake runs those jobs that `why` names, besides the one that gathers them all.
    planned = {job for job, (state, *_) in said.items() if state != "unchanged"}
    before = records(finished_copy)
    done = finished_copy.snakemake()
    assert done.returncode == 0, done.stderr
    last = f"{len(planned) + 1} of {len(planned) + 1} steps" if planned else "Nothing to be done"
    assert last in done.stderr

    after = records(finished_copy)
    ran = set().union(*(edit.ran for edit in edits))
    assert {job for job in after if after[job] != before.get(job)} == ran | (
        TIMES if "tables" in ran else set()
    )
    assert {state for state, *_ in verdicts(finished_copy).values()} == {"unchanged"}


def test_no_file_of_the_results_can_go_or_change_without_its_job_running_again(
    finished_copy, monkeypatch
):
    monkeypatch.chdir(finished_copy.folder)
    study, paths = load_study(ROOT / "study.json"), Paths(ROOT)
    makers = {path: str(job) for job in list_jobs(study) for path in job.outputs(paths).paths()}
    makers |= {paths.record(job.stage, job.name): str(job) for job in list_jobs(study)}
    assert not [verdict for verdict in plan_jobs(study, paths, DigestCache()) if verdict.damage]

    # What is not a result: logs, what was asked for, locks and memories.
    apart = ("study.json", "call.json")
    files = [
        path for path in sorted(ROOT.rglob("*")) if path.is_file() and not path.name.startswith(".")
    ]
    files = [path for path in files if path.suffix != ".log" and path.name not in apart]
    assert len(files) > 100
    for number, file in enumerate(files):
        maker = next(makers[path] for path in (file, *file.parents) if path in makers)
        content = file.read_bytes()
        # Every file is removed, every fourth damaged at its end too.
        for damaged in (None, content[:-2])[: 2 if number % 4 == 0 else 1]:
            file.unlink() if damaged is None else file.write_bytes(damaged)
            found = [
                str(verdict.job) for verdict in plan_jobs(study, paths, DigestCache()) if verdict.damage
            ]
            assert found == [maker], file
            file.write_bytes(content)


def test_every_edit_is_really_made_once():
    assert sorted(name for names in TOGETHER for name in names) == sorted(edit.name for edit in EDITS)


@pytest.mark.long
def test_a_pulled_clone_has_nothing_to_do_and_reruns_what_the_original_reruns(
    finished_copy, pulled, tmp_path
):
    other = Checkout(tmp_path / "pulled")
    shutil.copytree(pulled.folder, other.folder, symlinks=True)
    assert "Nothing to be done" in other.snakemake().stderr
    (edit,) = (edit for edit in EDITS if edit.name == "a learning rate")
    ran = []
    for checkout in (finished_copy, other):
        edit.do(checkout.folder)
        before = records(checkout)
        assert checkout.snakemake().returncode == 0
        after = records(checkout)
        ran.append({job for job in after if after[job] != before.get(job)})
    assert ran == [edit.ran | TIMES, edit.ran | TIMES]
