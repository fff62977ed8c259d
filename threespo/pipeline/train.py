"""The stage ``train``: the runs of the matrix, and trials of learning rates."""

from collections.abc import Sequence

from threespo.envs.registry import environment_module
from threespo.methods.registry import method_module
from threespo.paths import Paths
from threespo.pipeline.of_run import run_ids, training_fields
from threespo.pipeline.stage import RUN_PATTERN, Files, Outputs, Stage
from threespo.provenance.code import digest_reachable_code, function_reference
from threespo.runs.settings import TrainSettings
from threespo.study.config import Study
from threespo.study.marks import json_digest
from threespo.study.matrix import find_run, trained_runs, trial_runs


def run(settings: TrainSettings) -> None:
    """Train the run."""
    from threespo.runs.train import train

    train(settings)


def train_settings(study: Study, paths: Paths, name: str) -> TrainSettings:
    """Return what trains the run ``name``."""
    cell = find_run(study, name)
    ranks = study.ranks(cell.policy)
    code = digest_reachable_code(function_reference(run), tuple(extra_modules(study, name)))
    # Only the run itself has several processes; its probe plays with one.
    own = {"ranks": ranks, "gpus": ranks * study.gpus_per_rank, "code": json_digest(code)}
    return TrainSettings(**training_fields(study, paths, cell) | own)


def train_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the training of run ``name`` reads."""
    run = find_run(study, name)
    files = {"data": [paths.data(run.env)], "policy": [paths.policy(run.env, run.policy)]}
    if study.tuning and run.rate is None:
        files["choice"] = [paths.choice(run.env, run.policy, run.method)]
    return files


def train_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the training of run ``name`` writes."""
    run = paths.run(name)
    files = {
        "metrics": [run.metrics],
        "timing": [run.timing],
        "task_types": [run.task_types],
        "trees": [run.trees],
        "weights": [run.weights],
        "snapshots": [run.snapshots],
    }
    return Outputs(files, folders=(run.weights, run.snapshots), timed=(run.timing,))


def extra_modules(study: Study, name: str) -> Sequence[str]:
    """Return the modules that a run's environment and method are found in."""
    run = find_run(study, name)
    return environment_module(run.env, "spec"), method_module(study.methods[run.method].method)


STAGE = Stage(
    summary="train one run; an interrupted one goes on from its last checkpoint",
    run=run,
    arguments=("run",),
    pattern=RUN_PATTERN,
    jobs=lambda study: run_ids([*trial_runs(study), *trained_runs(study)]),
    settings=train_settings,
    inputs=train_inputs,
    outputs=train_outputs,
    extra_modules=extra_modules,
)
