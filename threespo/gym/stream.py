"""Which task comes next: a function of seed and number, each task once before any comes again."""

import functools

from threespo.errors import InputError
from threespo.rng import generator

ORDERS = ("shuffled", "listed")


def pick_task(seed: int, number: int, count: int, order: str) -> int:
    """Return the place of the task that comes at a point of a stream.

    Args:
        seed: of the stream.
        number: how many tasks have come before.
        count: how many tasks there are.
        order: ``shuffled``: another order in each pass, drawn from the seed; ``listed``: the panel's, whatever the seed.
    """
    sweep, place = divmod(number, count)
    return place if order == "listed" else _shuffle_tasks(seed, sweep, count)[place]


def check_order(order: str) -> None:
    """Raise ``InputError`` if there is no such order."""
    if order not in ORDERS:
        raise InputError(f"order: expected one of {', '.join(ORDERS)}, found {order!r}")


@functools.lru_cache(maxsize=64)
def _shuffle_tasks(seed: int, sweep: int, count: int) -> list[int]:
    places = list(range(count))
    generator("gym order", seed, sweep).shuffle(places)
    return places
