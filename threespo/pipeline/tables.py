"""The stage ``tables``: all runs as tables."""

from threespo.paths import ROW_LOOKS, Paths, trials_file
from threespo.pipeline.of_results import result_modules, tree_files
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.results.settings import ResultSettings
from threespo.study.catalogue import PAPER_NUMBERS, TABLES, TIMED
from threespo.study.config import Study
from threespo.study.matrix import (
    base_trials,
    decision_tree_rows,
    evaluated_runs,
    learning_runs,
    probed_runs,
    shown_runs,
    trained_runs,
    tuned_rows,
)


def run(settings: ResultSettings) -> None:
    """Make the tables."""
    from threespo.results.tables import make_tables

    make_tables(settings)


def table_settings(study: Study, paths: Paths, _: str) -> ResultSettings:
    """Return what makes the tables."""
    return ResultSettings(paths=paths, study=study)


def table_inputs(study: Study, paths: Paths, _: str) -> Files:
    """Return what the tables are made from."""
    trained = [paths.run(run) for run in trained_runs(study)]
    # What trials have won is beside their choice; the base's intervals are over its episodes.
    played = [paths.run(run) for run in (*evaluated_runs(study), *base_trials(study))]
    return {
        "metrics": [run.metrics for run in trained],
        "training_time": [run.timing for run in trained],
        "task_types": [run.task_types for run in trained],
        "episodes": [run.evaluation for run in played],
        "evaluation_time": [run.evaluation_timing for run in played],
        "examples": [paths.run(run).evaluation_example for run in shown_runs(study)],
        "learning": [paths.run(run).learning for run in learning_runs(study)],
        "probes": [paths.run(run).probe for run in probed_runs(study)],
        "trees": tree_files(study, paths),
        "decision_trees": [paths.decision_trees(*row) for row in decision_tree_rows(study)],
        "choices": [paths.choice(*row) for row in tuned_rows(study)],
        "trials": [trials_file(paths, *row) for row in tuned_rows(study)],
        "paper": [*PAPER_NUMBERS, ROW_LOOKS],
    }


def table_outputs(paths: Paths, _: str) -> Outputs:
    """Return the files of all tables."""
    tables = {name: [paths.table(name)] for name in TABLES}
    return Outputs(
        {**tables, "dvc": [paths.dvc_metrics, paths.dvc_curves]}, timed=tuple(map(paths.table, TIMED))
    )


STAGE = Stage(
    summary="gather all runs into tables",
    run=run,
    arguments=(),
    pattern="",
    jobs=lambda _: [""],
    settings=table_settings,
    inputs=table_inputs,
    outputs=table_outputs,
    extra_modules=result_modules,
    reusable=False,
)
