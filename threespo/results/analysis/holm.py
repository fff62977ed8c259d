"""Holm's correction of a family of tests."""

import math
from collections.abc import Sequence


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p of a family of tests, in the same order; NaN stays NaN and is no member of the family."""
    # Holm, not Bonferroni: the same guarantee for tests that depend on each other, as all comparisons with
    # one reference do, and never less power.
    adjusted = [math.nan] * len(p_values)
    members = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))

    # Adjusted values may not fall from one rank to the next, so the largest so far is carried on.
    largest = 0.0
    for rank, (p, index) in enumerate(members):
        largest = max(largest, min(1.0, (len(members) - rank) * p))
        adjusted[index] = largest
    return adjusted
