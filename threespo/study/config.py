"""A study file, typed: what is prepared, trained and evaluated, at which scale.

Every field is explained here once. Unknown or ill-typed fields are refused with the field's full name, so a misspelling
never silently changes an experiment. Values that the paper fixes name their source.
"""

import json
import math
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from threespo.errors import InputError
from threespo.policy.endpoint import EndpointSettings
from threespo.study.environments import ALFWORLD_SPLITS, AlfworldSettings, EnvironmentSettings, WebshopSettings
from threespo.study.laboratory import LaboratorySettings
from threespo.study.settings import Name, Seeds, Settings, check_methods

Split = Literal["train", "calibration", "valid_seen", "valid_unseen", "test"]


class PolicySettings(Settings):
    """A base policy: a tiny model built here, a Hugging Face model, or a closed model behind an endpoint."""

    kind: Literal["tiny", "pretrained", "endpoint"] = "tiny"
    """An ``endpoint`` is not trained; the study's prompting agents play with it."""
    size: Literal["s", "m"] = "s"
    """``tiny`` only: ``s`` stands in for the paper's 1.5B model, ``m`` (about four times larger) for its 7B."""
    source: str | None = None
    """``pretrained`` only: a local folder or a hub name such as Qwen/Qwen2.5-1.5B-Instruct."""
    endpoint: EndpointSettings | None = None
    """``endpoint`` only: model, prices and limits (threespo/policy/endpoint.py). Keys are in environment variables."""
    stands_for: str
    """The paper's base model whose rows this policy is set beside (``base_model`` in config/paper/results.yaml)."""
    learning_rate_scale: float = Field(default=1.0, gt=0)
    """Factor on every method's learning rate, since larger models take smaller steps."""
    max_prompt_tokens: int = Field(default=2048, ge=1)
    """Longest prompt (tab:hyperparams: 2048). A longer one is an error, never cut. Of an ``endpoint`` the length that the
    estimate of costs goes by."""
    max_response_tokens: int = Field(default=512, ge=1)
    """Longest response (tab:hyperparams: 512)."""
    dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _kind_is_complete(self) -> "PolicySettings":
        if (self.kind == "endpoint") != (self.endpoint is not None):
            raise ValueError("kind 'endpoint' needs 'endpoint' (model and prices), other kinds must not have it")
        if (self.kind == "pretrained") != (self.source is not None):
            raise ValueError("kind 'pretrained' needs 'source' (a folder or hub name), kind 'tiny' must not have it")
        return self


