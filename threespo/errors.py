"""The one exception that means "the input is wrong", as opposed to "the program is wrong".

The command line turns it into a single message and exit code 2, without a traceback.
"""

from collections.abc import Iterable

MAX_LISTED_NAMES = 20
"""Names that a message lists: a study may have a thousand runs."""


class InputError(Exception):
    """Bad input from the user: the message names the file or field, what was found, and the remedy."""


def refuse_ignored(where: str, **given: object) -> None:
    """Refuse options that do not matter to what was asked for: who gives one means something else.

    Args:
        where: what was asked for, for the message.
        given: the options by name; those that were not given are ``None`` or false.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            option = name.replace("_", "-")
            raise InputError(
                f"{where}: --{option} does not go with it and would be ignored; leave one of them out"
            )


def format_names(names: Iterable[str]) -> str:
    """Return names as a message shows them: the first twenty, and how many there are besides."""
    everything = list(names)
    more = len(everything) - MAX_LISTED_NAMES
    return (
        ", ".join(everything[:MAX_LISTED_NAMES]) + (f" … and {more} more" if more > 0 else "") or "none"
    )


def format_bytes(count: float) -> str:
    """Return a number of bytes as people say it: in the largest unit of which there is one."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


class StoppedError(Exception):
    """Work that ended from outside, through no fault of the input: a process of it was killed."""
