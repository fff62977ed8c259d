"""What a terminal may be shown: texts of games, products, models and files may hold sequences that control it."""

import functools
import sys
import unicodedata
from collections.abc import Sequence

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories of characters that act instead of being seen: escape sequences, changes of direction, ..."""


def escape_controls(text: str) -> str:
    r"""Return ``text`` with every controlling character but line breaks and tabs spelled out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" else _spelled(one) for one in text)


def join_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of some names, and how many others there are."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


@functools.cache
def warn_once(text: str) -> None:
    """Say a warning on standard error, once per process."""
    print(escape_controls(f"warning: {text}"), file=sys.stderr)


def _spelled(character: str) -> str:
    hidden = unicodedata.category(character) in _CONTROLS
    return character.encode("unicode_escape").decode("ascii") if hidden else character
