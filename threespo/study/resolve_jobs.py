"""From a study to the settings of its jobs: what of the study a job reads (``threespo.study.run_settings``)."""

import hashlib
import os
from pathlib import Path
from typing import Any

from threespo.envs.registry import environment
from threespo.envs.spec import RealData
from threespo.methods.registry import full_options, searches
from threespo.study.config import AgentSettings, EvaluationSettings, PolicySettings, ProbeSettings, Study
from threespo.study.digests import file_digest, files_in
from threespo.study.endpoint import EndpointSettings
from threespo.study.matrix import find_run, plays_weights_of, trials_of
from threespo.study.paths import Paths, Run
from threespo.study.run_settings import (
    BasePolicySettings,
    DataSettings,
    DecisionTreeSettings,
    EvaluateSettings,
    LearningRunSettings,
    NotebookSettings,
    ProbeRunSettings,
    ResultSettings,
    TrainSettings,
    TuneSettings,
)
from threespo.study.sizes import SIZES

SMALL_FILE = 2**24
"""Bytes below which a file of a model is read to be told apart."""


def data_settings(study: Study, paths: Paths, name: str) -> DataSettings:
    """Return what prepares the tasks of the environment ``name``."""
    section = study.environments[name]
    tasks = environment(name).tasks.part_of(section)
    return DataSettings(paths=paths, env=name, tasks=tasks, given=_digest_of_folder(environment(name).real, section.folder))


def base_policy_settings(study: Study, paths: Paths, name: str) -> BasePolicySettings:
    """Return what makes the base policy ``name`` (ENV/POLICY)."""
    env, policy = name.split("/")
    section, spec, settings = study.environments[env], environment(env), study.policies[policy]
    return BasePolicySettings(
        paths=paths,
        env=env,
        policy=policy,
        kind=settings.kind,
        size_name=settings.size,
        size=SIZES[settings.size],
        weakness=settings.weakness,
        source=settings.source,
        revision=settings.revision,
        given=_digest_of_weights(settings.source),
        tasks=spec.tasks.part_of(section),
        episode=spec.episode.part_of(section),
        build=study.policy_build,
    )


def train_settings(study: Study, paths: Paths, name: str) -> TrainSettings:
    """Return what trains the run ``name``."""
    run = find_run(study, name)
    ranks = study.ranks(run.policy)
    # Only the run itself has several processes; its probe plays with one.
    return TrainSettings(**_training(study, paths, run) | {"ranks": ranks, "gpus": ranks * study.gpus_per_rank})


def probe_settings(study: Study, paths: Paths, name: str) -> ProbeRunSettings:
    """Return what probes the run ``name``."""
    assert study.probe is not None
    return ProbeRunSettings(**_training(study, paths, find_run(study, name)), probe=ProbeSettings.part_of(study.probe))


def evaluate_settings(study: Study, paths: Paths, name: str) -> EvaluateSettings:
    """Return what evaluates the run ``name``: a trial on the calibration tasks alone, once."""
    run = find_run(study, name)
    policy, weights = study.policies[run.policy], plays_weights_of(study, run)
    evaluation = EvaluationSettings.part_of(study.at(run.env).evaluation)
    if run.rate is not None:
        evaluation = evaluation.model_copy(update={"splits": ("calibration",), "seeds": evaluation.seeds[:1]})
    return EvaluateSettings(
        **_of_run(study, paths, run, policy, gpus=0 if weights == "endpoint" else study.gpus_per_rank),
        weights=weights,
        agent=AgentSettings.part_of(study.agents[run.method]) if run.method in study.agents else None,
        endpoint=policy.endpoint,
        replies=_replies(policy.endpoint, paths.cassette(run)),
        evaluation=evaluation,
    )


def learning_settings(study: Study, paths: Paths, name: str) -> LearningRunSettings:
    """Return what evaluates the snapshots of run ``name``, or the untrained policy."""
    run = find_run(study, name)
    evaluation = study.at(run.env).evaluation
    return LearningRunSettings(
        **_of_run(study, paths, run, study.policies[run.policy], study.gpus_per_rank),
        weights="run" if plays_weights_of(study, run) == "run" else "policy",
        learning=evaluation.learning,
        temperature=evaluation.temperature,
    )


