"""The stage ``tune``: a method's learning rate, chosen from its trials."""

from threespo.paths import Paths
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.runs.settings import TuneSettings
from threespo.study.config import Study
from threespo.study.matrix import trials_of, tuned_rows


def run(settings: TuneSettings) -> None:
    """Choose the rate."""
    from threespo.runs.learning_rate import choose_learning_rate

    choose_learning_rate(settings)


def tune_settings(study: Study, paths: Paths, name: str) -> TuneSettings:
    """Return what chooses the learning rate of ``name`` (ENV/POLICY/METHOD)."""
    env, policy, method = name.split("/")
    trials = tuple(trials_of(study, env, policy, method))
    return TuneSettings(paths=paths, env=env, policy=policy, method=method, trials=trials)


def tune_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) reads."""
    return {"trials": [paths.run(run).evaluation for run in trials_of(study, *name.split("/"))]}


def tune_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) writes."""
    return Outputs({"choice": [paths.choice(*name.split("/"))]})


STAGE = Stage(
    summary="choose a method's learning rate from its trials",
    run=run,
    arguments=("env", "policy", "method"),
    pattern="{env}/{policy}/{method}",
    jobs=lambda study: ["/".join(choice) for choice in tuned_rows(study)],
    settings=tune_settings,
    inputs=tune_inputs,
    outputs=tune_outputs,
)
