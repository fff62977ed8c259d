"""Errors with a message for the user, and helpers that format such messages.

The command line prints an ``InputError`` as one line and exits with code 2, without a traceback.
"""

from collections.abc import Iterable

MAX_LISTED_NAMES = 20
"""Names that a message lists at most: a study may have a thousand runs."""


class InputError(Exception):
    """Bad input from the user: the message names the file or field, what was found, and the remedy."""


def refuse_ignored(where: str, **given: object) -> None:
    """Refuse options that the requested action would ignore.

    Args:
        where: the requested action, for the message.
        given: the options by name; those that were not given are ``None`` or false.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            option = name.replace("_", "-")
            raise InputError(
                f"{where}: --{option} does not go with it and would be ignored; leave one of them out"
            )


def format_names(names: Iterable[str]) -> str:
    """Return the first names, joined by commas, and the number of the others."""
    all_names = list(names)
    if not all_names:
        return "none"
    text = ", ".join(all_names[:MAX_LISTED_NAMES])
    more = len(all_names) - MAX_LISTED_NAMES
    return f"{text} … and {more} more" if more > 0 else text


def format_bytes(count: float) -> str:
    """Return a number of bytes in the largest unit of which there is at least one, such as ``1.2 GB``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


class StoppedError(Exception):
    """Work that was ended from outside: one of its processes was killed."""
