"""The stage ``learning``: a run's snapshots, or the untrained policy, play the games of the learning curves."""

from threespo.paths import Paths
from threespo.pipeline.of_run import environment_modules, run_fields, run_ids, snapshot_files
from threespo.pipeline.stage import RUN_PATTERN, Files, Outputs, Stage
from threespo.runs.settings import LearningRunSettings
from threespo.study.config import Study
from threespo.study.matrix import find_run, learning_runs, weights_source


def run(settings: LearningRunSettings) -> None:
    """Evaluate the snapshots."""
    from threespo.runs.learning import evaluate_snapshots

    evaluate_snapshots(settings)


def learning_settings(study: Study, paths: Paths, name: str) -> LearningRunSettings:
    """Return what evaluates the snapshots of run ``name``, or the untrained policy."""
    run = find_run(study, name)
    evaluation = study.at(run.env).evaluation
    return LearningRunSettings(
        **run_fields(study, paths, run, study.policies[run.policy], study.gpus_per_rank),
        weights="run" if weights_source(study, run) == "run" else "policy",
        learning=evaluation.learning,
        temperature=evaluation.temperature,
    )


def learning_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the evaluation of the snapshots of run ``name`` reads."""
    run = find_run(study, name)
    own = weights_source(study, run) == "run"
    weights = snapshot_files(paths.run(run)) if own else {"policy": [paths.policy(run.env, run.policy)]}
    return {"data": [paths.data(run.env)], **weights}


def learning_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the evaluation of the snapshots of run ``name`` writes."""
    return Outputs({"learning": [paths.run(name).learning]})


STAGE = Stage(
    summary="evaluate one run's snapshots on unseen games",
    run=run,
    arguments=("run",),
    pattern=RUN_PATTERN,
    jobs=lambda study: run_ids(learning_runs(study)),
    settings=learning_settings,
    inputs=learning_inputs,
    outputs=learning_outputs,
    extra_modules=environment_modules,
)
