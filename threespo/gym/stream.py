"""The order of tasks: a function of seed and position; no task repeats before all have been played."""

import functools

from threespo.errors import InputError
from threespo.rng import generator

ORDERS = ("shuffled", "listed")


def pick_task(seed: int, number: int, count: int, order: str) -> int:
    """Return the index of the task at a position of a stream.

    Args:
        seed: seed of the stream.
        number: position, from 0.
        count: number of tasks.
        order: ``shuffled``: another order in each pass, drawn from the seed; ``listed``: the panel's, whatever the seed.
    """
    # A sweep is one pass over all tasks.
    sweep, index = divmod(number, count)
    if order == "listed":
        return index
    return _shuffle_tasks(seed, sweep, count)[index]


def check_order(order: str) -> None:
    """Raise ``InputError`` if the order is unknown."""
    if order not in ORDERS:
        raise InputError(f"order: expected one of {', '.join(ORDERS)}, found {order!r}")


# Cached, since every reset asks for one index of a whole permutation.
@functools.lru_cache(maxsize=64)
def _shuffle_tasks(seed: int, sweep: int, count: int) -> list[int]:
    indices = list(range(count))
    generator("gym order", seed, sweep).shuffle(indices)
    return indices
