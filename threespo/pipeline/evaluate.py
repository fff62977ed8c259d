"""The stage ``evaluate``: a run's final policy, an untrained one, or a prompting agent plays every judged task."""

import os
from pathlib import Path

from threespo.agents.settings import AgentSettings
from threespo.paths import Paths
from threespo.pipeline.of_run import environment_modules, run_fields, run_ids
from threespo.pipeline.stage import RUN_PATTERN, Files, Outputs, Stage
from threespo.policy.settings import EndpointSettings
from threespo.provenance.digests import file_digest
from threespo.runs.settings import EvaluateSettings, EvaluationSettings
from threespo.study.config import Study
from threespo.study.matrix import base_trials, evaluated_runs, find_run, trial_runs, weights_source


def run(settings: EvaluateSettings) -> None:
    """Evaluate the run."""
    from threespo.runs.evaluate import evaluate

    evaluate(settings)


def evaluate_settings(study: Study, paths: Paths, name: str) -> EvaluateSettings:
    """Return what evaluates the run ``name``: a trial on the splits of ``tuning``, once."""
    run = find_run(study, name)
    policy = study.policies[run.policy]
    weights = weights_source(study, run)
    evaluation = EvaluationSettings.part_of(study.at(run.env).evaluation)
    if run.rate is not None:
        evaluation = evaluation.model_copy(
            update={"splits": study.trial_splits(run.env), "seeds": evaluation.seeds[:1]}
        )
    return EvaluateSettings(
        **run_fields(
            study, paths, run, policy, gpus=0 if weights == "endpoint" else study.gpus_per_rank
        ),
        weights=weights,
        agent=AgentSettings.part_of(study.agents[run.method]) if run.method in study.agents else None,
        endpoint=policy.endpoint,
        replies=_replies(policy.endpoint, paths.cassette(run)),
        evaluation=evaluation,
    )


def evaluate_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the evaluation of run ``name`` reads."""
    run = find_run(study, name)
    files = {"data": [paths.data(run.env)]}
    weights = {"run": paths.run(run).weights, "policy": paths.policy(run.env, run.policy)}
    folder = weights.get(weights_source(study, run))
    return {**files, "weights": [folder]} if folder else files


def evaluate_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the evaluation of run ``name`` writes."""
    run = paths.run(name)
    files = {
        "episodes": [run.evaluation],
        "timing": [run.evaluation_timing],
        "example": [run.evaluation_example],
    }
    return Outputs(files, timed=(run.evaluation_timing,))


def _replies(endpoint: EndpointSettings | None, cassette: Path) -> dict[str, str | None]:
    """Return what a closed model's replies depend on: with a key the service, without one the recorded replies.

    With a key the cassette grows while the row is played, so its digest cannot be part of the rerun key.
    """
    if endpoint is None:
        return {}
    # A compressed cassette cannot grow: it is what is played even with a key.
    if os.environ.get(endpoint.key_env) and cassette.suffix != ".xz":
        return {"model": endpoint.resolve_model(), "address": endpoint.public_address()}
    return {
        "model": endpoint.resolve_model(),
        "cassette": file_digest(cassette) if cassette.is_file() else None,
    }


STAGE = Stage(
    summary="evaluate one run's final policy",
    run=run,
    arguments=("run",),
    pattern=RUN_PATTERN,
    jobs=lambda study: run_ids([*base_trials(study), *trial_runs(study), *evaluated_runs(study)]),
    settings=evaluate_settings,
    inputs=evaluate_inputs,
    outputs=evaluate_outputs,
    extra_modules=environment_modules,
)
