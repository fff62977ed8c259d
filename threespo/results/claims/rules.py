"""The kinds of rules that decide the paper's claims.

Rules name rows of the paper's tables (``grpo``, ``3spo``, ``3spo_wo_novelty``), not a study's methods: a study says with
``paper_row`` which of its methods stands for which row.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from threespo.results.claims.formulas import FORMULAS
from threespo.settings import ListOf, Name, Settings

Model = Literal["qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct"]
Column = Literal["alfworld_in", "alfworld_out", "webshop_score", "webshop_success"]
StateColumn = Literal["detail_state_score_visits", "detail_state_high_visits"]
TaskType = Literal["pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place"]
Rows = Annotated[ListOf[Name], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = Annotated[ListOf[Share], Field(min_length=1)]
Points = Annotated[dict[Column, float | None], Field(min_length=1)]
"""Columns of the main table -> the difference that the paper's text prints for it, in points, if it prints one."""

BOTH: tuple[Model, ...] = ("qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct")


class Above(Settings):
    """Every row of ``upper`` is above every row of ``lower``, by more than so many points."""

    kind: Literal["above"]
    upper: Rows
    lower: Rows
    columns: Points
    models: ListOf[Model] = BOTH
    by: float = 0.0
    """Points by which ``upper`` must be above. Below zero: ``upper`` may be as many points below ``lower``."""


class Alike(Settings):
    """Two rows are no further apart than so many points, by two one-sided tests."""

    kind: Literal["alike"]
    upper: Name
    lower: Name
    columns: Points
    models: ListOf[Model] = BOTH
    margin: float


class Order(Settings):
    """The rows stand in this order, the best first."""

    kind: Literal["order"]
    rows: Rows
    columns: Points
    models: ListOf[Model] = BOTH


class Gain(Settings):
    """``upper`` is further above ``lower`` with one model than with the other."""

    kind: Literal["gain"]
    upper: Name
    lower: Name
    columns: Points
    more_with: Model
    than_with: Model


class Level(Settings):
    """A row has the success that ``columns`` print, within so many points. Only the model itself decides it."""

    kind: Literal["level"]
    row: Name
    columns: Points
    model: Model
    within: float


class TypeGap(Settings):
    """``upper`` is further above ``lower`` in one ALFWorld task type than in another."""

    kind: Literal["type_gap"]
    upper: Rows
    lower: Rows
    wider: TaskType
    narrower: TaskType


class Longer(Settings):
    """Evaluated episodes of each row have more steps with one model than with the other."""

    kind: Literal["longer"]
    rows: Rows
    more_with: Model
    than_with: Model


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


class Resource(Settings):
    """In ALFWorld ``upper`` spends at most so many times what each of ``lower`` spends, at equal generations."""

    kind: Literal["resource"]
    column: Literal["optimizer_steps"]
    upper: Name
    lower: Rows
    at_most: float


class Rollouts(Settings):
    """In ALFWorld ``upper`` takes so many times the generations of ``lower`` for a task, where no cap cuts either short."""

    kind: Literal["rollouts"]
    upper: Name
    lower: Name
    at_least: float
    printed: float | None = None


class Sooner(Settings):
    """``upper`` reaches a success on unseen games in fewer generations than each of ``lower``, in ALFWorld."""

    kind: Literal["sooner"]
    upper: Name
    lower: Rows
    success: Share
    at_least: float = 1.0
    """``lower`` needs at least so many times the generations."""
    printed: float | None = None


class Ahead(Settings):
    """At shares of the generations ``upper`` is above each of ``lower`` on unseen games, in ALFWorld."""

    kind: Literal["ahead"]
    upper: Name
    lower: Rows
    at: Shares
    by: float = 0.0
    """In points."""


class Area(Settings):
    """Over the same generations the mean success of ``upper`` on unseen games is above that of each of ``lower``."""

    kind: Literal["area"]
    upper: Name
    lower: Rows
    with_higher: StateColumn | None = None
    """Instead: of each pair the method with more of this column has the higher mean success."""


class Steady(Settings):
    """In the last half of training the success of ``upper`` on unseen games varies less than that of ``lower``."""

    kind: Literal["steady"]
    upper: Name
    lower: Name


class Throughout(Settings):
    """In every fifth of the generations a column of ``metrics`` is higher in ``upper`` than in each of ``lower``."""

    kind: Literal["throughout"]
    column: StateColumn
    upper: Name
    lower: Rows
    by: float = 0.0
    """In points; the column is a share, a point is a hundredth of it."""
    within: float | None = None
    """Instead of higher: over the whole course all are no further apart than so many points."""


class Course(Settings):
    """How a column of ``metrics`` moves between two shares of training in ALFWorld; every bound that is given must hold."""

    kind: Literal["course"]
    row: Name
    column: StateColumn
    start: Share
    stop: Share
    change_within: float | None = None
    """Greatest difference between two of its values."""
    at_least: float | None = None
    """Bound on its least value."""
    spearman_below: float | None = None
    """Bound on its rank correlation with the generations: close to -1 it falls steadily."""
    printed: float | None = None


class ByType(Settings):
    """At these shares of the epochs the mean score rises from one ALFWorld task type to the next."""

    kind: Literal["by_type"]
    row: Name
    types: ListOf[TaskType]
    at: Shares


class Priority(Settings):
    """In ALFWorld more samples are drawn in a state of those task types that fail more often."""

    kind: Literal["priority"]
    row: Name


class Loops(Settings):
    """In recorded trees of ALFWorld more steps of ``upper`` than of ``lower`` lead back to what a path has shown before."""

    kind: Literal["loops"]
    upper: Name
    lower: Name


class LoopsBySize(Settings):
    """In recorded trees of ALFWorld more steps lead back with one model than with the other."""

    kind: Literal["loops_by_size"]
    row: Name
    more_with: Model
    than_with: Model


class Fewer(Settings):
    """In recorded trees of ALFWorld a state's tenth expansion has fewer different next states than its first."""

    kind: Literal["fewer"]
    row: Name


class Probe(Settings):
    """What a study's probe finds in ALFWorld, where states are played on from with frozen weights."""

    kind: Literal["probe"]
    row: Name
    measure: Literal["gated", "bias"]
    """``gated``: the success from states whose gate is closed is below ``bound``; ``bias``: counted rates of well-known
    states are within ``bound`` of the true ones, by two one-sided tests."""
    bound: float
    """In points."""


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
    verdict: Literal["holds", "fails", "unsupported", "vacuous"]
    because: str


class Open(Settings):
    """Nothing here decides it."""

    kind: Literal["open"]
    because: str


OfPanel = Alike | Order | Level
OfMetrics = States | Resource | Rollouts | Throughout | Course | ByType | Priority
OfCurves = Sooner | Ahead | Area | Steady
OfSearches = Loops | Fewer | Probe
OfSizes = TypeGap | Longer | LoopsBySize
OfRuns = OfMetrics | OfCurves | OfSearches
Rule = Annotated[
    Above | Gain | OfPanel | OfRuns | OfSizes | Formula | Known | Open, Field(discriminator="kind")
]


def rows_of_rule(rule: Rule) -> tuple[str, ...]:
    """Return the rows of the paper that a rule names, the one that it is about first."""
    named = [getattr(rule, name, ()) for name in ("row", "rows", "upper", "lower")]
    return tuple(
        dict.fromkeys(row for one in named for row in ((one,) if isinstance(one, str) else one))
    )
