"""Splits that a study prepares only if it asks for them: for developing methods and for confirming results."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeVar

from threespo.settings import Settings

OPTIONAL_SPLITS = DEVELOPMENT, CONFIRMATION = "development", "confirmation"
"""On the first variants are chosen, on the second nothing ever is. Both are purposes as well (``spec.purpose``)."""

# The original draws price bounds anew in each process, so they cannot identify an instruction.
_PRICE = re.compile(r",? and price lower than [0-9.]+ dollars$")

ContentT = TypeVar("ContentT", bound=str | tuple[str, ...])


def requested_splits(splits: Sequence[str], counts: Settings) -> tuple[str, ...]:
    """Return the splits that a study prepares: optional ones only if it gives a number of tasks for them.

    Args:
        splits: all of the environment's.
        counts: the section's numbers of tasks, a field for each split.
    """
    return tuple(
        split for split in splits if split not in OPTIONAL_SPLITS or getattr(counts, split) is not None
    )


def find_overlaps(contents: Mapping[str, Set[ContentT]]) -> Iterator[tuple[str, str, list[ContentT]]]:
    """Yield each optional split that shares tasks with another split, that other split, and the shared contents.

    Args:
        contents: what the tasks of each prepared split are about, regardless of their ids.
    """
    for split, other in itertools.product(OPTIONAL_SPLITS, contents):
        if split not in contents or split == other:
            continue
        # By content, not by id: data from people may ask for the same thing under two ids.
        shared = contents[split] & contents[other]
        if shared:
            yield split, other, sorted(shared)


def strip_price_clause(instruction: str) -> str:
    """Return a shopping instruction without its price clause, which the original draws anew in each process."""
    return _PRICE.sub("", instruction.strip()).strip().rstrip(".")