def tune_settings(study: Study, paths: Paths, name: str) -> TuneSettings:
    """Return what chooses the learning rate of ``name`` (ENV/POLICY/METHOD)."""
    env, policy, method = name.split("/")
    trials = tuple(trials_of(study, env, policy, method))
    return TuneSettings(paths=paths, env=env, policy=policy, method=method, trials=trials)


def decision_tree_settings(study: Study, paths: Paths, name: str) -> DecisionTreeSettings:
    """Return what trains the row ``name`` (FAMILY/METHOD) on decision trees."""
    section, (family, row) = study.laboratory, name.split("/")
    assert section is not None
    entry = section.methods[row]
    return DecisionTreeSettings(
        paths=paths,
        family=family,
        name=row,
        trees=section.families[family],
        method=entry.method,
        options=full_options(entry.method, entry.options),
        learning_rates=section.learning_rates,
        seeds=section.seeds,
        tuning_seeds=section.tuning_seeds,
    )


def result_settings(study: Study, paths: Paths, _: str) -> ResultSettings:
    """Return what makes tables and report."""
    return ResultSettings(paths=paths, study=study)


def notebook_settings(_: Study, paths: Paths, name: str) -> NotebookSettings:
    """Return what executes the notebook ``name``."""
    return NotebookSettings(paths=paths, name=name)


def _of_run(study: Study, paths: Paths, run: Run, policy: PolicySettings, gpus: int) -> dict[str, Any]:
    """Return the fields of ``RunSettings``."""
    return {
        "paths": paths,
        "gpus": gpus,
        "runs_per_gpu": study.runs_per_gpu,
        "run": run,
        "episode": environment(run.env).episode.part_of(study.environments[run.env]),
        "sampling": policy.sampling(gpus),
        "threads": study.training.threads,
    }


def _training(study: Study, paths: Paths, run: Run) -> dict[str, Any]:
    """Return the fields of ``TrainSettings``."""
    here, policy = study.at(run.env), study.policies[run.policy]
    entry, training = here.methods[run.method], here.training
    if run.rate is not None and study.tuning:
        training = training.model_copy(update={"generations": study.tuning.generations, "epochs": None, "snapshots": 0})
    if not searches(entry.method):
        # Only searches have trees to record: for other methods the number must not cause a rerun.
        training = training.model_copy(update={"recorded_tasks": 0})
    return {
        **_of_run(study, paths, run, policy, study.gpus_per_rank),
        "method": entry.method,
        "options": full_options(entry.method, entry.options),
        "learning_rate": entry.learning_rate if run.rate is None else run.rate,
        "learning_rate_scale": policy.learning_rate_scale,
        "schedule": entry.schedule,
        "minibatch": entry.minibatch or training.minibatch,
        "training": policy.scaled(training),
    }


def _replies(endpoint: EndpointSettings | None, cassette: Path) -> dict[str, str | None]:
    """Return what a closed model's replies depend on: with a key the service, without one the recorded replies.

    With a key the cassette grows while the row is played, so its digest cannot be part of the rerun key.
    """
    if endpoint is None:
        return {}
    # A compressed cassette cannot grow: it is what is played even with a key.
    if os.environ.get(endpoint.key_env) and cassette.suffix != ".xz":
        return {"model": endpoint.resolved_model(), "address": endpoint.address()}
    return {"model": endpoint.resolved_model(), "cassette": file_digest(cassette) if cassette.is_file() else None}


def _digest_of_weights(source: str | None) -> str | None:
    """Return a digest of which model a local folder holds; ``None`` for a name on a hub.

    Weights count by size, since the workflow asks at every start; configuration and tokenizer by what they say.
    """
    if source is None or not Path(source).is_dir():
        return None
    lines = [
        f"{name} {file.stat().st_size} {file_digest(file) if file.stat().st_size < SMALL_FILE else ''}"
        for name, file in files_in(Path(source))
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _digest_of_folder(real: RealData | None, folder: Path | None) -> str | None:
    """Return a digest of which data a folder holds, wherever it lies; ``None`` without a folder."""
    if real is None or folder is None:
        return None
    files = sorted(path for pattern in real.files for path in folder.glob(pattern))
    lines = [f"{path.name} {file_digest(path)}" for path in files]
    if not lines:
        found = sorted(path for name in real.listed for path in folder.rglob(name))
        lines = [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in found]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
