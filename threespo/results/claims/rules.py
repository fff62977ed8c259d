"""The paper's claims, as rules that numbers decide (``config/paper/claims.yaml``).

A claim has one rule. Rules name rows of the paper's tables (``grpo``, ``3spo``, ``3spo_wo_novelty``), not a study's methods:
a study says with ``paper_row`` which of its methods stands for which row.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from threespo.errors import InputError
from threespo.results.claims.formulas import FORMULAS
from threespo.results.paper import FOLDER
from threespo.study.settings import Name, Settings

Model = Literal["qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct"]
Column = Literal["alfworld_in", "alfworld_out", "webshop_score", "webshop_success"]
Rows = Annotated[tuple[Name, ...], Field(min_length=1)]
Points = Annotated[dict[Column, float | None], Field(min_length=1)]
"""Columns of the main table -> the difference that the paper's text prints for it, in points, if it prints one."""

BOTH: tuple[Model, ...] = ("qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct")


class Above(Settings):
    """Every row of ``upper`` is above every row of ``lower``, or, with ``within``, no further from it than that."""

    kind: Literal["above"]
    upper: Rows
    lower: Rows
    columns: Points
    models: tuple[Model, ...] = BOTH
    within: float | None = None
    """Points."""


class Order(Settings):
    """The rows stand in this order, the best first."""

    kind: Literal["order"]
    rows: Rows
    columns: Points
    models: tuple[Model, ...] = BOTH


class Gain(Settings):
    """``upper`` is further above ``lower`` with one model than with the other."""

    kind: Literal["gain"]
    upper: Name
    lower: Name
    columns: Points
    more_with: Model
    than_with: Model


class Cost(Settings):
    """``upper`` has so many times what each of ``lower`` has, at the end of training in ALFWorld."""

    kind: Literal["cost"]
    quantity: Literal["states", "states_per_generation"]
    upper: Name
    lower: Rows
    at_least: float
    printed: float | None = None


class Sooner(Settings):
    """``upper`` comes to a training success in so many times fewer generations than ``lower``, in ALFWorld."""

    kind: Literal["sooner"]
    upper: Name
    lower: Name
    success: float
    at_least: float
    printed: float | None = None


class Early(Settings):
    """In the first part of training in ALFWorld a column of ``metrics`` (a share) is so many points higher, or no further
    apart."""

    kind: Literal["early"]
    column: str
    upper: Name
    lower: Rows
    until: float
    """Share of training."""
    at_least: float | None = None
    within: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.within is None):
            raise ValueError("expected either at_least or within")
        return self


class Course(Settings):
    """How a column of ``metrics`` moves between two shares of training in ALFWorld."""

    kind: Literal["course"]
    row: Name
    column: str
    start: float
    stop: float
    change_within: float | None = None
    spearman_below: float | None = None
    """Rank correlation with time."""
    end: tuple[float, float] | None = None
    """Bounds of the value at ``stop``."""


class ByType(Settings):
    """At these shares of training the mean score rises from one ALFWorld task type to the next."""

    kind: Literal["by_type"]
    row: Name
    types: Rows
    at: tuple[float, ...]


class Formula(Settings):
    """Decided by the equations alone."""

    kind: Literal["formula"]
    name: Name

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name not in FORMULAS:
            raise ValueError(f"no formula {self.name!r}; there are {', '.join(FORMULAS)}")
        return self


class Open(Settings):
    """Nothing here decides it."""

    kind: Literal["open"]
    because: str


class Claim(Settings):
    """One claim with its rule."""

    id: Name
    claim: str
    where: str
    rule: Annotated[
        Above | Order | Gain | Cost | Sooner | Early | Course | ByType | Formula | Open, Field(discriminator="kind")
    ]


def read_claims(folder: Path = FOLDER) -> tuple[Claim, ...]:
    """Read ``claims.yaml``.

    Raises:
        InputError: if it is missing, a claim has no rule or a wrong one, or two have the same id.
    """
    path = folder / "claims.yaml"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        name = found[first["loc"][0]].get("id", first["loc"][0]) if first["loc"] else "?"
        raise InputError(f"{path}: claim {name}: {place + ': ' if place else ''}{first['msg']}; mend the entry") from error
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not readable as a list of claims ({error!r}); restore it from the repository") from error
    ids = [claim.id for claim in claims]
    if doubled := sorted({name for name in ids if ids.count(name) > 1}):
        raise InputError(f"{path}: claim {doubled[0]} stands there twice; give one of them another id")
    return claims
