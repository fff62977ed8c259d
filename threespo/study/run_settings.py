"""A study resolved for its jobs: one frozen value with all that a job reads, and nothing else.

A job receives such a value and no study. What decides whether it runs again is the same value, dumped without the fields
that are marked as labels or matters of execution. So no stage can depend on a field that its rerun key lacks.
"""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import SerializeAsAny

from threespo.envs.registry import environment
from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.methods.registry import full_options, searches
from threespo.settings import Execution, Settings, decisive
from threespo.study.checksums import file_digest
from threespo.study.config import (
    AgentSettings,
    EvaluationSettings,
    PolicySettings,
    ProbeSettings,
    SamplingSettings,
    Study,
    TrainingSettings,
)
from threespo.study.decision_trees import TreeFamily
from threespo.study.endpoint import EndpointSettings
from threespo.study.matrix import find_run, plays_weights_of, snapshots_of, trials_of
from threespo.study.paths import Paths, Run
from threespo.study.sizes import SIZES, PolicySize

COMPACT = ("*.json", "*.json.xz", "*.jsonl", "*.jsonl.xz", "*.pddl", "*.twl2")
"""Files of a compact folder of games, or of a folder of products."""


class JobSettings(Settings):
    """What every job has."""

    paths: Annotated[Paths, Execution]
    gpus: int = 0
    """GPUs that the job needs."""

    def key(self) -> dict[str, Any]:
        """Return what decides whether the job runs again, as JSON values."""
        values: dict[str, Any] = decisive(self)
        return values


class DataSettings(JobSettings):
    """The tasks of an environment."""

    env: str
    tasks: SerializeAsAny[TaskSettings]
    given: str | None
    """Digest of the files in the folder of real data, if there is one."""


class BasePolicySettings(JobSettings):
    """A base policy for an environment."""

    env: str
    policy: str
    kind: Literal["tiny", "pretrained", "endpoint"]
    size_name: str
    size: PolicySize
    source: str | None
    tasks: SerializeAsAny[TaskSettings]
    episode: SerializeAsAny[EpisodeSettings]
    build: bool
    """Build a tiny policy even where a shipped one fits."""


class RunSettings(JobSettings):
    """What training, evaluation and probe of a run have in common."""

    run: Run
    episode: SerializeAsAny[EpisodeSettings]
    sampling: SamplingSettings
    threads: int


class TrainSettings(RunSettings):
    """A training run."""

    method: str
    """Name in the registry of methods."""
    options: dict[str, Any]
    """All of the method's options, defaults included."""
    learning_rate: float | None
    """Before the policy's scale; ``None``: what trials have chosen."""
    learning_rate_scale: float
    minibatch: int
    training: TrainingSettings
    """Of a trial with the trial's budget."""
    snapshots: int


class ProbeRunSettings(TrainSettings):
    """A run's probe: what it was trained with, which says how it scores states, and how it is probed."""

    probe: ProbeSettings


class EvaluateSettings(RunSettings):
    """A run's evaluation."""

    weights: Literal["run", "policy", "endpoint"]
    """Whose weights play: the run's own, those of its policy's stage, or none that are here."""
    agent: AgentSettings | None
    """The prompting agent that plays; ``None``: plain episodes."""
    endpoint: EndpointSettings | None
    replies: dict[str, str | None]
    """What a closed model's replies depend on beside the study."""
    evaluation: EvaluationSettings


class TuneSettings(JobSettings):
    """The choice of a method's learning rate."""

    env: str
    policy: str
    method: str
    trials: tuple[Run, ...]


class DecisionTreeSettings(JobSettings):
    """A method on a family of decision trees."""

    family: str
    name: str
    """The row's name in the study."""
    trees: TreeFamily
    method: str
    options: dict[str, Any]
    learning_rates: tuple[float, ...]
    seeds: int
    tuning_seeds: int


class ResultSettings(JobSettings):
    """Tables and report: the whole study, since its labels stand in them."""

    study: SerializeAsAny[Study]

    def key(self) -> dict[str, Any]:
        """Return the study with its labels, and the order of its rows, which JSON objects do not keep."""
        order = [list(rows) for rows in (self.study.policies, self.study.agents, self.study.methods)]
        return {"order": order, "study": decisive(self.study, without=(Execution,))}


