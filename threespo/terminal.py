"""What a terminal may be shown: texts of games, products, models and files may hold sequences that control it."""

import unicodedata

_CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories of characters that act instead of being seen: escape sequences, changes of direction, ..."""


def printable(text: str) -> str:
    r"""Return ``text`` with every controlling character but line breaks and tabs spelled out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" else _spelled(one) for one in text)


def _spelled(character: str) -> str:
    hidden = unicodedata.category(character) in _CONTROLS
    return character.encode("unicode_escape").decode("ascii") if hidden else character
