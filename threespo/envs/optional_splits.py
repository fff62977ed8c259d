"""Panels: splits that only those studies prepare that ask for them, for developing methods and for confirming results."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeVar

from threespo.settings import Settings

OPTIONAL_SPLITS = DEVELOPMENT, CONFIRMATION = "development", "confirmation"
"""On the first variants are chosen, on the second nothing ever is. Both are purposes as well (``spec.purpose``)."""

_PRICE = re.compile(r",? and price lower than [0-9.]+ dollars$")

ContentT = TypeVar("ContentT", bound=str | tuple[str, ...])


def requested_splits(splits: Sequence[str], counts: Settings) -> tuple[str, ...]:
    """Return those of an environment's splits that a study prepares: panels only where it says how many tasks.

    Args:
        splits: all of the environment's.
        counts: the section's numbers of tasks, a field for each split.
    """
    return tuple(
        split for split in splits if split not in OPTIONAL_SPLITS or getattr(counts, split) is not None
    )


def find_overlaps(contents: Mapping[str, Set[ContentT]]) -> Iterator[tuple[str, str, list[ContentT]]]:
    """Yield panel, other split, and what they share, wherever a panel has a task that another split has as well.

    Args:
        contents: what the tasks of each prepared split are about, whatever they are called.
    """
    for panel, other in itertools.product(OPTIONAL_SPLITS, contents):
        if panel in contents and panel != other and (shared := contents[panel] & contents[other]):
            yield panel, other, sorted(shared)


def strip_price_clause(instruction: str) -> str:
    """Return a shopping instruction without its price clause, which the original draws anew in each process."""
    return _PRICE.sub("", instruction.strip()).strip().rstrip(".")
