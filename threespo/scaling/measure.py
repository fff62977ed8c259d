"""Measure what ``threespo.scaling.rates`` says of a device: sampler and learner on random weights of a study's shapes."""

import random
import time
from collections.abc import Callable

import torch

from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy.random_weights import random_policy
from threespo.policy.sampler import TorchSampler
from threespo.protocol import LossSettings, Row, SampleRequest, UpdateRequest
from threespo.scaling.rates import Rates
from threespo.scaling.shapes import ModelShape

SECONDS = 1.0
"""How long each part is repeated at least."""


def measure_rates(shape: ModelShape, device: str, prompt: int, response: int) -> Rates:
    """Return the rates of one shape on a device (``cpu`` or ``cuda``).

    Two sizes of each part tell what a token takes from what a step takes. On a CPU processor time counts, of one thread; on
    a GPU the time between synchronisations.

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

    policy = random_policy(
        dtype,
        device,
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )
    learner = DeepSpeedLearner(
        policy, None, OptimSettings(dtype=str(dtype).rpartition(".")[2], micro_batch_tokens=8192)
    )

    def tokens_of(length: int) -> list[int]:
        return [rng.randrange(1, shape.vocabulary) for _ in range(length)]

    def texts(count: int) -> list[str]:
        return [" ".join(map(str, tokens_of(prompt))) for _ in range(count)]

    def sample(prompts: int, count: int, new: int) -> float:
        sampler = TorchSampler(policy, new, 256, 16_384)

        def once() -> None:
            requests = (
                SampleRequest(text, count, ("measure", number))
                for number, text in enumerate(texts(prompts))
            )
            sampler.sample(tuple(requests), seed=0, temperature=1.0)

        return _seconds(clock, once)

    def learn(groups: int, count: int) -> float:
        def row(text: str) -> Row:
            drawn = tuple(tokens_of(response))
            return Row(text, drawn, (-6.0,) * response, (1.0,) * response, version=policy.version)

        def once() -> None:
            batch = tuple(row(text) for text in texts(groups) for _ in range(count))
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
    head_share = shape.forward_flops(0, 1, 0) / shape.forward_flops(1, 0, prompt)
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
