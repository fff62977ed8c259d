"""When two texts of an attribute, option or title count as the same."""

import functools
import re
from collections.abc import Iterable

from rapidfuzz import fuzz

# The original's threshold for token sets, which it has to exceed.
MIN_SIMILARITY = 85
# The names that the original looks for in an option, in its order: the first that occurs replaces the option's text.
_COLOURS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim
eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender
lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude
olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone
stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
COLOURS = tuple(_COLOURS.split())

# The original's library drops these before it compares, so "café" is "caf".
_LATIN_1 = dict.fromkeys(range(128, 256))
_NO_WORD = re.compile(r"\W")


@functools.lru_cache(maxsize=1 << 16)
def normalise_text(text: str) -> str:
    """Return ``text`` as it is compared: no character from U+0080 to U+00FF, blanks for all but word characters."""
    return _NO_WORD.sub(" ", text.translate(_LATIN_1)).lower().strip()


def is_similar(one: str, other: str) -> bool:
    """Return whether the token sets of two texts are more than 85 % alike; a subset counts as equal."""
    # Rounded as the original's library (thefuzz) does; rapidfuzz gives the exact share.
    first = normalise_text(one)
    second = normalise_text(other)
    return bool(first and second) and round(fuzz.token_set_ratio(first, second)) > MIN_SIMILARITY


def same_words(one: str, other: str) -> bool:
    """Return whether two texts consist of the same words."""
    return set(normalise_text(one).split()) == set(normalise_text(other).split())


def main_colour(option: str) -> str:
    """Return the first colour name that occurs in ``option``, or all of it."""
    return next((colour for colour in COLOURS if colour in option), option)


def count_matched_options(chosen: Iterable[str], wanted: Iterable[tuple[str, str] | str]) -> int:
    """Return how many wanted options the original finds among the chosen values.

    It compares the *pair* of a synthetic goal's option as a text with the chosen value. So its name counts as a word,
    the colour is taken only where name or value is nothing but a colour name, and "large" satisfies ("size",
    "xx-large").

    Args:
        chosen: values.
        wanted: the goal's options: (name, value) pairs, or values alone.
    """
    found = [main_colour(value) for value in chosen]
    count = 0
    for option in wanted:
        if isinstance(option, str):
            text = main_colour(option)
        else:
            # ``colour in option`` asks a pair, so it is true of an element only; on a text it would ask for a part.
            text = next((colour for colour in COLOURS if colour in option), str(option))
        count += any(is_similar(value, text) for value in found)
    return count


def count_named_options(
    chosen: Iterable[tuple[str, str]], wanted: Iterable[tuple[str, str] | str]
) -> int:
    """Return how many wanted options were chosen: the same words, and for a named option under its name.

    Args:
        chosen: (name, value) pairs.
        wanted: the goal's options: (name, value) pairs, or values alone.
    """
    pairs = tuple(chosen)
    return sum(
        any(
            same_words(value, option)
            if isinstance(option, str)
            else name == option[0] and same_words(value, option[1])
            for name, value in pairs
        )
        for option in wanted
    )
