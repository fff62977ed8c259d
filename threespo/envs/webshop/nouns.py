"""Nouns of a title, for the part of the reward that compares titles.

The original asks a spaCy model, which no package registry carries. TextBlob's pattern tagger needs no download and is the
default; an installed spaCy model can take its place. The choice moves nothing but ``r_type`` of titles that differ.
"""

import functools
import re

from threespo.envs.webshop.reward import Nouns
from threespo.errors import InputError

_REMEMBERED = 1 << 16
_NOUN_TAGS = ("NN", "NNS", "NNP", "NNPS")
_OPENING = "([{<\"'“‘`*#【"
_CLOSING = ")]}>\"'“”’`*.,;:!?…%】"
# Within a word: dashes and signs before a letter, commas between letters, full stops between sentences.
_WITHIN = re.compile(
    r"(?<=[^\W_])(?:--|[-–—:<>=/])(?=[^\W\d_])|(?<=[^\W\d_]),(?=[^\W\d_])|(?:\.\.+|…)|(?<=[a-z])\.(?=[A-Z])|[°]"
)
# At the end of a word: the possessive, and a unit after a digit.
_SUFFIX = re.compile(
    r"(['’][sS]|(?<=\d)(?:[kcdm]?m|ha|yd|in|ft|[km]?g|lb|oz|mph|mb|MB|kb|KB|gb|GB|tb|TB|[TGMK])[²³]?)$"
)


def make_nouns(model: str | None = None) -> Nouns:
    """Return the function that finds nouns.

    Args:
        model: None for TextBlob's pattern tagger, or the name of an installed spaCy model.

    Raises:
        InputError: if spaCy or the model is not installed.
    """
    return pattern_nouns if model is None else _spacy_nouns(model)


@functools.lru_cache(maxsize=_REMEMBERED)
def pattern_nouns(title: str) -> tuple[str, ...]:
    """Return the nouns and proper nouns of ``title`` in lower case, as TextBlob's pattern tagger sees them."""
    return tuple(word.lower() for word, tag in _tag(tuple(split_words(title))) if tag in _NOUN_TAGS)


def split_words(text: str) -> list[str]:
    """Return words and punctuation marks apart."""
    words: list[str] = []
    for chunk in text.split():
        start = 0
        end = len(chunk)
        while start < end and chunk[start] in _OPENING:
            start += 1
        while end > start and chunk[end - 1] in _CLOSING:
            end -= 1
        words.extend(chunk[:start])

        inside = chunk[start:end]
        position = 0
        ending = _SUFFIX.search(inside)
        body = inside[: ending.start()] if ending else inside
        for sign in _WITHIN.finditer(body):
            words.extend(part for part in (body[position : sign.start()], sign.group()) if part)
            position = sign.end()
        words.extend(part for part in (body[position:], ending.group() if ending else "") if part)

        words.extend(chunk[end:])
    return words


def _tag(words: tuple[str, ...]) -> list[tuple[str, str]]:
    # Imported here, because it loads a lexicon, which only rewards need.
    from textblob.en.taggers import PatternTagger

    tagged: list[tuple[str, str]] = PatternTagger().tag(" ".join(words), tokenize=False)
    return tagged


def _spacy_nouns(model: str) -> Nouns:
    try:
        import spacy

        parse = spacy.load(model)
    except (ImportError, OSError) as error:
        raise InputError(
            f"noun tagger {model!r}: not installed ({type(error).__name__}); install spaCy with this model, or use no model"
        ) from error

    @functools.lru_cache(maxsize=_REMEMBERED)
    def nouns(title: str) -> tuple[str, ...]:
        # The original's parts of speech: ``token.pos_`` in its get_type_reward.
        return tuple(word.text.lower() for word in parse(title) if word.pos_ in ("NOUN", "PROPN"))

    return nouns
