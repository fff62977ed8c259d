"""A study file, typed: what is prepared, trained and evaluated, at which scale.

Every field is explained once: here, where a job's settings are (those of ``training`` in
``threespo/runs/training_settings.py``), or in an environment's ``settings.py``. Unknown or ill-typed fields are refused with
the field's full name (``threespo.study.load``), so a misspelling never silently changes an experiment. Values that the paper
fixes name their source.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import Field, create_model, model_validator

from threespo.agents.settings import AgentSettings
from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.envs.settings import EnvironmentSettings
from threespo.envs.spec import CALIBRATION
from threespo.imitation.settings import WarmStartSettings, Weakness
from threespo.policy.named.catalogue import read_named_models
from threespo.policy.settings import EndpointSettings, SamplingSettings, TemplateSettings, VllmSettings
from threespo.runs.settings import (
    AuditedPolicy,
    CreditSettings,
    EvaluationSettings,
    LearningSettings,
    ProbeSettings,
)
from threespo.runs.training_settings import (
    MAX_RANKS,
    MAX_ROWS,
    Generations,
    PolicyScale,
    Schedule,
    TrainingSettings,
)
from threespo.settings import (
    HUB_REVISION_PATTERN,
    MAX_SEEDS,
    DistinctListOf,
    Execution,
    Label,
    Later,
    LearningRate,
    Name,
    RowColour,
    RowLabel,
    Seeds,
    Settings,
)
from threespo.study.confirmatory import Freeze
from threespo.study.decision_trees import DecisionTreesSettings
from threespo.study.parts import Part, Scope


class PolicySettings(SamplingSettings, PolicyScale):
    """A base policy: a tiny model built here, a Hugging Face model, or a closed model behind an endpoint."""

    kind: Literal["tiny", "pretrained", "endpoint"] = "tiny"
    """An ``endpoint`` is not trained; the study's prompting agents play with it."""
    size: Name = "s"
    """``tiny`` only: a name in threespo/imitation/settings.py (``s``: the paper's 1.5B model, ``m``: its 7B)."""
    weakness: Weakness = "planted"
    """``tiny`` only: ``planted`` is a good clone made careless on purpose, ``early`` one whose cloning was stopped early."""
    bases: Annotated[int, Field(ge=1, le=MAX_SEEDS), Later] = 1
    """Of what is cloned: base policies of so many cloning seeds. A run starts from base number (training seed modulo
    ``bases``), so that what training gains is averaged over bases; with as many bases as training seeds every seed has its
    own."""
    source: str | None = Field(default=None, min_length=1)
    """``pretrained`` only: a name that ``threespo model`` lists, such as smollm2-135m, a local folder, or a hub name such as
    Qwen/Qwen2.5-1.5B-Instruct."""
    revision: Annotated[str, Field(pattern=HUB_REVISION_PATTERN)] | None = None
    """Of a hub name only: commit, tag or branch (``null``: the default one). The policy's description has the commit."""
    warm_start: Annotated[WarmStartSettings | None, Later] = None
    """``pretrained`` only: the base that training starts from is the model after cloning the environment's expert."""
    endpoint: EndpointSettings | None = None
    """``endpoint`` only: model, prices and limits (threespo/policy/endpoint.py). Keys are in environment variables."""
    stands_for: Annotated[str, Label]
    """The paper's base model whose rows this policy is set beside (``base_model`` in config/paper/results.yaml)."""
    learning_rate_scale: float = Field(default=1.0, gt=0, le=1000)
    """Factor on every method's learning rate, since larger models take smaller steps."""

    @model_validator(mode="after")
    def _kind_is_complete(self) -> "PolicySettings":
        if (self.kind == "endpoint") != (self.endpoint is not None):
            raise ValueError(
                "kind 'endpoint' needs 'endpoint' (model and prices), other kinds must not have it"
            )
        if (self.kind == "pretrained") != (self.source is not None):
            raise ValueError(
                "kind 'pretrained' needs 'source' (a folder or hub name), kind 'tiny' must not have it"
            )
        if self.revision is not None and self.kind != "pretrained":
            raise ValueError(
                "'revision' is of kind 'pretrained' only, which is fetched from a hub; leave it out"
            )
        if self.kind != "tiny" and self.weakness != "planted":
            raise ValueError(
                "'weakness' is of kind 'tiny' only: leave it out, other kinds are taken as they are"
            )
        if self.kind != "tiny" and self.warm_start is None and self.bases != 1:
            raise ValueError(
                "'bases' is of what is cloned only: without 'warm_start' a model has one base, leave it out"
            )
        if self.kind != "pretrained" and self.warm_start is not None:
            raise ValueError(
                "'warm_start' is of kind 'pretrained' only: tiny policies have their recipe, leave it out"
            )
        if self.revision is not None and self.source in read_named_models():
            raise ValueError(
                f"'revision' is of a hub name only: {self.source!r} has its own (threespo model), leave it out"
            )
        if self.kind != "pretrained" and TemplateSettings.part_of(self) != TemplateSettings():
            raise ValueError(
                "'chat_template_kwargs' and 'chat_template_date' are of kind 'pretrained' only: leave them out"
            )
        if self.kind == "endpoint" and self.sampler != "auto":
            raise ValueError(
                f"'sampler' is {self.sampler!r}, but an endpoint draws its responses itself: leave it out"
            )
        if self.sampler == "torch" and self.vllm != VllmSettings():
            raise ValueError("'vllm' has settings, but 'sampler' is 'torch': leave one of the two out")
        return self

    @property
    def is_model_itself(self) -> bool:
        """Whether the base is the published model that it stands for: only then is its absolute success the paper's."""
        if self.kind != "pretrained" or self.warm_start is not None:
            return False
        named = read_named_models().get(self.source or "")
        # A folder may be of any model; its owner says what it stands for.
        return named is None or named.hub.partition("/")[2].lower() == self.stands_for

    def base_of_seed(self, seed: int) -> int:
        """Return the number of the base that a run with this training seed starts from."""
        return seed % self.bases

    def sampling(self, gpus: int) -> SamplingSettings:
        """Return how a job with ``gpus`` GPUs loads and samples the policy: with the sampler that ``auto`` means there."""
        automatic = "vllm" if gpus and self.kind == "pretrained" else "torch"
        sampler = automatic if self.sampler == "auto" else self.sampler
        # Settings of a sampler that a job does not have must not rerun it.
        vllm = self.vllm if sampler == "vllm" else VllmSettings()
        return SamplingSettings.part_of(self).model_copy(update={"sampler": sampler, "vllm": vllm})

    def scaled(self, training: TrainingSettings) -> TrainingSettings:
        """Return how this policy is trained: ``training`` with what the policy's size decides, and a stage of ZeRO."""
        names = set(PolicyScale.model_fields) - {"ranks_per_run"}
        own = {name: value for name in names if (value := getattr(self, name)) is not None}
        stage = own.get("zero_stage", training.zero_stage)
        least = (
            1
            if self.dtype == "bfloat16" or own.get("offload_optimizer", training.offload_optimizer)
            else 0
        )
        return training.model_copy(update={**own, "zero_stage": least if stage is None else stage})


