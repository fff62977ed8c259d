"""A study resolved for its jobs: one frozen value with all that a job reads, and nothing else.

A job receives such a value and no study. What decides whether it runs again is the same value, dumped without the fields
that are marked as labels or matters of execution. So no stage can depend on a field that its rerun key lacks.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import SerializeAsAny

from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.settings import Execution, Settings, decisive
from threespo.study.config import AgentSettings, EvaluationSettings, ProbeSettings, Study
from threespo.study.decision_trees import TreeFamily
from threespo.study.endpoint import EndpointSettings
from threespo.study.learning import LearningSettings
from threespo.study.paths import Paths, Run
from threespo.study.sampling import SamplingSettings
from threespo.study.sizes import PolicySize, Weakness
from threespo.study.training import Schedule, TrainingSettings


class JobSettings(Settings):
    """What every job has."""

    paths: Annotated[Paths, Execution]
    gpus: int = 0
    """GPUs that the job needs."""
    ranks: int = 1
    """Processes that do its work together; only training has several. Sums are rounded differently with another number."""
    runs_per_gpu: Annotated[int, Execution] = 1
    """Runs that may share each of them."""

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
    weakness: Weakness
    source: str | None
    revision: str | None
    given: str | None
    """Digest of a local folder of weights: names and sizes of its files, and what the small ones say."""
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
    schedule: Schedule
    minibatch: int
    training: TrainingSettings
    """A trial has the budget of trials, and no snapshots."""


class ProbeRunSettings(TrainSettings):
    """A run's probe: its training settings, which say how it scores states, and how it is probed."""

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


class LearningRunSettings(RunSettings):
    """The evaluation of a run's snapshots, or of the untrained policy."""

    weights: Literal["run", "policy"]
    """Whose weights play: the run's snapshots, or those of its policy's stage."""
    learning: LearningSettings
    """With the split of the run's environment."""
    temperature: float


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
        rows: list[Mapping[str, Any]] = [self.study.policies, self.study.agents, self.study.methods]
        if self.study.laboratory:
            rows += [self.study.laboratory.families, self.study.laboratory.methods]
        order = [list(names) for names in rows]
        study = decisive(self.study, without=(Execution,))
        return {"order": order, "study": study, "gpus": self.gpus, "ranks": self.ranks}


class NotebookSettings(JobSettings):
    """A notebook."""

    name: str
