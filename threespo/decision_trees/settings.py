"""A family of decision trees, and the settings of the jobs that train on one."""

from typing import Any

from pydantic import Field, model_validator

from threespo.job_settings import JobSettings
from threespo.settings import Settings

MAX_LEAVES = 100_000
"""Every node has an entry in the tabular policy."""


class DecisionTreeFamily(Settings):
    """A family of decision trees (threespo/envs/tree.py) and how long a method may learn on them."""

    depth: int = Field(default=4, ge=1, le=8)
    """Actions to a leaf."""
    branching: int = Field(default=3, ge=2, le=100)
    """Actions in every node."""
    solutions: int = Field(default=4, ge=1, le=MAX_LEAVES)
    """Leaves that are won."""
    dead_ends: float = Field(default=0.0, ge=0, le=1)
    """Share of inner nodes, off the path to the first solution, that lead nowhere."""
    aliased: float = Field(default=0.0, ge=0, le=1)
    """Share of inner nodes that look like all others of their kind, in all trees."""
    trees: int = Field(default=8, ge=1, le=1000)
    """Trees of a seed."""
    trees_per_epoch: int = Field(default=4, ge=1, le=1000)
    generations: int = Field(default=4000, ge=1, le=10_000_000)
    """Budget of a seed in single-step generations."""
    group_size: int = Field(default=8, ge=2, le=1024)
    kl_coef: float = Field(default=0.0, ge=0, le=1_000_000)
    """Weight of the KL penalty to the uniform policy that tables start from; runs have 0.01, to their base policy."""
    minibatch: int = Field(default=64, ge=1, le=1_000_000)
    """Rows per step of the methods that play whole episodes."""
    critic_learning_rate: float = Field(default=8.0, gt=0, le=1_000_000)
    """Step size of PPO's table of values. The loss is a mean: one row of a batch counts by one over the number of rows."""

    @model_validator(mode="after")
    def _check_trees(self) -> "DecisionTreeFamily":
        if self.trees_per_epoch > self.trees:
            raise ValueError(
                f"trees_per_epoch: expected at most trees ({self.trees}), found {self.trees_per_epoch}"
            )
        leaves = self.branching**self.depth
        if leaves > MAX_LEAVES:
            raise ValueError(
                f"branching, depth: expected at most {MAX_LEAVES:,} leaves, found {leaves:,}; lower one"
            )
        if leaves < self.solutions:
            raise ValueError(f"solutions: a tree has {leaves} leaves, found {self.solutions}")
        return self


class DecisionTreeSettings(JobSettings):
    """A method on a family of decision trees."""

    family: str
    name: str
    """The row's name in the study."""
    trees: DecisionTreeFamily
    method: str
    options: dict[str, Any]
    learning_rates: tuple[float, ...]
    seeds: int
    tuning_seeds: int
