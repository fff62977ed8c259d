"""Which goals are trained on and which are tested on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from threespo import rng
from threespo.envs.optional_splits import CONFIRMATION, DEVELOPMENT
from threespo.envs.webshop.catalogue import Catalogue
from threespo.envs.webshop.goals import (
    ShopGoal,
    make_original_goals,
    make_repaired_goals,
    original_order,
)

TEST_GOALS = 500
"""The paper's test set: the first 500 goals of the order."""
CALIBRATION_GOALS = 500
_LARGEST_SHARE = 5
"""Test and calibration take at most a fifth each of what is there."""

TRAINING_WORKER = 0
VALIDATION_WORKER = 1000
"""Seeds of the reference's first worker for training and of its first for validation (verl-agent: seed, and seed + 1000)."""
TRAINING_WORKERS = 16
"""verl-agent has one for each task of a batch, with the seeds 0 to 15, and each draws from an order of its own."""
ORIGINAL_CALIBRATION = 1000
"""Positions 500 to 1499, which the first release of WebShop keeps for development."""


class Splits(NamedTuple):
    """Goals by use; ``calibration`` is held out of training, except in the reference's order."""

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
    goals = make_repaired_goals(catalogue, seed, human)
    # The id breaks ties of the hash, so the order is total whatever order the goals came in.
    goals.sort(key=lambda goal: (rng.derive("webshop goal order", goal.task_id), goal.task_id))
    return _cut(goals)


def optional_split_goals(splits: Splits) -> dict[str, tuple[ShopGoal, ...]]:
    """Return the goals that optional splits are cut from: second halves of the held-out goals.

    Args:
        splits: what ``split_goals`` returned.
    """
    second = {DEVELOPMENT: splits.test, CONFIRMATION: splits.calibration}
    return {panel: goals[len(goals) // 2 :] for panel, goals in second.items()}


def original_splits(catalogue: Catalogue, human: bool) -> Splits:
    """Return the splits that the reference runs with: positions 0 to 499 are tested on, all others are trained on.

    They are positions in two orders: training and validation have workers with seeds of their own, each of which shuffles
    the goals and draws price bounds. So most test goals are training goals as well (``count_training_overlap``). Calibration
    goals are the next positions of the validation worker, and the reference trains on those, too.

    Args:
        catalogue: the products.
        human: goals of people, not synthetic ones.
    """
    training_order, validation_order = (
        [replace(goal, worker=seed) for goal in make_original_goals(catalogue, seed, human)[0]]
        for seed in (TRAINING_WORKER, VALIDATION_WORKER)
    )
    # The same positions are cut from both orders; nothing in the reference compares the goals themselves.
    test, rest = _ends(len(validation_order), ORIGINAL_CALIBRATION)
    return Splits(
        train=tuple(training_order[test:]),
        calibration=tuple(validation_order[test:rest]),
        test=tuple(validation_order[:test]),
    )


def count_training_overlap(splits: Splits) -> dict[str, int]:
    """Return how many goals of the reference's ``splits`` are training goals: the same wish for the same product.

    Args:
        splits: what ``original_splits`` returned, or the first goals of each split.

    Returns:
        The numbers of calibration and of test goals in ``splits.train``.
    """
    trained = {goal.task_id for goal in splits.train}
    return {
        name: sum(goal.task_id in trained for goal in getattr(splits, name))
        for name in ("calibration", "test")
    }


def trained_on_by_any(count: int) -> int:
    """Return how many of the reference's test goals are training goals of any of its training workers.

    Args:
        count: how many goals there are.
    """
    test = _ends(count, ORIGINAL_CALIBRATION)[0]
    # A worker's order depends on the number of goals and its seed alone, so numbers can be compared without the goals.
    tested = set(original_order(count, VALIDATION_WORKER)[:test])
    trained = {
        number for seed in range(TRAINING_WORKERS) for number in original_order(count, seed)[test:]
    }
    return len(tested & trained)


def _cut(goals: Sequence[ShopGoal]) -> Splits:
    test, rest = _ends(len(goals), CALIBRATION_GOALS)
    return Splits(tuple(goals[rest:]), tuple(goals[test:rest]), tuple(goals[:test]))


def _ends(count: int, calibration: int) -> tuple[int, int]:
    """Return where the test goals end in an order of ``count`` goals, and where those for calibration do."""
    test = min(TEST_GOALS, count // _LARGEST_SHARE)
    return test, test + min(calibration, count // _LARGEST_SHARE)
