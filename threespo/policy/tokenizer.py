"""The tiny policies' tokenizer: one token per name, per number, and per fixed phrase between them.

Game text is names and numbers ("cabinet 3") set into few fixed phrases ("'\\n 'go to", ". The", every sentence of the
prompt template). Taking each phrase as one token makes a prompt of 1,500 characters about 120 tokens long, which is what
makes training on one CPU core possible. Whatever was not in the text it was trained on is spelled in bytes, so every
string can be encoded and decoded without loss.
"""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

PROMPT, RESPONSE, END = "<|prompt|>", "<|response|>", "<|end|>"
"""Markers of the chat template; ``END`` is the end-of-sequence token."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|prompt|>' + message['content'] }}"
    "{% else %}{{ '<|response|>' + message['content'] + '<|end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|response|>' }}{% endif %}"
)

_HIGHEST_NUMBER = 60


def vocabulary(texts: Iterable[str], names: Iterable[str], min_count: int = 8) -> list[str]:
    """Return the names, numbers and fixed phrases of ``texts``, sorted.

    Args:
        texts: prompts and responses of training games.
        names: the nouns of objects and receptacles.
        min_count: a phrase is a token of its own from this many occurrences on.
    """
    nouns = set(names)
    entity = re.compile(r" (?:" + "|".join(sorted(nouns, key=lambda noun: (-len(noun), noun))) + r")\b| \d+\b")
    phrases = Counter(phrase for text in texts for phrase in entity.split(text) if phrase)
    frequent = {phrase for phrase, count in phrases.items() if count >= min_count}
    numbers = {f" {number}" for number in range(_HIGHEST_NUMBER + 1)}
    return sorted(frequent | {f" {noun}" for noun in nouns} | numbers)


def build_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the given tokens above a byte alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in (PROMPT, RESPONSE, END)])
    # Added tokens are matched leftmost-longest before the byte model sees the rest.
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
