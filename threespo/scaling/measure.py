"""Measure the rates of a device (``threespo.scaling.rates``): sampler and learner on random weights of a study's shapes."""

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

MIN_SECONDS = 1.0
"""How long each part is repeated at least."""


def measure_rates(shape: ModelShape, device: str, prompt: int, response: int) -> Rates:
    """Return the rates of one shape on a device (``cpu`` or ``cuda``).

    Each part is measured at two sizes, from which the seconds of a token and of a step follow. On a CPU it is the
    processor time of one thread, on a GPU the time between synchronisations.

    Args:
        shape: of the model; float32 on a CPU, bfloat16 on a GPU.
        device: ``cpu`` or ``cuda``.
        prompt: tokens of a prompt.
        response: tokens of a response.
    """
    # Rates are those of one core: studies run one process a core.
    torch.set_num_threads(1)
    stopwatch = _Stopwatch(shape, device, prompt, response)

    # One token after the prompt is reading alone; more rows of the same prompts draw without reading.
    read = stopwatch.time_sampling(32, 1, 1) / (32 * prompt)
    two_rows = stopwatch.time_sampling(2, 1, 1 + response)
    many_rows = stopwatch.time_sampling(16, 8, 1 + response)
    # Both take equally many steps, so without reading their difference is the drawing of more rows.
    # Noise can make a small part negative.
    more_prompts = 16 - 2
    more_rows = 16 * 8 - 2
    drawing_seconds = many_rows - two_rows - more_prompts * prompt * read
    draw = max(0.0, drawing_seconds / (more_rows * response))
    seconds_of_two = (two_rows - 2 * prompt * read) / response
    step = max(0.0, seconds_of_two - 2 * draw)

    small_update = stopwatch.time_update(1, 2)
    large_update = stopwatch.time_update(24, 8)
    head_share = shape.forward_flops(0, 1, 0) / shape.forward_flops(1, 0, prompt)

    def weighted_tokens(prompts: int, rows: int) -> float:
        # A pack of n rows has prompt + n (response - 1) tokens, and logits for n x response.
        packed = prompt * prompts + (response - 1) * rows
        return packed + head_share * (response * rows)

    small_tokens = weighted_tokens(1, 2)
    large_tokens = weighted_tokens(24, 192)
    # A step of forward and backward takes three forward passes.
    token = max(0.0, (large_update - small_update) / (large_tokens - small_tokens)) / 3
    return Rates(
        origin="measured on this machine",
        read=read,
        step=step,
        draw=draw,
        update=max(0.0, small_update - 3 * token * small_tokens),
        learn=token,
        head=token * head_share,
    )


class _Stopwatch:
    """Times sampler and learner on random texts with random weights."""

    def __init__(self, shape: ModelShape, device: str, prompt: int, response: int) -> None:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self._rng = random.Random(0)
        self._clock = time.process_time if device == "cpu" else _device_clock
        self._vocabulary = shape.vocabulary
        self._prompt = prompt
        self._response = response
        self._policy = random_policy(
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
        optim = OptimSettings(dtype=str(dtype).removeprefix("torch."), micro_batch_tokens=8192)
        self._learner = DeepSpeedLearner(self._policy, None, optim)

    def time_sampling(self, prompts: int, count: int, new_tokens: int) -> float:
        """Return the seconds of drawing ``count`` responses of ``new_tokens`` tokens to each of several prompts."""
        sampler = TorchSampler(self._policy, new_tokens, 256, 16_384)

        def sample() -> None:
            # New prompts each time: a sampler remembers what it has read.
            requests = [
                SampleRequest(text, count, ("measure", number))
                for number, text in enumerate(self._random_prompts(prompts))
            ]
            sampler.sample(tuple(requests), seed=0, temperature=1.0)

        return _fastest_seconds(self._clock, sample)

    def time_update(self, prompts: int, count: int) -> float:
        """Return the seconds of a step on ``count`` responses to each of several prompts."""

        def update() -> None:
            texts = self._random_prompts(prompts)
            batch = tuple(self._random_row(text) for text in texts for _ in range(count))
            self._learner.update(UpdateRequest((batch,), LossSettings(kl_coef=0.0)))

        return _fastest_seconds(self._clock, update)

    def _random_tokens(self, length: int) -> list[int]:
        return [self._rng.randrange(1, self._vocabulary) for _ in range(length)]

    def _random_prompts(self, count: int) -> list[str]:
        return [" ".join(map(str, self._random_tokens(self._prompt))) for _ in range(count)]

    def _random_row(self, text: str) -> Row:
        length = self._response
        drawn = tuple(self._random_tokens(length))
        return Row(text, drawn, (-6.0,) * length, (1.0,) * length, version=self._policy.version)


def _device_clock() -> float:
    # Kernels run asynchronously: without this only their start would be timed.
    torch.cuda.synchronize()
    return time.perf_counter()


def _fastest_seconds(clock: Callable[[], float], work: Callable[[], object]) -> float:
    """Return the seconds of one call, the shortest of several: what else the machine does only adds to them."""
    # Once without the clock: caches fill and kernels are compiled.
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < MIN_SECONDS:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
