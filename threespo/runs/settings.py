"""The settings of the jobs that this package does: tasks, training, evaluation, curves, probe, choice of a learning rate."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny

from threespo.agents.settings import AgentSettings
from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.job_settings import JobSettings
from threespo.paths import Run
from threespo.policy.settings import EndpointSettings, SamplingSettings
from threespo.runs.training_settings import Schedule, TrainingSettings
from threespo.settings import MAX_TEMPERATURE, DistinctListOf, Execution, Later, Name, Seeds, Settings

DEFAULT_CURVE_GAMES = 32
"""Games of a curve where the study gives no number: eight snapshots then cost at most about a quarter of
a run of 10,000 generations (docs/LOG.md); with a larger budget more are affordable."""


EXAMPLE_COLUMNS = (
    "env", "policy", "method", "training_seed", "split", "evaluation_seed", "task_id", "task_type", "goal", "success",
    "score", "step", "observation", "response", "action",
)  # fmt: skip
"""Of the episode that an evaluation keeps: a row for each step from 1 on, and one for what the last
action led to, without response and action. Here and not with the evaluation, since tables read them
without playing anything."""


class LearningSettings(Settings):
    """The games that every snapshot plays, once per seed, with the temperature of the evaluation (figures 3a and 3d).

    Nothing of it is read by training, so another choice evaluates the same snapshots again.
    """

    split: Name | None = None
    """Any split but ``train`` (``null``: the last of ``evaluation.splits``). An environment that has no
    such split uses the last one that it is evaluated on."""
    games: int | None = Field(default=None, ge=1, le=10_000_000)
    """The first games of the split in an order by hash, so that task types mix; ``null``: 32, or all of a smaller split."""
    seeds: Seeds = (123,)
    """Evaluation seeds: each one plays all the games."""


class DataSettings(JobSettings):
    """The tasks of an environment."""

    env: str
    tasks: SerializeAsAny[TaskSettings]
    given: str | None
    """Digest of the files in the folder of real data, if there is one."""


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
    code: Annotated[str, Execution] = ""
    """Digest of the run's code, which its key has besides: a checkpoint that other code has written is not resumed."""


class ProbeSettings(Settings):
    """How state scores are compared with success probabilities, estimated by a frozen policy's episodes from each state."""

    snapshots: int = Field(default=3, ge=1, le=100)
    """How often in a run: at the snapshots of ``training.snapshots`` nearest to the middles of so many
    equal parts of its budget."""
    games: int = Field(default=8, ge=1, le=10_000)
    """Games of the training pool, each played once; the states on the way are probed."""
    states: int = Field(default=48, ge=1, le=100_000)
    """States of a snapshot, chosen among those by a hash."""
    continuations: int = Field(default=64, ge=1, le=10_000)
    """Episodes that go on from each state."""


class ProbeRunSettings(TrainSettings):
    """A run's probe: its training settings, which say how it scores states, and how it is probed."""

    probe: ProbeSettings


class EvaluationSettings(Settings):
    """How final checkpoints are evaluated: plain single rollouts, every game once per evaluation seed."""

    temperature: float = Field(default=0.4, ge=0, le=MAX_TEMPERATURE)
    """tab:hyperparams: 0.4."""
    seeds: Seeds = (123, 456, 789)
    splits: Annotated[DistinctListOf[Name], Field(min_length=1)] = ("valid_seen", "valid_unseen")
    """An environment that has some of these is evaluated on them, any other on its own (WebShop: ``test``)."""


class EvaluateSettings(RunSettings):
    """A run's evaluation."""

    weights: Literal["run", "policy", "endpoint"]
    """Whose weights play: the run's own, those of its policy's stage, or none that are here."""
    agent: AgentSettings | None
    """The prompting agent that plays; ``None``: plain episodes."""
    endpoint: EndpointSettings | None
    replies: dict[str, str | None]
    """What a closed model's replies depend on besides the study."""
    evaluation: EvaluationSettings


class LearningRunSettings(RunSettings):
    """The evaluation of a run's snapshots, or of the untrained policy."""

    weights: Literal["run", "policy"]
    """Whose weights play: the run's snapshots, or those of its policy's stage."""
    learning: LearningSettings
    """With the split of the run's environment."""
    temperature: float


class ExtensionSettings(Settings):
    """How rates beyond the grid are tried."""

    max_extensions: int
    factor: float
    seeds: Seeds
    train: TrainSettings
    """Of a trial of the grid; another trial has another run and rate."""
    evaluate: EvaluateSettings
    code: Annotated[str, Execution] = ""
    """Digest of the code that trains and evaluates trials: those that other code has made are made again."""


class TuneSettings(JobSettings):
    """The choice of a method's learning rate."""

    env: str
    policy: str
    method: str
    bases: tuple[Run, ...]
    """The untrained policies on the same games, in the order of their numbers."""
    trials: tuple[Run, ...]
    extension: Annotated[ExtensionSettings | None, Later] = None
    """``None``: the grid is all that is tried."""