class NotebookSettings(JobSettings):
    """A notebook."""

    name: str


def data_settings(study: Study, paths: Paths, name: str) -> DataSettings:
    """Return what prepares the tasks of the environment ``name``."""
    section = study.environments[name]
    tasks = environment(name).tasks.part_of(section)
    return DataSettings(paths=paths, env=name, tasks=tasks, given=_digest_of_folder(section.folder))


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
        source=settings.source,
        tasks=spec.tasks.part_of(section),
        episode=spec.episode.part_of(section),
        build=study.policy_build,
    )


def train_settings(study: Study, paths: Paths, name: str) -> TrainSettings:
    """Return what trains the run ``name``."""
    return TrainSettings(**_training(study, paths, find_run(study, name)))


def probe_settings(study: Study, paths: Paths, name: str) -> ProbeRunSettings:
    """Return what probes the run ``name``."""
    assert study.probe is not None
    return ProbeRunSettings(**_training(study, paths, find_run(study, name)), probe=ProbeSettings.part_of(study.probe))


def evaluate_settings(study: Study, paths: Paths, name: str) -> EvaluateSettings:
    """Return what evaluates the run ``name``: a trial on the calibration tasks alone, once."""
    run = find_run(study, name)
    policy, weights = study.policies[run.policy], plays_weights_of(study, run)
    evaluation = study.at(run.env).evaluation
    if run.rate is not None:
        evaluation = evaluation.model_copy(update={"splits": ("calibration",), "seeds": evaluation.seeds[:1]})
    return EvaluateSettings(
        **_of_run(study, paths, run, policy, gpus=0 if weights == "endpoint" else study.gpus_per_run),
        weights=weights,
        agent=AgentSettings.part_of(study.agents[run.method]) if run.method in study.agents else None,
        endpoint=policy.endpoint,
        replies=_replies(policy.endpoint, paths.cassette(run)),
        evaluation=evaluation,
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
        "run": run,
        "episode": environment(run.env).episode.part_of(study.environments[run.env]),
        "sampling": SamplingSettings.part_of(policy),
        "threads": study.training.threads,
    }


def _training(study: Study, paths: Paths, run: Run) -> dict[str, Any]:
    """Return the fields of ``TrainSettings``."""
    here, policy = study.at(run.env), study.policies[run.policy]
    entry, training = here.methods[run.method], here.training
    if run.rate is not None and study.tuning:
        training = training.model_copy(update={"generations": study.tuning.generations})
    if not searches(entry.method):
        # Only searches have trees to record: for the others the number must not matter.
        training = training.model_copy(update={"recorded_tasks": 0})
    return {
        **_of_run(study, paths, run, policy, study.gpus_per_run),
        "method": entry.method,
        "options": full_options(entry.method, entry.options),
        "learning_rate": entry.learning_rate if run.rate is None else run.rate,
        "learning_rate_scale": policy.learning_rate_scale,
        "minibatch": entry.minibatch or training.minibatch,
        "training": training,
        "snapshots": snapshots_of(study, run),
    }


def _replies(endpoint: EndpointSettings | None, cassette: Path) -> dict[str, str | None]:
    """Return what a closed model's replies depend on: the environment, or without a key the recorded replies.

    With a key the cassette grows while the row is played, so it cannot be what decides.
    """
    if endpoint is None:
        return {}
    if os.environ.get(endpoint.key_env):
        return {"model": endpoint.resolved_model(), "address": os.environ.get(endpoint.base_url_env)}
    return {"model": endpoint.resolved_model(), "cassette": file_digest(cassette) if cassette.is_file() else None}


def _digest_of_folder(folder: Path | None) -> str | None:
    """Return a digest of which data a folder holds, wherever it lies.

    Files of the compact form are read. Of the thousands of single games in ALFWorld's official layout only names and sizes
    count: reading them all would delay every start of the workflow.
    """
    if folder is None:
        return None
    names = sorted(path for pattern in COMPACT for path in folder.glob(pattern))
    lines = [f"{path.name} {file_digest(path)}" for path in names]
    if not any(".jsonl" in path.name for path in names):
        games = sorted(folder.rglob("game.tw-pddl"))
        lines += [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in games]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