class MethodSettings(Settings):
    """One row of the study: a method of the registry with its options."""

    method: Name
    """A name of the registry in threespo/methods/registry.py."""
    learning_rate: LearningRate | None = None
    """Chosen by hand; ``null`` where the study's ``tuning`` chooses it."""
    schedule: Schedule = "constant"
    """``linear``: the rate falls to 0 over the budget, epoch by epoch."""
    options: dict[str, Any] = Field(default={})
    """The method's own typed options; checked against its settings class."""
    minibatch: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    """Rows per optimizer step, where they are not the study's: for the control that takes as many steps as 3SPO."""
    paper_row: Annotated[str | None, Label] = None
    """The method's id in config/paper/results.yaml, if the paper has such a row."""
    label: Annotated[RowLabel | None, Label, Later] = None
    """The row's name in tables and figures (``null``: that of config/paper/rows.yaml, or the entry's own name)."""
    colour: Annotated[RowColour | None, Label, Later] = None
    """The row's colour in figures (``null``: that of config/paper/rows.yaml, or a spare one)."""
    parts: Annotated[DistinctListOf[Part], Field(min_length=1)] = ("main",)
    """The parts of the study that the row stands in. It is run once in every environment and with every policy that one of
    them covers."""


class AgentEntry(AgentSettings):
    """One prompting row of the study: an agent, played by some of its policies without training."""

    policies: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Policies that play it (``null``: all)."""
    paper_row: Annotated[str | None, Label] = None
    """The row's id in config/paper/results.yaml, if the paper has it."""
    label: Annotated[RowLabel | None, Label, Later] = None
    """The row's name in tables and figures, as of a method."""
    colour: Annotated[RowColour | None, Label, Later] = None
    """The row's colour in figures, as of a method."""


