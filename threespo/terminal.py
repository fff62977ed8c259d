"""Safe output on a terminal: texts of games, products, models and files may contain sequences that control it."""

import functools
import sys
import unicodedata
from collections.abc import Iterable, Sequence

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories of characters that act instead of being seen: escape sequences, changes of direction, ..."""


def escape_controls(text: str) -> str:
    r"""Return ``text`` with every controlling character but line breaks and tabs spelled out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" else _escape_character(character) for character in text
    )


def join_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of some names, and how many others there are."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output, with controlling characters spelled out."""
    print(escape_controls("\n".join(lines)))


@functools.cache
def warn_once(text: str) -> None:
    """Print a warning on standard error, once per process."""
    print(escape_controls(f"warning: {text}"), file=sys.stderr)


def _escape_character(character: str) -> str:
    # Not every unprintable character: unassigned ones and private symbols of fonts do no harm.
    if unicodedata.category(character) not in _CONTROLS:
        return character
    return character.encode("unicode_escape").decode("ascii")
