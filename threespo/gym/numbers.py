"""Whole numbers of any library, as Python's: those of numpy and torch are no ``int``, and JSON does not take them."""

import operator
from typing import Any

from threespo.errors import InputError

_TRUTH = ("bool", "torch.bool")
"""What arrays and tensors call the type of truth values; a tensor's would pass for 0 or 1."""


def to_whole_number(value: Any) -> int | None:
    """Return a whole number as Python's; ``None`` for anything else, truth values and fractions among them."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in _TRUTH:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def to_python(value: Any) -> Any:
    """Return a single value of numpy or torch, or a whole number of any library, as Python's; anything else as it is."""
    if hasattr(value, "item") and getattr(value, "shape", None) in ((), None):
        value = value.item()
    found = to_whole_number(value)
    return value if found is None else found


def check_seed(value: Any, where: str = "seed") -> int:
    """Return a seed as Python's number.

    Args:
        value: what was given.
        where: what messages call it.

    Raises:
        InputError: if it is no whole number of 0 or more.
    """
    found = to_whole_number(value)
    if found is None or found < 0:
        raise InputError(f"{where}: expected a whole number of 0 or more, found {value!r}")
    return found
