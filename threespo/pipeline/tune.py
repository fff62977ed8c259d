"""The stage ``tune``: a method's learning rate, chosen from its trials, and the trials beyond an edge of its grid."""

from collections.abc import Sequence

from threespo.paths import Paths, trials_file
from threespo.pipeline import evaluate, train
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.provenance.code import digest_reachable_code, function_reference
from threespo.runs.settings import ExtensionSettings, TuneSettings
from threespo.study.config import Study
from threespo.study.marks import json_digest
from threespo.study.matrix import base_trials_of, trials_of, tuned_rows


def run(settings: TuneSettings) -> None:
    """Choose the rate."""
    from threespo.runs.trials import choose_learning_rate

    choose_learning_rate(settings)


def tune_settings(study: Study, paths: Paths, name: str) -> TuneSettings:
    """Return what chooses the learning rate of ``name`` (ENV/POLICY/METHOD)."""
    env, policy, method = name.split("/")
    extension = _extension_settings(study, paths, name)
    # Only a job that trains needs what a training needs.
    own = {"gpus": extension.train.gpus, "ranks": extension.train.ranks} if extension else {}
    return TuneSettings(
        paths=paths,
        env=env,
        policy=policy,
        method=method,
        bases=tuple(base_trials_of(study, env, policy)),
        trials=tuple(trials_of(study, env, policy, method)),
        extension=extension,
        runs_per_gpu=study.runs_per_gpu,
        **own,
    )


def _extension_settings(study: Study, paths: Paths, name: str) -> ExtensionSettings | None:
    tuning = study.tuning
    if tuning is None or not tuning.max_extensions:
        return None
    # Any trial of the row will do: the others differ in their run and rate only.
    trial = trials_of(study, *name.split("/"))[0].run_id
    code = digest_reachable_code(function_reference(run), tuple(extra_modules(study, name)))
    return ExtensionSettings(
        max_extensions=tuning.max_extensions,
        factor=tuning.extension_factor,
        seeds=tuning.seeds,
        train=train.train_settings(study, paths, trial),
        evaluate=evaluate.evaluate_settings(study, paths, trial),
        code=json_digest(code),
    )


def tune_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) reads."""
    env, policy, method = name.split("/")
    runs = [*base_trials_of(study, env, policy), *trials_of(study, env, policy, method)]
    files = {"trials": [paths.run(run).evaluation for run in runs]}
    if study.tuning and study.tuning.max_extensions:
        files |= {"data": [paths.data(env)], "policy": [paths.policy(env, policy)]}
    return files


def tune_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the choice of a learning rate for ``name`` (ENV/POLICY/METHOD) writes."""
    names = name.split("/")
    return Outputs({"choice": [paths.choice(*names)], "trials": [trials_file(paths, *names)]})


def extra_modules(study: Study, name: str) -> Sequence[str]:
    """Return the modules that the environment and method of additional trials are found in."""
    if study.tuning is None or not study.tuning.max_extensions:
        return ()
    return train.extra_modules(study, trials_of(study, *name.split("/"))[0].run_id)


STAGE = Stage(
    summary="choose a method's learning rate from its trials",
    run=run,
    arguments=("env", "policy", "method"),
    pattern="{env}/{policy}/{method}",
    jobs=lambda study: ["/".join(choice) for choice in tuned_rows(study)],
    settings=tune_settings,
    inputs=tune_inputs,
    outputs=tune_outputs,
    extra_modules=extra_modules,
)
