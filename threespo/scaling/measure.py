"""Measure what ``threespo.scaling.rates`` says of a device: sampler and learner on random weights of a study's shapes."""

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy.model import Policy, bundle
from threespo.policy.sampler import TorchSampler
from threespo.protocol import LossSettings, Row, SampleRequest, UpdateRequest
from threespo.scaling.rates import Rates
from threespo.scaling.shapes import Shape

SECONDS = 1.0
"""How long each part is repeated at least."""


class _Numbers:
    """Takes "12 7 300" for the tokens 12, 7 and 300, so that lengths are exact."""

    chat_template = None
    eos_token_id = 0

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return self._vocabulary

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def batch_decode(self, responses: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return ["" for _ in responses]


def random_policy(shape: Shape, dtype: torch.dtype, device: str) -> Policy:
    """Return a policy of a shape with random weights, whose responses end by their limit alone."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=32_768,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        model: Any = Qwen2ForCausalLM(config).to(dtype)
    policy = bundle(model, _Numbers(shape.vocabulary), "random weights")
    policy.eos_ids = frozenset({-1})
    return policy


def measure(shape: Shape, device: str, prompt: int, response: int) -> Rates:
    """Return the rates of one shape on a device (``cpu`` or ``cuda``).

    Two sizes of each part tell what a token takes from what a step takes. On a CPU processor time counts, of one thread; on a
    GPU the time between synchronisations.

    Args:
        shape: of the model; float32 on a CPU, bfloat16 on a GPU.
        device: where.
        prompt: tokens of a prompt.
        response: tokens of a response.
    """
    torch.set_num_threads(1)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    rng = random.Random(0)
    clock = time.process_time if device == "cpu" else _device_clock

    policy = random_policy(shape, dtype, device)
    learner = DeepSpeedLearner(policy, None, OptimSettings(dtype=str(dtype).rpartition(".")[2], micro_batch_tokens=8192))

    def text(length: int) -> str:
        return " ".join(str(rng.randrange(1, shape.vocabulary)) for _ in range(length))

    def sample(prompts: int, count: int, new: int) -> float:
        sampler = TorchSampler(policy, new, 256, 16_384)
        return _seconds(clock, lambda: sampler.sample(_requests([text(prompt) for _ in range(prompts)], count), seed=0, temperature=1.0))

    def learn(groups: int, count: int) -> float:
        def once() -> None:
            batch = tuple(
                Row(words, tuple(rng.randrange(1, shape.vocabulary) for _ in range(response)), (-6.0,) * response, (1.0,) * response, 1.0, policy.version)
                for words in [text(prompt) for _ in range(groups)]
                for _ in range(count)
            )
            learner.update(UpdateRequest((batch,), LossSettings(kl_coef=0.0)))

        return _seconds(clock, once)

    # One token after the prompt is reading alone; more rows of the same prompts draw without reading.
    read = sample(32, 1, 1) / (32 * prompt)
    few, many = sample(2, 1, 1 + response), sample(16, 8, 1 + response)
    steps, rows = response, 128
    draw = max(0.0, (many - few - 14 * prompt * read) / ((rows - 2) * steps))
    step = max(0.0, (few - 2 * prompt * read) / steps - 2 * draw)

    # A pack of n rows has prompt + n (response - 1) tokens; a step of both passes takes three forward passes.
    small, large = learn(1, 2), learn(24, 8)
    head_share = shape.forward(0, 1, 0) / shape.forward(1, 0, prompt)
    tokens = [prompt * groups + (response - 1) * rows for groups, rows in ((1, 2), (24, 192))]
    scored = [response * rows for rows in (2, 192)]
    weighted = [count + head_share * logits for count, logits in zip(tokens, scored, strict=True)]
    token = max(0.0, (large - small) / (weighted[1] - weighted[0])) / 3
    return Rates(
        origin="measured on this machine",
        read=read,
        step=step,
        draw=draw,
        update=max(0.0, small - 3 * token * weighted[0]),
        learn=token,
        head=token * head_share,
    )


def _requests(prompts: list[str], count: int) -> tuple[SampleRequest, ...]:
    return tuple(SampleRequest(prompt, count, ("measure", number)) for number, prompt in enumerate(prompts))


def _device_clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _seconds(clock: Callable[[], float], work: Callable[[], object]) -> float:
    """Return the seconds of one call, the shortest of several: what else the machine does only adds to them."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
