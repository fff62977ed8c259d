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
from threespo.settings import Listed, Name, Settings
from threespo.study.paths import PAPER

Model = Literal["qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct"]
Column = Literal["alfworld_in", "alfworld_out", "webshop_score", "webshop_success"]
StateColumn = Literal["detail_state_score_unique", "detail_state_high_unique"]
TaskType = Literal["pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place"]
Rows = Annotated[Listed[Name], Field(min_length=1)]
Points = Annotated[dict[Column, float | None], Field(min_length=1)]
"""Columns of the main table -> the difference that the paper's text prints for it, in points, if it prints one."""

BOTH: tuple[Model, ...] = ("qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct")


class Above(Settings):
    """Every row of ``upper`` is above every row of ``lower``, by more than so many points."""

    kind: Literal["above"]
    upper: Rows
    lower: Rows
    columns: Points
    models: Listed[Model] = BOTH
    by: float = 0.0
    """Points by which ``upper`` must be above. Below zero: ``upper`` may be as many points below ``lower``."""


class Order(Settings):
    """The rows stand in this order, the best first."""

    kind: Literal["order"]
    rows: Rows
    columns: Points
    models: Listed[Model] = BOTH


class Gain(Settings):
    """``upper`` is further above ``lower`` with one model than with the other."""

    kind: Literal["gain"]
    upper: Name
    lower: Name
    columns: Points
    more_with: Model
    than_with: Model


class Cost(Settings):
    """``upper`` has met more different states per generation than each of ``lower`` at the end of training in ALFWorld.

    All methods of a study have one budget of generations, so this is the ratio of the states themselves.
    """

    kind: Literal["cost"]
    upper: Name
    lower: Rows


class Sooner(Settings):
    """``upper`` reaches a training success in fewer generations than ``lower``, in ALFWorld.

    Both have to be searches, or neither, since the success of a search's own paths is not that of plain episodes.
    """

    kind: Literal["sooner"]
    upper: Name
    lower: Name
    success: float
    """In 0 to 1."""


class Early(Settings):
    """In the first part of training in ALFWorld a column of ``metrics`` is higher in ``upper`` than in each of ``lower``."""

    kind: Literal["early"]
    column: StateColumn
    upper: Name
    lower: Rows
    until: float
    """End of that part, as a share of the run's generations."""
    within: float | None = None
    """Instead of higher: no more than so many points away. The column is a share, a point is a hundredth of it."""


class Course(Settings):
    """How a column of ``metrics`` moves between two shares of training in ALFWorld; every bound that is given must hold."""

    kind: Literal["course"]
    row: Name
    column: StateColumn
    start: float
    stop: float
    change_within: float | None = None
    """Greatest difference between two of its values."""
    at_least: float | None = None
    """Bound on its least value."""
    spearman_below: float | None = None
    """Bound on its rank correlation with the generations: close to -1 it falls steadily."""
    printed: float | None = None
    """Where the course ends in the paper."""


class ByType(Settings):
    """At these shares of the epochs the mean score rises from one ALFWorld task type to the next."""

    kind: Literal["by_type"]
    row: Name
    types: Listed[TaskType]
    at: Listed[float]


class Formula(Settings):
    """Decided by the equations alone."""

    kind: Literal["formula"]
    name: Name

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name not in FORMULAS:
            raise ValueError(f"no formula {self.name!r}; there are {', '.join(FORMULAS)}")
        return self


class Known(Settings):
    """Decided by the paper's own text and numbers, or by the definition of the environments and the method."""

    kind: Literal["known"]
    holds: bool
    because: str


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
        Above | Order | Gain | Cost | Sooner | Early | Course | ByType | Formula | Known | Open, Field(discriminator="kind")
    ]


def read_claims(folder: Path = PAPER) -> tuple[Claim, ...]:
    """Read ``claims.yaml``.

    Raises:
        InputError: if it is missing, a claim has no rule or a wrong one, or two have the same id.
    """
    path = folder / "claims.yaml"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(found)
    except ValidationError as error:
        # ``loc`` begins with the entry's number, in the place of which the message has the claim's id.
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
