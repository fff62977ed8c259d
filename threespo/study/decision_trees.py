"""A study's section ``laboratory``, typed: methods on decision trees."""

from typing import Any

from pydantic import Field, model_validator

from threespo.settings import Name, Settings


class TreeFamily(Settings):
    """A family of decision trees (threespo/envs/tree.py) and how long a method may learn on them."""

    depth: int = Field(default=4, ge=1, le=8)
    """Actions to a leaf."""
    branching: int = Field(default=3, ge=2)
    """Actions in every node."""
    solutions: int = Field(default=4, ge=1)
    """Leaves that are won."""
    dead_ends: float = Field(default=0.0, ge=0, le=1)
    """Share of inner nodes, off the way to the first solution, that lead nowhere."""
    aliased: float = Field(default=0.0, ge=0, le=1)
    """Share of inner nodes that look like all others of their kind, in all trees."""
    trees: int = Field(default=8, ge=1)
    """Trees of a seed."""
    trees_per_epoch: int = Field(default=4, ge=1)
    generations: int = Field(default=4000, ge=1)
    """Budget of a seed in single-step generations."""
    group_size: int = Field(default=8, ge=2)
    minibatch: int = Field(default=64, ge=1)
    """Rows per step of the methods that play whole episodes."""
    critic_learning_rate: float = Field(default=8.0, gt=0)
    """Step size of PPO's table of values. The loss is a mean: one row of a batch counts by one over the number of rows."""

    @model_validator(mode="after")
    def _trees_suffice(self) -> "TreeFamily":
        if self.trees_per_epoch > self.trees:
            raise ValueError(f"trees_per_epoch: expected at most trees ({self.trees}), found {self.trees_per_epoch}")
        if self.branching**self.depth < self.solutions:
            raise ValueError(f"solutions: a tree has {self.branching**self.depth} leaves, found {self.solutions}")
        return self


class DecisionTreesEntry(Settings):
    """One row: a method with its options."""

    method: Name
    options: dict[str, Any] = Field(default={})


class DecisionTreesSettings(Settings):
    """Methods on decision trees with a tabular policy: many seeds, for questions of mechanism."""

    families: dict[Name, TreeFamily] = Field(min_length=1)
    methods: dict[Name, DecisionTreesEntry] = Field(min_length=1)
    learning_rates: tuple[float, ...] = (10.0, 30.0, 100.0, 300.0)
    """Each row takes the best of these, chosen on ``tuning_seeds`` seeds that are not reported."""
    seeds: int = Field(default=100, ge=2)
    tuning_seeds: int = Field(default=10, ge=1)