class TuningSettings(Settings):
    """How every method's learning rate is chosen: one grid and one budget for all, compared on the calibration split."""

    learning_rates: Annotated[DistinctListOf[LearningRate], Field(min_length=2, max_length=32)]
    """The grid. Every method tries each rate on every policy; the best mean success wins, the smallest rate of equals."""
    generations: Generations
    """Budget of a trial in single-step generations."""
    seeds: Seeds = (1000,)
    """Training seeds of a rate's trials, none of the study's own. One is enough to avoid a rate that does not suit a method,
    not to find its best: two runs of one rate may be 40 points apart."""
    splits: Annotated[DistinctListOf[Name], Field(min_length=1), Later] = (CALIBRATION,)
    """Splits that trials are judged on, in an environment those that it has. The choice is made on ``calibration`` alone, so
    that must be among them; the others show what it is worth on tasks that it was not made on."""
    max_extensions: Annotated[int, Field(ge=0, le=16), Later] = 0
    """Rates that a method may try beyond the grid, one after another, while its best rate is at an edge of what it has tried
    (``threespo/runs/rate_grid.py``); 0: none, and such a row is only marked."""
    extension_factor: Annotated[float, Field(ge=2, le=100), Later] = 3.0
    """Between an edge and the next rate, which is then rounded to a half decade: 1e-5, 3e-5, 1e-4, ..."""

    @model_validator(mode="after")
    def _rates_are_a_grid(self) -> "TuningSettings":
        rising = list(self.learning_rates) == sorted(self.learning_rates)
        if not rising:
            raise ValueError(
                f"learning_rates: expected rates in rising order, found {self.learning_rates}"
            )
        if len({f"{rate:g}" for rate in self.learning_rates}) < len(self.learning_rates):
            raise ValueError(
                f"learning_rates: expected rates that differ in six digits, found {self.learning_rates}"
            )
        if CALIBRATION not in self.splits:
            raise ValueError(
                f"splits: expected {CALIBRATION!r} among them, on which rates are chosen; found {self.splits}"
            )
        return self


class ProbeEntry(ProbeSettings):
    """The study's section ``probe``."""

    methods: Annotated[DistinctListOf[Name], Field(min_length=1)]
    """Entries of ``methods`` that search."""
    seeds: int = Field(default=1, ge=1, le=1000)
    """Training seeds of each that are probed, the first ones, each with all of these episodes. A verdict on a claim about
    probed states takes three."""


class CreditEntry(CreditSettings):
    """The study's section ``credit_audit``."""

    methods: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Entries of ``methods`` (``null``: all but those with a critic, which an audit does not train). Under the base policy
    they are audited in every environment and with every policy, also where no run of theirs is trained."""
    seeds: int = Field(default=1, ge=1, le=1000)
    """Training seeds of each, the first ones: they decide the draws, and under ``final`` the policy."""
    at: Annotated[DistinctListOf[AuditedPolicy], Field(min_length=1)] = ("base",)
    """The policies that are held fixed; ``final`` is that of each trained run of the method itself."""


class EvaluationEntry(EvaluationSettings):
    """The study's section ``evaluation``."""

    learning: LearningSettings = LearningSettings()
    """How snapshots are evaluated."""