class TrainingSettings(Settings):
    """What all trained methods share, so that they are compared on equal terms: none of it can be set for one method."""

    terms: Literal["equalised", "as_released"] = "equalised"
    """``equalised``: statistics of episode returns over trajectories, as the methods' papers have them. ``as_released``:
    over rows (steps), as the released code runs; there a long failure weighs more than a short success
    (docs/baselines.md)."""
    generations: int = Field(ge=1)
    """The budget of a run in single-step generations, the same for every method."""
    tasks_per_epoch: int = Field(default=16, ge=1)
    """Tasks drawn per epoch (verl-agent's scripts: 16). An epoch is a reporting bin, not a budget."""
    pool: int | None = Field(default=None, ge=1)
    """Training games that tasks are drawn from (``null``: all). A small pool is visited often, which is what state
    statistics live on; the paper's 6,400 draws visit each of 3,553 games 1.8 times."""
    group_size: int = Field(default=8, ge=2)
    """Rollouts per task of group methods; G_max of 3SPO (tab:hyperparams: 8)."""
    minibatch: int = Field(default=256, ge=1)
    """Rows per optimizer step of the methods that play whole episodes (verl-agent: 256 on ALFWorld)."""
    success_reward: float = Field(default=10.0, gt=0)
    """Environment reward of a won episode for the baselines (verl-agent: 10); 3SPO's is in its eq. 2."""
    temperature: float = Field(default=1.0, gt=0)
    kl_coef: float = Field(default=0.01, ge=0)
    """tab:hyperparams: 0.01; k3 estimate, as a loss term."""
    clip: float = Field(default=0.2, gt=0)
    invalid_penalty: float = Field(default=0.1, ge=0)
    """Subtracted where a response lacks well-formed tags (tab:hyperparams: 0.1)."""
    inadmissible_penalty: float = Field(default=0.0, ge=0)
    """Subtracted from the advantage of responses with an inadmissible action. Not in the paper: a named option of the
    embedded studies, for every response that a method trains on. 3SPO trains on fewer (not on groups of equal rewards)."""
    weight_decay: float = Field(default=0.01, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed ZeRO stage."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens per forward pass; changes memory and speed, not results beyond rounding."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Epochs between checkpoints; an interrupted run replays what came after the last one, to the same bytes."""
    recorded_tasks: int = Field(default=8, ge=0)
    """Games of the pool whose search trees are kept whenever they are drawn (3SPO; ``threespo view`` shows them)."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of a run; fixed here and not by the scheduler, so that the bytes do not depend on the machine's load."""


class MethodSettings(Settings):
    """One row of the study: a method of the registry with its options."""

    method: Name
    """A name of the registry in threespo/methods/registry.py."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Chosen by hand; ``null`` where the study's ``tuning`` chooses it."""
    options: dict[str, Any] = Field(default={})
    """The method's own typed options; checked against its settings class."""
    minibatch: int | None = Field(default=None, ge=1)
    """Rows per optimizer step, where they are not the study's: for the control that takes as many steps as 3SPO."""
    paper_row: str | None = None
    """The method's id in config/paper/results.yaml, if the paper has such a row."""


class AgentEntry(Settings):
    """One prompting row of the study: an agent, played by some of its policies without training."""

    agent: Literal["direct", "react", "retry", "reflexion"]
    """``direct``: actions alone; ``react``: thoughts and actions; ``reflexion``: attempts with reflections in between;
    ``retry``: as many attempts without (threespo/agents/)."""
    policies: tuple[Name, ...] | None = None
    """Who plays it (``null``: every policy)."""
    trials: int = Field(default=3, ge=2)
    """Most attempts of ``reflexion`` and ``retry``; success is that of any. The paper does not say."""
    reflection_characters: int = Field(default=4000, ge=1)
    """Characters of a failed attempt's steps, from its end, that the request for a reflection shows: a prompt that is too
    long is an error."""
    note_characters: int = Field(default=400, ge=1)
    """Characters that are kept of a reflection, for the same reason."""
    thoughts_in_history: bool = False
    """``react``, ``retry``, ``reflexion``: show earlier thoughts beside their actions; the paper's template does not."""
    paper_row: str | None = None
    """The row's id in config/paper/results.yaml, if the paper has it."""


class TuningSettings(Settings):
    """How every method's learning rate is chosen: one grid and one budget for all, judged on the calibration games."""

    learning_rates: tuple[float, ...] = Field(min_length=2)
    """The grid. Each rate is tried once by every method on every policy; the best success wins, of equals the smallest."""
    generations: int = Field(ge=1)
    """Budget of a trial in single-step generations."""
    seed: int = Field(default=1000, ge=0)
    """Training seed of the trials, none of the study's own."""

    @model_validator(mode="after")
    def _rates_are_a_grid(self) -> "TuningSettings":
        rising = list(self.learning_rates) == sorted(set(self.learning_rates))
        if not rising or self.learning_rates[0] <= 0 or not math.isfinite(self.learning_rates[-1]):
            raise ValueError(f"learning_rates: expected positive rates in rising order, found {self.learning_rates}")
        if len({f"{rate:g}" for rate in self.learning_rates}) < len(self.learning_rates):
            raise ValueError(f"learning_rates: expected rates that differ in six digits, found {self.learning_rates}")
        return self


class ProbeSettings(Settings):
    """How state scores are set beside true success probabilities, which forked episodes of a frozen policy estimate."""

    methods: tuple[Name, ...] = Field(min_length=1)
    """Entries of ``methods`` that are 3SPO; their first training seed is probed."""
    snapshots: int = Field(default=3, ge=1)
    """How often in a run: in the middles of equal parts of its budget."""
    games: int = Field(default=8, ge=1)
    """Games of the training pool, each played once; the states on the way are probed."""
    states: int = Field(default=48, ge=1)
    """States of a snapshot, chosen among those by a hash."""
    continuations: int = Field(default=64, ge=1)
    """Episodes forked from each state."""


class EvaluationSettings(Settings):
    """How final checkpoints are judged: plain single rollouts, every game once per evaluation seed."""

    temperature: float = Field(default=0.4, ge=0)
    """tab:hyperparams: 0.4."""
    seeds: Seeds = (123, 456, 789)
    splits: tuple[Split, ...] = Field(default=("valid_seen", "valid_unseen"), min_length=1)
    """Of ALFWorld; WebShop has one, ``test``."""


class Study(Settings):
    """A matrix of runs: environments x policies x methods x seeds."""

    name: Name
    description: str
    seeds: Seeds
    """Training seeds; spreads in the tables are over these."""
    alfworld: AlfworldSettings | None = None
    webshop: WebshopSettings | None = None
    policies: dict[Name, PolicySettings] = Field(min_length=1)
    methods: dict[Name, MethodSettings] = Field(min_length=1)
    agents: dict[Name, AgentEntry] = Field(default={})
    training: TrainingSettings
    tuning: TuningSettings | None = None
    laboratory: LaboratorySettings | None = None
    probe: ProbeSettings | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    policy_build: bool = False
    """True rebuilds the tiny base policies from their recipe even where a shipped one fits."""
    gpus: int = Field(default=0, ge=0)
    """GPUs that the study expects in total; 0 runs everything on CPU cores."""
    gpus_per_run: Literal[0, 1] = 0
    """GPUs of one run: 0 trains on a CPU core. One run is one process."""

    @property
    def environments(self) -> dict[str, EnvironmentSettings]:
        """The environments that the study has, by name, in the order of the paper's columns."""
        both = {"alfworld": self.alfworld, "webshop": self.webshop}
        return {name: settings for name, settings in both.items() if settings is not None}

    def at(self, env: str) -> "Study":
        """Return the study as it is in one environment: with that one's training fields, methods and evaluated splits."""
        own = self.environments[env]
        training = TrainingSettings.model_validate({**self.training.model_dump(), **own.training})
        methods = dict(self.methods)
        for name, other in own.methods.items():
            entry = methods[name]
            rate = other.learning_rate or entry.learning_rate
            methods[name] = entry.model_copy(update={"learning_rate": rate, "options": {**entry.options, **other.options}})
        splits = self.evaluation.splits if env == "alfworld" else ("test",)
        evaluation = self.evaluation.model_copy(update={"splits": splits})
        return self.model_copy(update={"training": training, "methods": methods, "evaluation": evaluation})

    @model_validator(mode="after")
    def _environments_are_whole(self) -> "Study":
        if not self.environments:
            raise ValueError("expected 'alfworld', 'webshop' or both, found neither")
        for name, settings in self.environments.items():
            strange = sorted(set(settings.methods) - set(self.methods))
            if strange:
                raise ValueError(f"{name}.methods.{strange[0]}: no such entry in the study's 'methods'")
            if "threads" in settings.training:
                raise ValueError(f"{name}.training.threads: the same in all environments; set it in 'training'")
            if self.tuning and any(other.learning_rate for other in settings.methods.values()):
                raise ValueError(f"{name}.methods: remove the learning rates, 'tuning' chooses them")
            try:
                check_methods(f"{name}.methods", self.at(name).methods)
            except ValidationError as error:
                lines = [f"{name}.training.{item['loc'][0]}: {_explain(item)}" for item in error.errors()]
                raise ValueError("; ".join(lines)) from error
        shop = self.webshop
        if shop and any(policy.kind == "tiny" for policy in self.policies.values()):
            # What the teacher decides by must be in the prompt.
            if shop.mode != "text":
                raise ValueError("webshop.mode: tiny policies learn to read 'text' only")
            if shop.fidelity == "original" and not shop.history_length:
                raise ValueError("webshop.history_length: expected 1 or more, as original pages do not show what is chosen")
        strange = sorted(set(self.evaluation.splits) - set(ALFWORLD_SPLITS))
        if strange:
            raise ValueError(f"evaluation.splits: {strange[0]!r} is no split of ALFWorld; WebShop's is always 'test'")
        return self

    @model_validator(mode="after")
    def _methods_are_known(self) -> "Study":
        check_methods("methods", self.methods)
        for name, entry in self.methods.items():
            if name in ("base", "strong"):
                raise ValueError(f"methods.{name}: this name is taken by the untrained policies; choose another")
            if (entry.learning_rate is None) != (self.tuning is not None):
                remedy = "remove it, 'tuning' chooses it" if self.tuning else "give it, or the section 'tuning' to choose it"
                raise ValueError(f"methods.{name}.learning_rate: found {entry.learning_rate}; {remedy}")
        for name, agent in self.agents.items():
            if name in ("base", "strong", *self.methods):
                raise ValueError(f"agents.{name}: this name is taken by a method or an untrained policy; choose another")
            strange = sorted(set(agent.policies or ()) - set(self.policies))
            if strange:
                raise ValueError(f"agents.{name}.policies: no policy {strange[0]!r}; there are {', '.join(self.policies)}")
        for name, policy in self.policies.items():
            players = [agent for agent in self.agents.values() if agent.policies is None or name in agent.policies]
            if policy.kind == "endpoint" and not players:
                raise ValueError(f"policies.{name}: an endpoint is not trained, and no entry of 'agents' plays it")
        if all(policy.kind == "endpoint" for policy in self.policies.values()):
            raise ValueError("policies: expected at least one that can be trained, found endpoints only")
        idle = [
            name
            for env in self.environments
            for name, entry in self.at(env).methods.items()
            if entry.method == "threespo" and entry.minibatch and entry.options.get("update_unit") != "epoch"
        ]
        if idle:
            raise ValueError(f"methods.{idle[0]}.minibatch: 3SPO has mini-batches with 'update_unit: epoch' only")
        strange = sorted(name for name in self.probe.methods if not self._is_search(name)) if self.probe else []
        if strange:
            raise ValueError(f"probe.methods: {strange[0]!r} is not an entry of 'methods' whose method is threespo")
        if self.tuning and self.tuning.seed in self.seeds:
            raise ValueError(f"tuning.seed: {self.tuning.seed} is one of the study's seeds; choose another")
        return self

    def _is_search(self, name: str) -> bool:
        return name in self.methods and self.methods[name].method == "threespo"


def parse_study(values: dict[str, Any], origin: str) -> Study:
    """Check ``values`` and return the study.

    Raises:
        InputError: naming ``origin`` and every wrong field with what was expected.
    """
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        lines = [f"  {'.'.join(str(part) for part in item['loc']) or 'study'}: {_explain(item)}" for item in error.errors()]
        raise InputError(f"{origin}: not a valid study\n" + "\n".join(lines)) from error


def load_study(path: Path, overrides: dict[str, Any] | None = None) -> Study:
    """Read a study file (YAML or JSON) and merge ``overrides`` (nested mapping) into it.

    Raises:
        InputError: if the file is missing, is not YAML, or a field is wrong.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Studies lie in config/studies/.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping of fields, found {type(values).__name__}")
    return parse_study(merge(values, overrides or {}), str(path))


def dump_study(study: Study) -> str:
    """Return the study with every default filled in, as JSON: the form in which jobs receive it.

    Methods, policies and agents stay in the study's order, which is that of the tables.
    """
    return json.dumps(study.model_dump(mode="json"), indent=2) + "\n"


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` in it, field by field; lists and scalars are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def _explain(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return "no such field; check the spelling against threespo/study/config.py"
    found = repr(item.get("input"))
    return message if len(found) > 80 else f"{message} (found {found})"
