"""The paper's claims (``config/paper/claims.yaml``), each with the rules that decide it.

Rules name rows of the paper's tables (``grpo``, ``3spo``, ``3spo_wo_novelty``), not a study's methods: a study says with
``paper_row`` which of its methods stands for which row. Few kinds of rules serve nearly all claims. What one or two claims
need is a function in ``checks.py``.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.results.analysis.tally import IDENTITY
from threespo.results.claims.checks import CHECKS, RunCheck
from threespo.results.claims.evidence import BOTH_MODELS, Model
from threespo.results.claims.formulas import FORMULAS
from threespo.settings import ListOf, Name, Settings

MainColumn = Literal["alfworld_in", "alfworld_out", "webshop_score", "webshop_success"]
Rows = Annotated[ListOf[Name], Field(min_length=1)]
Points = Annotated[dict[MainColumn, float | None], Field(min_length=1)]
"""Columns of the main table -> the difference that the paper's text prints for it, in points, if it prints one."""


class Above(Settings):
    """Every row of ``upper`` is above every row of ``lower``, by more than so many points."""

    kind: Literal["above"]
    upper: Rows
    lower: Rows
    columns: Points
    models: ListOf[Model] = BOTH_MODELS
    by: float = 0.0
    """Points by which ``upper`` must be above. Below zero: ``upper`` may be as many points below ``lower``."""


class States(Settings):
    """In ALFWorld ``upper`` has met so many times as many different states as each of ``lower``.

    Runs are compared at equal generations, at the end of the shorter one. Where a run gave up before nine tenths of its
    budget nothing is decided.
    """

    kind: Literal["states"]
    upper: Name
    lower: Rows
    at_least: float = 1.0
    per_rollout: bool = False
    """The paper's own ratio is that of states per rollout. At equal generations the two are one."""
    printed: float | None = None


class Sooner(Settings):
    """``upper`` reaches a success on unseen games in fewer generations than each of ``lower``, in ALFWorld."""

    kind: Literal["sooner"]
    upper: Name
    lower: Rows
    success: Annotated[float, Field(ge=0, le=1)]
    at_least: float = 1.0
    """``lower`` needs at least so many times the generations."""
    printed: float | None = None


class CheckRule(Settings):
    """Decided by a function of its own (``checks.py``), which has the rows and the bounds."""

    kind: Literal["check"]
    name: Name
    columns: Points | None = None
    """Of checks on the main table: its columns, with what the paper's text prints for them."""
    printed: float | None = None
    """Of checks on the course of training: the number that the paper's text prints."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        check = CHECKS.get(self.name)
        if check is None:
            raise ValueError(f"no check {self.name!r}; there are {', '.join(CHECKS)}")
        # At reading, so that a wrong entry does not fail only after days of training.
        needs_columns = not isinstance(check, RunCheck) and check.by_column
        if needs_columns != (self.columns is not None):
            raise ValueError(f"check {self.name!r} {'needs' if needs_columns else 'has no'} columns")
        return self


class Formula(Settings):
    """Decided by the equations alone."""

    kind: Literal["formula"]
    name: Name
    identity: bool = False
    """The claim restates eq. 1 to 3 or a definition: that it holds is algebra, and no experiment could have denied it."""

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.name not in FORMULAS:
            raise ValueError(f"no formula {self.name!r}; there are {', '.join(FORMULAS)}")
        return self


class Known(Settings):
    """Decided by the paper's own text and numbers, or by the definition of the environments and the method."""

    kind: Literal["known"]
    verdict: Literal["holds", "fails", "unsupported", "vacuous"]
    because: str
    identity: bool = False
    """As of a formula."""

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        if self.identity and self.verdict != "holds":
            raise ValueError(f"an identity holds, and its verdict is {self.verdict}")
        return self


class Open(Settings):
    """Nothing here decides it."""

    kind: Literal["open"]
    because: str


Rule = Annotated[
    Above | States | Sooner | CheckRule | Formula | Known | Open, Field(discriminator="kind")
]


def _as_list(rules: Any) -> Any:
    # Most claims have one rule, which ``claims.yaml`` then has without a list around it.
    return rules if isinstance(rules, list | tuple) else [rules]


class Claim(Settings):
    """One claim with its rules."""

    id: Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9-]*$", max_length=64)]
    claim: str
    where: str
    rule: Annotated[ListOf[Rule], BeforeValidator(_as_list), Field(min_length=1)]


def rows_of_rule(rule: Rule) -> tuple[str, ...]:
    """Return the rows of the paper that a rule names, the one that it is about first."""
    match rule:
        case CheckRule():
            return CHECKS[rule.name].rows
        case Above():
            return tuple(dict.fromkeys([*rule.upper, *rule.lower]))
        case States() | Sooner():
            return tuple(dict.fromkeys([rule.upper, *rule.lower]))
        case _:
            return ()


def rule_label(rule: Rule) -> str:
    """Return what the table ``claims`` calls a rule."""
    if isinstance(rule, CheckRule):
        return CHECKS[rule.name].label
    if isinstance(rule, Formula | Known) and rule.identity:
        return IDENTITY
    return rule.kind


def read_claims(folder: Path = PAPER_FOLDER) -> tuple[Claim, ...]:
    """Read ``claims.yaml``.

    Raises:
        InputError: if it is missing, a claim has no rule or a wrong one, or two have the same id.
    """
    path = folder / "claims.yaml"
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(entries)
    except ValidationError as error:
        # ``loc`` begins with the entry's number; the message names the claim by its id instead.
        first = error.errors()[0]
        name = "?"
        if first["loc"]:
            name = entries[first["loc"][0]].get("id", first["loc"][0])
        field = ".".join(map(str, first["loc"][1:]))
        if field:
            field += ": "
        raise InputError(
            f"{path}: claim {name}: {field}{first['msg']}; correct the entry: it needs "
            "an id, the claim in words, where the paper makes it, and a rule of threespo/results/claims/rules.py"
        ) from error
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not readable as a list of claims ({error!r}); restore it from the repository"
        ) from error

    ids = [claim.id for claim in claims]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: claim {repeated[0]} is there twice; give one of them another id")
    return claims
