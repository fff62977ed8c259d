"""The tiny policies' tokenizer: one token per name, per number, and per fixed phrase between them.

Game text is names and numbers ("cabinet 3") set into few fixed phrases ("'\\n 'go to", ". The", every
sentence of the prompt template). Taking each phrase as one token makes a prompt of 1,500 characters
about 120 tokens long, which is what makes training on one CPU core possible. Whatever was not in the
text it was trained on is spelled in bytes, so every string can be encoded and decoded without loss.
"""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, pre_tokenizers
from transformers import Qwen2Tokenizer

PROMPT = "<|prompt|>"
RESPONSE = "<|response|>"
END = "<|end|>"
"""Markers of the chat template; ``END`` is the end-of-sequence token."""

UNKNOWN = "<|endoftext|>"
"""Never needed, since bytes spell everything, but the class insists on one."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|prompt|>' + message['content'] }}"
    "{% else %}{{ '<|response|>' + message['content'] + '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|response|>' }}{% endif %}"
)

MAX_NUMBER = 60


def vocabulary(texts: Iterable[str], names: Iterable[str], min_count: int = 8) -> list[str]:
    """Return the names, numbers and fixed phrases of ``texts``, sorted.

    Args:
        texts: prompts and responses of training games.
        names: nouns that are tokens of their own, at least one (in ALFWorld those of objects and receptacles).
        min_count: a phrase is a token of its own from this many occurrences on.
    """
    nouns = set(names)
    # Longer names first, since the first alternative that matches is taken.
    longest_first = sorted(nouns, key=lambda noun: (-len(noun), noun))
    entity = re.compile(r" (?:" + "|".join(longest_first) + r")\b| \d+\b")
    phrases: Counter[str] = Counter()
    for text in texts:
        phrases.update(filter(None, entity.split(text)))

    frequent = {phrase for phrase, count in phrases.items() if count >= min_count}
    # Of receptacles and objects; larger numbers than any room has are spelled in bytes.
    numbers = {f" {number}" for number in range(MAX_NUMBER + 1)}
    return sorted(frequent | {f" {noun}" for noun in nouns} | numbers)


def shop_vocabulary(
    texts: Iterable[str], names: Iterable[str], min_count: int = 8, seen_only: bool = False
) -> list[str]:
    """Return the names, numbers and fixed phrases of a shop's lower-case ``texts``, sorted.

    Args:
        texts: prompts and responses of training goals.
        names: words of titles and goals, values of options, numbers of products; each with and without a blank before it.
        min_count: a phrase is a token of its own from this many occurrences on.
        seen_only: names are tokens only in the forms that occur in ``texts``; bytes spell the rest.
    """
    known = {*names, *map(str, range(100))}
    longest_first = sorted(known, key=lambda name: (-len(name), name))
    entity = re.compile(r"( ?(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w))")

    phrases: Counter[str] = Counter()
    seen: set[str] = set()
    for text in texts:
        # Phrases and the names between them alternate, since the pattern is one group.
        parts = entity.split(text)
        phrases.update(filter(None, parts[::2]))
        seen.update(parts[1::2])

    frequent = {phrase for phrase, count in phrases.items() if count >= min_count}
    forms = seen if seen_only else known | {f" {name}" for name in known}
    return sorted(frequent | forms)


def build_tokenizer(words: list[str], lowercase: bool = False) -> Qwen2Tokenizer:
    """Return a tokenizer with the given tokens above a byte alphabet.

    It is of the model family's own class, which loaders choose for a Qwen2 folder. That class keeps no
    normalizer of ours, so the chat template converts to lower case.

    Args:
        words: texts that become one token each.
        lowercase: the chat template turns prompts into lower case.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = [UNKNOWN, PROMPT, RESPONSE, END]
    tokenizer = Qwen2Tokenizer(
        vocab={symbol: index for index, symbol in enumerate(alphabet)},
        merges=[],
        unk_token=UNKNOWN,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[PROMPT, RESPONSE],
    )

    # Added tokens are matched leftmost-longest before the byte model sees the rest.
    tokenizer.add_tokens(
        [AddedToken(mark, special=True, normalized=False) for mark in marks], special_tokens=True
    )
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])

    template = CHAT_TEMPLATE
    if lowercase:
        content = "message['content']"
        template = template.replace(content, f"{content} | lower")
    tokenizer.chat_template = template
    return tokenizer
