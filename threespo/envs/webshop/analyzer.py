"""From text to index terms, as Lucene's English analyzer makes them.

Word breaks of UAX #29, possessives stripped, lower case, 33 stop words, Porter's stemmer with its author's later rules.
What is a token where Unicode versions differ is that of the Lucene which the reference lists were made with.
"""

import functools
import re
from collections.abc import Callable

import regex

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will
with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
MAX_TOKEN_LENGTH = 255
_POSSESSIVE_MARKS = "'\u2019\uff07"

# Pictographs between U+2600 and U+27BF that are tokens; newer Unicode versions have others.
_PICTOGRAPHS = (
    "\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747"
    "\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf"
)


def _word_pattern() -> "regex.Pattern[str]":
    """Return the pattern of one token; alternatives are ordered so that the first that matches is the longest."""
    joined = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*"
    # Without the two presentation selectors, which emoji sequences place themselves.
    plain = r"[[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]--[\uFE0E\uFE0F]]*"

    def with_marks(characters: str, marks: str = joined) -> str:
        return f"(?:{characters}{marks})"

    letter = with_marks(r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]")
    hebrew = with_marks(r"\p{WB=Hebrew_Letter}")
    number = with_marks(r"[\p{WB=Numeric}\uFF10-\uFF19]")
    kana = with_marks(r"\p{WB=Katakana}")
    inner_letter = with_marks(r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]")
    inner_number = with_marks(r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]")
    under = with_marks(r"\p{WB=ExtendNumLet}")
    quoted = f"{hebrew}(?:{with_marks(chr(39))}|{with_marks(chr(34))}{hebrew})"
    part = (
        f"(?:{kana}(?:{under}*{kana})*"
        f"|(?:{number}(?:(?:{under}*|{inner_number}){number})*|{letter}(?:(?:{under}*|{inner_letter}){letter})*|{quoted})+)"
    )
    word = f"{under}*{part}(?:{under}+{part})*{under}*"

    modifier = with_marks(r"\p{Emoji_Modifier}", plain)
    # Digits, flag letters and skin tones are emoji, but none by themselves.
    other = r"[[\p{Extended_Pictographic}\p{Emoji}]--[\u2600-\u27BF0-9#*\p{RI}\p{Emoji_Modifier}]]"
    picture = with_marks(f"(?:[{_PICTOGRAPHS}]|{other})", plain)
    base = with_marks(r"\p{Emoji_Modifier_Base}", plain)
    single = f"(?:(?:\u200d*{base})?{modifier}|\u200d*{picture}\ufe0f?)"
    tags = "[\U000e0020-\U000e007e]+\U000e007f"
    flag = with_marks(r"\p{RI}")
    keycap = f"{with_marks('[0-9#*]', plain)}\ufe0f?{with_marks(chr(0x20E3), plain)}"
    # A joiner that was taken for a mark of the picture before it joins all the same.
    emoji = f"{single}(?:{tags}|(?:(?:\u200d|(?<=\u200d)){single})*)|{keycap}|{flag}{flag}"
    asian = with_marks(r"\p{LB=SA}") + "+"
    ideograph = with_marks(r"[\p{Script=Han}\p{Script=Hiragana}]")
    return regex.compile(f"{emoji}|{word}|{asian}|{ideograph}", regex.V1)


# The same rules for ASCII alone, several times faster.
_ASCII = re.compile(
    r"_*(?:[0-9]+(?:(?:_*|[,;.'])[0-9]+)*|[A-Za-z]+(?:(?:_*|[:.'])[A-Za-z]+)*)+"
    r"(?:_+(?:[0-9]+(?:(?:_*|[,;.'])[0-9]+)*|[A-Za-z]+(?:(?:_*|[:.'])[A-Za-z]+)*)+)*_*"
)


@functools.cache
def _unicode_pattern() -> "regex.Pattern[str]":
    return _word_pattern()


def tokens(text: str) -> list[str]:
    """Return the words of ``text``, as they stand there; tokens of over 255 characters are cut into pieces of 255."""
    found = _ASCII.findall(text) if text.isascii() else _unicode_pattern().findall(text)
    if all(len(token) <= MAX_TOKEN_LENGTH for token in found):
        return found
    return [token[start : start + MAX_TOKEN_LENGTH] for token in found for start in range(0, len(token), MAX_TOKEN_LENGTH)]


@functools.cache
def _stemmer() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    stem: Callable[..., str] = PorterStemmer(mode="MARTIN_EXTENSIONS").stem
    return lambda word: stem(word, to_lowercase=False)


@functools.lru_cache(maxsize=1 << 18)
def term(token: str) -> str:
    """Return the index term of a token, empty for a stop word."""
    if len(token) >= 2 and token[-1] in "sS" and token[-2] in _POSSESSIVE_MARKS:
        token = token[:-2]
    word = token.lower() if token.isascii() else "".join(map(_lower, token))
    return "" if word in STOP_WORDS else _stemmer()(word)


def _lower(character: str) -> str:
    # Character by character, as in Java: no final sigma, and no letter becomes two.
    lowered = character.lower()
    return lowered if len(lowered) == 1 else "i" if character == "\u0130" else character


def terms(text: str) -> list[str]:
    """Return the index terms of ``text`` in order."""
    return [found for token in tokens(text) if (found := term(token))]
