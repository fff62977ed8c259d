"""What each stage reads and writes, as paths: one function for the inputs and one for the outputs of a stage's jobs.

They take a job's name. Those for outputs also take a pattern such as ``{env}``, from which the workflow's rules are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from threespo.study.catalogue import (
    ITEMS,
    PAPER_NUMBERS,
    REPORT_NUMBERS,
    TABLE_KINDS,
    TABLES,
    figures,
    files_of,
    notebook,
    notebooks,
    tables_of,
    texts,
)
from threespo.study.config import Study
from threespo.study.matrix import (
    choices,
    decision_tree_rows,
    evaluated_runs,
    find_run,
    learning_runs,
    plays_weights_of,
    probed_runs,
    searching_runs,
    shown_runs,
    trained_runs,
    trial_runs,
    trials_of,
)
from threespo.study.paths import NOTEBOOKS, PAPER, PUBLISHED, Paths, Run, RunFolder

Files = dict[str, list[Path]]
"""Paths by the names that rules have for them."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a job writes."""

    files: Files
    folders: tuple[Path, ...] = ()
    """Those of ``files`` that are folders."""

    def paths(self) -> list[Path]:
        """Return all files and folders."""
        return [path for paths in self.files.values() for path in paths]


def data_outputs(paths: Paths, name: str) -> Outputs:
    """Return what preparing the tasks of environment ``name`` writes."""
    folder = paths.data(name)
    return Outputs({"data": [folder]}, (folder,))


def policy_outputs(paths: Paths, name: str) -> Outputs:
    """Return what making the base policy ``name`` (ENV/POLICY) writes."""
    folder = paths.policy(*name.split("/"))
    return Outputs({"policy": [folder]}, (folder,))


def policy_inputs(_: Study, paths: Paths, name: str) -> Files:
    """Return what making the base policy ``name`` (ENV/POLICY) reads."""
    return {"data": [paths.data(name.split("/")[0])]}


def train_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the training of run ``name`` writes."""
    run = paths.run(name)
    names = ("metrics", "timing", "task_types", "trees", "weights", "snapshots")
    return Outputs({name: [getattr(run, name)] for name in names}, (run.weights, run.snapshots))


def train_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the training of run ``name`` reads."""
    run = find_run(study, name)
    files = {"data": [paths.data(run.env)], "policy": [paths.policy(run.env, run.policy)]}
    if study.tuning and run.rate is None:
        files["choice"] = [paths.choice(run.env, run.policy, run.method)]
    return files


def evaluate_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the evaluation of run ``name`` writes."""
    run = paths.run(name)
    return Outputs({"episodes": [run.evaluation], "timing": [run.evaluation_timing], "example": [run.evaluation_example]})


def evaluate_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the evaluation of run ``name`` reads."""
    run = find_run(study, name)
    files = {"data": [paths.data(run.env)]}
    weights = {"run": paths.run(run).weights, "policy": paths.policy(run.env, run.policy)}
    folder = weights.get(plays_weights_of(study, run))
    return {**files, "weights": [folder]} if folder else files


def probe_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the probe of run ``name`` writes."""
    return Outputs({"probe": [paths.run(name).probe]})


def probe_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the probe of run ``name`` reads."""
    run = find_run(study, name)
    return {"data": [paths.data(run.env)], **_trained(paths.run(run))}


def learning_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the evaluation of the snapshots of run ``name`` writes."""
    return Outputs({"learning": [paths.run(name).learning]})


def learning_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the evaluation of the snapshots of run ``name`` reads."""
    run = find_run(study, name)
    own = plays_weights_of(study, run) == "run"
    weights = _trained(paths.run(run)) if own else {"policy": [paths.policy(run.env, run.policy)]}
    return {"data": [paths.data(run.env)], **weights}


def _trained(run: RunFolder) -> Files:
    # The last snapshot has no weights beside the run's own.
    return {"snapshots": [run.snapshots], "weights": [run.weights]}


def tune_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) writes."""
    return Outputs({"choice": [paths.choice(*name.split("/"))]})


def tune_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) reads."""
    return {"trials": [paths.run(run).evaluation for run in trials_of(study, *name.split("/"))]}


def decision_tree_outputs(paths: Paths, name: str) -> Outputs:
    """Return what training the row ``name`` (FAMILY/METHOD) of the section ``laboratory`` writes."""
    return Outputs({"row": [paths.decision_trees(*name.split("/"))]})


def table_outputs(paths: Paths, _: str) -> Outputs:
    """Return the files of all tables."""
    tables = {name: [paths.table(name)] for name in TABLES}
    return Outputs({**tables, "dvc": [paths.dvc_metrics, paths.dvc_curves]})


def table_inputs(study: Study, paths: Paths, _: str) -> Files:
    """Return what the tables are made from."""
    trained = [paths.run(run) for run in trained_runs(study)]
    # Trials too: their results are the tuning table.
    played = [paths.run(run) for run in _unique([*evaluated_runs(study), *trial_runs(study)])]
    return {
        "metrics": [run.metrics for run in trained],
        "training_time": [run.timing for run in trained],
        "task_types": [run.task_types for run in trained],
        "episodes": [run.evaluation for run in played],
        "evaluation_time": [run.evaluation_timing for run in played],
        "examples": [paths.run(run).evaluation_example for run in shown_runs(study)],
        "learning": [paths.run(run).learning for run in learning_runs(study)],
        "probes": [paths.run(run).probe for run in probed_runs(study)],
        "trees": _trees(study, paths),
        "decision_trees": [paths.decision_trees(*row) for row in decision_tree_rows(study)],
        "choices": [paths.choice(*choice) for choice in choices(study)],
        "paper": [*PAPER_NUMBERS],
    }


def notebook_outputs(paths: Paths, name: str) -> Outputs:
    """Return what executing the notebook ``name`` writes."""
    drawn = [paths.figure(item, kind) for item, kind in files_of(name)]
    written = [paths.paper_table(table, kind) for table in tables_of(name) for kind in TABLE_KINDS]
    return Outputs({"figures": drawn, "paper_tables": written, "notebook": [paths.notebook(name)]})


def notebook_inputs(_: Study, paths: Paths, name: str) -> Files:
    """Return what executing the notebook ``name`` reads."""
    return {
        "notebook": [NOTEBOOKS / f"{name}.ipynb"],
        "tables": [paths.table(table) for table in notebook(name).tables],
        "paper": [PAPER / file for file in notebook(name).paper],
    }


def report_outputs(paths: Paths, _: str) -> Outputs:
    """Return what the report writes."""
    return Outputs({"report": [paths.report]})


def report_inputs(study: Study, paths: Paths, _: str) -> Files:
    """Return what the report reads."""
    return {
        "tables": [paths.table(name) for name in TABLES],
        "trees": _trees(study, paths),
        "notebooks": [paths.notebook(name) for name in notebooks(study)],
        "figures": [paths.figure(item.name, "svg") for item in figures(study)],
        "texts": [paths.figure(item.name, "csv") for item in texts(study)],
        # Of the published study itself it is made, and not shown in it.
        "catalogue": [ITEMS, *REPORT_NUMBERS, *([] if study.name == PUBLISHED.stem else [PUBLISHED])],
    }


def _trees(study: Study, paths: Paths) -> list[Path]:
    return [paths.run(run).trees for run in searching_runs(study)]


def _unique(runs: Sequence[Run]) -> list[Run]:
    return list(dict.fromkeys(runs))
