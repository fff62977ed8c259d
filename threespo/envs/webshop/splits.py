"""Which goals are trained on and which are tested on."""

from collections.abc import Sequence
from typing import NamedTuple

from threespo import rng
from threespo.envs.webshop.catalogue import Catalogue
from threespo.envs.webshop.goals import ShopGoal, original_goals, repaired_goals

TEST_GOALS = 500
"""The paper's test set: the first 500 goals of the order."""
CALIBRATION_GOALS = 500
_LARGEST_SHARE = 5
"""Test and calibration take at most a fifth each of what is there."""


class Splits(NamedTuple):
    """Goals by use; ``calibration`` is held out of training."""

    train: tuple[ShopGoal, ...]
    calibration: tuple[ShopGoal, ...]
    test: tuple[ShopGoal, ...]


def split_goals(catalogue: Catalogue, human: bool, seed: int = 0) -> Splits:
    """Return disjoint splits of the repaired goals, in the one order that all runs of all studies share.

    A goal's place depends on its own id, so no worker, seed or process has another order.

    Args:
        catalogue: the products.
        human: goals of people, not synthetic ones.
        seed: draws price bounds.
    """
    goals = repaired_goals(catalogue, seed, human)
    goals.sort(key=lambda goal: (rng.derive("webshop goal order", goal.task_id), goal.task_id))
    return _cut(goals)


def original_splits(catalogue: Catalogue, human: bool, seed: int) -> Splits:
    """Return the splits as one worker of the reference sees them, calibration goals cut off its training goals.

    Disjoint for one seed only: the reference seeds its training and validation workers differently, so that most test
    goals of one are training goals of the other.

    Args:
        catalogue: the products.
        human: goals of people, not synthetic ones.
        seed: of the worker.
    """
    return _cut(original_goals(catalogue, seed, human)[0])


def _cut(goals: Sequence[ShopGoal]) -> Splits:
    test = min(TEST_GOALS, len(goals) // _LARGEST_SHARE)
    rest = test + min(CALIBRATION_GOALS, len(goals) // _LARGEST_SHARE)
    return Splits(tuple(goals[rest:]), tuple(goals[test:rest]), tuple(goals[:test]))
