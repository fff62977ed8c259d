"""Conversion of numbers of numpy, torch and others to Python's: theirs are not ``int``, and JSON refuses them."""

import operator
from typing import Any

from threespo.errors import InputError

_BOOLEAN_DTYPES = ("bool", "torch.bool")
"""Names of the Boolean dtype in arrays and tensors; a tensor of it would pass for 0 or 1."""


def to_whole_number(value: Any) -> int | None:
    """Return a whole number as an ``int``; None for anything else, Booleans and fractions included."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in _BOOLEAN_DTYPES:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def to_python(value: Any) -> Any:
    """Return a scalar of numpy or torch, or a whole number of any library, as Python's; other values unchanged."""
    if hasattr(value, "item") and getattr(value, "shape", None) in ((), None):
        value = value.item()
    number = to_whole_number(value)
    return value if number is None else number


def check_whole_number(value: Any, where: str, minimum: int) -> int:
    """Return a whole number as an ``int``.

    Args:
        value: the given value.
        where: its name in the message.
        minimum: the least allowed number.

    Raises:
        InputError: if it is not a whole number of at least ``minimum``.
    """
    number = to_whole_number(value)
    if number is None or number < minimum:
        raise InputError(f"{where}: expected a whole number of {minimum} or more, found {value!r}")
    return number


def check_seed(value: Any, where: str = "seed") -> int:
    """Return a seed as an ``int``; raises ``InputError`` if it is not a whole number of 0 or more."""
    return check_whole_number(value, where, 0)