class Study(Settings):
    """A matrix of runs: environments x policies x methods x seeds.

    Besides these fields a study has a section for each of its environments, under the environment's name
    (:func:`study_class`).
    """

    name: Name
    description: Annotated[str, Field(min_length=1, max_length=1000), Label]
    seeds: Seeds
    """Training seeds; spreads in the tables are over these."""
    policies: dict[Name, PolicySettings] = Field(min_length=1)
    methods: dict[Name, MethodSettings] = Field(min_length=1)
    agents: dict[Name, AgentEntry] = Field(default={})
    parts: dict[Part, Scope | None] = Field(default={})
    """Where the entries of a part are run, and its agents and untrained policies are evaluated; a part that is not here has
    all environments and policies, and with ``null`` it is left out of the study."""
    training: TrainingSettings
    tuning: TuningSettings | None = None
    laboratory: DecisionTreesSettings | None = None
    """Methods on decision trees with a tabular policy."""
    probe: ProbeEntry | None = None
    credit_audit: Annotated[CreditEntry | None, Later] = None
    """Whether the advantages of a method point towards actions that are worth more."""
    confirmatory: Annotated[Freeze | None, Label] = None
    """Marks a study as frozen before it ran, on panels that nothing is chosen on (``threespo study NAME --freeze``)."""
    evaluation: EvaluationEntry = EvaluationEntry()
    policy_build: bool = False
    """True rebuilds the tiny base policies from their recipe even where a shipped one fits."""
    gpus: int = Field(default=0, ge=0, le=10_000)
    """GPUs that the study expects in total; 0 runs everything on CPU cores."""
    ranks_per_run: int = Field(default=1, ge=1, le=MAX_RANKS)
    """Processes of one training run; a policy may have another number. Evaluation, curves and probe have one."""
    gpus_per_rank: int = Field(default=0, ge=0, le=1)
    """GPUs of each process: 0 computes on CPU cores."""
    runs_per_gpu: Annotated[int, Execution] = Field(default=1, ge=1, le=64)
    """Runs that share a GPU of one machine (``threespo plan`` says how many fit). A cluster gives each run its own."""
    gpus_per_node: Annotated[int, Execution] = Field(default=8, ge=1, le=64)
    """GPUs of one machine of a cluster: a run that needs more is given several machines."""

    def ranks(self, policy: str) -> int:
        """Return the processes of a training run of the policy with this name."""
        return self.policies[policy].ranks_per_run or self.ranks_per_run

    def gpus_of_run(self, policy: str) -> int:
        """Return the GPUs of a run with this policy."""
        return self.ranks(policy) * self.gpus_per_rank

    def covers(self, parts: Collection[Part], env: str, policy: str) -> bool:
        """Return whether one of ``parts`` has rows in this environment with this policy."""
        scopes = (self.parts.get(part, Scope()) for part in parts)
        return any(scope.covers(env, policy) for scope in scopes if scope)

    def trial_splits(self, env: str) -> tuple[str, ...]:
        """Return the splits that trials are judged on in an environment; none where the study gives the rates."""
        there = self.environments[env].splits or environment(env).splits
        return tuple(split for split in self.tuning.splits if split in there) if self.tuning else ()

    @property
    def environments(self) -> dict[str, EnvironmentSettings]:
        """The environments that the study has, by name, in the order of the paper's columns."""
        sections = {name: getattr(self, name, None) for name in ENVIRONMENTS}
        return {name: section for name, section in sections.items() if section is not None}

    def at(self, env: str) -> "StudyAt":
        """Return the study's settings for one environment, with the differences of the environment's section.

        Raises:
            pydantic.ValidationError: if the environment's own ``training`` has fields that training does not have.
        """
        section = self.environments[env]
        # Validated anew: the environment's section gives unchecked values.
        training = TrainingSettings.model_validate({**self.training.model_dump(), **section.training})

        methods = dict(self.methods)
        for name, other in section.methods.items():
            entry = methods[name]
            rate = other.learning_rate or entry.learning_rate
            methods[name] = entry.model_copy(
                update={"learning_rate": rate, "options": {**entry.options, **other.options}}
            )

        spec = environment(env)
        there = section.splits or spec.splits
        shared = tuple(split for split in self.evaluation.splits if split in there)
        splits = shared or spec.evaluated
        learning = self.evaluation.learning
        curves = learning.split if learning.split in there else splits[-1]
        changes = {"splits": splits, "learning": learning.model_copy(update={"split": curves})}
        evaluation = self.evaluation.model_copy(update=changes)
        return StudyAt(section, training, methods, evaluation)


@dataclass(frozen=True, slots=True)
class StudyAt:
    """What of a study holds in one environment."""

    settings: EnvironmentSettings
    training: TrainingSettings
    methods: Mapping[str, MethodSettings]
    evaluation: EvaluationEntry
    """With the splits that this environment is evaluated on, and the split of its learning curves."""


@functools.cache
def study_class() -> type[Study]:
    """Return ``Study`` with an optional section for every environment of the registry."""
    sections: dict[str, Any] = {name: (environment(name).settings | None, None) for name in ENVIRONMENTS}
    return cast(type[Study], create_model("Study", __base__=Study, __doc__=Study.__doc__, **sections))
