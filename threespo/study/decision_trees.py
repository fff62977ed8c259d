"""A study's section ``laboratory``, typed: methods on decision trees."""

from typing import Annotated, Any

from pydantic import Field

from threespo.decision_trees.settings import DecisionTreeFamily
from threespo.settings import DistinctListOf, Name, Settings

TableRate = Annotated[float, Field(gt=0, le=1_000_000)]
"""Step size of a tabular policy, whose gradients are means over all rows and so far smaller than a model's."""


class DecisionTreesEntry(Settings):
    """One row: a method with its options."""

    method: Name
    options: dict[str, Any] = Field(default={})


class DecisionTreesSettings(Settings):
    """Methods on decision trees with a tabular policy: many seeds, for questions of mechanism."""

    families: dict[Name, DecisionTreeFamily] = Field(min_length=1)
    methods: dict[Name, DecisionTreesEntry] = Field(min_length=1)
    learning_rates: Annotated[DistinctListOf[TableRate], Field(min_length=1, max_length=32)] = (
        10.0,
        30.0,
        100.0,
        300.0,
    )
    """Each row takes the best of these, chosen on ``tuning_seeds`` seeds that are not reported."""
    seeds: int = Field(default=100, ge=2, le=10_000)
    tuning_seeds: int = Field(default=10, ge=1, le=10_000)
