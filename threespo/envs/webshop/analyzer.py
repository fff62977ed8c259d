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

# What is a pictograph, and so a token, in Unicode 12.1, from U+2600 to U+27BF and from U+1F000 on.
_PICTOGRAPHS = (
    "\u2388\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744"
    "\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f"
    "\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5"
    "\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa"
    "\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff"
    "\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff"
    "\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001fffd"
)
_LETTER_PICTURES = "\u2139\u24c2\U0001f170\U0001f171\U0001f17e\U0001f17f"
# Signs that later Unicode versions count among the letters.
_NO_LETTERS = "\u00b8\u02e5-\u02eb\u055a\u055f\u058a\ua708-\ua716"


def _word_pattern() -> "regex.Pattern[str]":
    """Return the pattern of one token; alternatives are ordered so that the first that matches is the longest."""
    joined = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*"
    # Without the two presentation selectors, which emoji sequences place themselves.
    plain = r"[[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]--[\uFE0E\uFE0F]]*"

    def with_marks(characters: str, marks: str = joined) -> str:
        return f"(?:{characters}{marks})"

    letter = with_marks(rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--[{_NO_LETTERS}]]")
    hebrew = with_marks(r"\p{WB=Hebrew_Letter}")
    number = with_marks(r"[\p{WB=Numeric}\uFF10-\uFF19]")
    kana = with_marks(r"\p{WB=Katakana}")
    inner_letter = with_marks(
        rf"[[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]--[{_NO_LETTERS}]]"
    )
    inner_number = with_marks(r"[\uFE10\uFE14\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]")
    under = with_marks(r"\p{WB=ExtendNumLet}")
    quoted = f"{hebrew}(?:{with_marks(chr(39))}|{with_marks(chr(34))}{hebrew})"
    letters = f"(?!{quoted}){letter}(?:(?:{under}*(?!{quoted})|{inner_letter}){letter})*"
    part = f"(?:{kana}(?:{under}*{kana})*|(?:{number}(?:(?:{under}*|{inner_number}){number})*|{quoted}|{letters})+)"
    word = f"{under}*{part}(?:{under}+{part})*{under}*"

    modifier = with_marks(r"\p{Emoji_Modifier}", plain)
    # Digits, flag letters and skin tones are emoji, but none by themselves.
    other = r"[[\p{Extended_Pictographic}\p{Emoji}]--[\u2600-\u27BF0-9#*\p{RI}\p{Emoji_Modifier}]]"
    picture = with_marks(f"(?:[{_PICTOGRAPHS}]|{other})", plain)
    base = with_marks(r"\p{Emoji_Modifier_Base}", plain)
    single = f"(?:\u200d*(?:{base}{modifier}|{picture})\ufe0f?|{modifier})"
    tags = "[\U000e0020-\U000e007e]+\U000e007f"
    flag = with_marks(r"\p{RI}")
    # A digit's keycap is a mark like others: as a word it is as long, or longer.
    keycap = f"{with_marks('[#*]', plain)}\ufe0f?{with_marks(chr(0x20E3), plain)}"
    # A joiner that was taken for a mark of the picture before it joins all the same.
    emoji = f"{single}(?:{tags}|(?:(?:\u200d|(?<=\u200d)){single})*)|{keycap}|{flag}{flag}"
    # A picture that is a letter as well is the start of a word, unless it is joined to another picture.
    lettered = f"(?=[{_LETTER_PICTURES}])(?!{single}(?:\u200d|(?<=\u200d)){single}){word}"
    asian = with_marks(r"\p{LB=SA}") + "+"
    ideograph = with_marks(r"[\p{Script=Han}\p{Script=Hiragana}]")
    return regex.compile(f"{lettered}|{emoji}|{word}|{asian}|{ideograph}", regex.V1)


# The same rules for ASCII alone, several times faster.
_ASCII = re.compile(
    r"_*(?:[0-9]+(?:(?:_*|[,;.'])[0-9]+)*|[A-Za-z]+(?:(?:_*|[:.'])[A-Za-z]+)*)+"
    r"(?:_+(?:[0-9]+(?:(?:_*|[,;.'])[0-9]+)*|[A-Za-z]+(?:(?:_*|[:.'])[A-Za-z]+)*)+)*_*"
)


@functools.cache
def _unicode_pattern() -> "regex.Pattern[str]":
    return _word_pattern()


def tokens(text: str) -> list[str]:
    """Return the words of ``text``, unchanged; tokens of over 255 characters are cut into pieces of 255."""
    found = _ASCII.findall(text) if text.isascii() else _unicode_pattern().findall(text)
    if all(len(token) <= MAX_TOKEN_LENGTH for token in found):
        return found
    return [
        token[start : start + MAX_TOKEN_LENGTH]
        for token in found
        for start in range(0, len(token), MAX_TOKEN_LENGTH)
    ]


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
    if len(lowered) == 1:
        return lowered
    # Python lowers only the dotted capital I to two characters; Java makes an "i" of it.
    return "i" if character == "\u0130" else character


def terms(text: str) -> list[str]:
    """Return the index terms of ``text`` in order."""
    # Stop words have an empty term.
    return [index_term for index_term in map(term, tokens(text)) if index_term]
