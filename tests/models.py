"""Small random language models, with grouped-query attention and RoPE, and a small tokenizer."""

import itertools
import random

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from threespo.policy.model import Policy, make_policy
from threespo.protocol import Row, SampleRequest

WORDS = [f"w{number}" for number in range(60)]


def tokenizer() -> PreTrainedTokenizerFast:
    special = ["<end>", "<user>", "<reply>"]
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS])}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")
    wrapped.chat_template = (
        "{% for message in messages %}<user> {{ message['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}<reply>{% endif %}"
    )
    return wrapped


def policy(
    seed: int = 0,
    *,
    spread: float = 0.25,
    llama: bool = False,
    dtype: torch.dtype = torch.float32,
    tied: bool = True,
) -> Policy:
    """Return a policy whose random weights are large enough for peaked, context-dependent distributions."""
    words = tokenizer()
    torch.manual_seed(seed)
    kind, config = (LlamaForCausalLM, LlamaConfig) if llama else (Qwen2ForCausalLM, Qwen2Config)
    model = kind(
        config(
            vocab_size=len(words),
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
            initializer_range=spread,
            attn_implementation="sdpa",
        )
    )
    for parameter in model.parameters():
        if parameter.ndim == 1:
            # Biases and norm weights start at 0 and 1, which would hide a forgotten one.
            torch.nn.init.normal_(parameter, float(parameter.detach().mean()), 0.1)
    return make_policy(model.to(dtype), words, "random")


def prompt(rng: random.Random, shortest: int = 3, longest: int = 40) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(shortest, longest)))


def requests(seed: int, count: int, most: int = 9) -> tuple[SampleRequest, ...]:
    rng = random.Random(seed)
    return tuple(
        SampleRequest(prompt(rng), rng.randint(1, most), ("test", number)) for number in range(count)
    )


def rows(seed: int, groups: int, size: int, longest: int = 12, version: int = 0) -> tuple[Row, ...]:
    """Return random rows, ``size`` for each of ``groups`` prompts, with weights and mixed advantages."""
    rng = random.Random(seed)
    result = []
    for text, _ in itertools.product([prompt(rng) for _ in range(groups)], range(size)):
        length = rng.randint(1, longest)
        result.append(
            Row(
                prompt=text,
                tokens=tuple(rng.randrange(3, 63) for _ in range(length)),
                old_logprobs=tuple(rng.uniform(-6, -2) for _ in range(length)),
                advantages=tuple(rng.gauss(0, 1) for _ in range(length)),
                weight=rng.uniform(0.5, 2),
                version=version,
            )
        )
    return tuple(result)


def naive_logprobs(source: Policy, text: str, tokens: tuple[int, ...]) -> torch.Tensor:
    """Return log-probabilities of a response from one plain full forward without cache, packing or padding."""
    ids = source.encode_prompt(text)
    logits = source.model(torch.tensor([[*ids, *tokens]]), use_cache=False).logits[0]
    predicted = logits[len(ids) - 1 : -1].log_softmax(dim=-1)
    return predicted.gather(1, torch.tensor(tokens)[:, None])[:, 0]
