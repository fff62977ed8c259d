"""The torch sampler: each distinct prompt is read once, all its responses share what was read.

The draw of token t of response i depends on (run seed, request key, i, t) only, never on how requests were batched.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from threespo.errors import InputError
from threespo.policy import decode, grid, stock
from threespo.policy.draw import Responses
from threespo.policy.model import Policy
from threespo.protocol import Sample, SampleRequest
from threespo.rng import derive, uniforms

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Row:
    """Response ``index`` of request ``request``."""

    request: int
    index: int


class TorchSampler:
    """Samples from a policy's current weights, on the device that they are on (``protocol.LocalSampler``)."""

    def __init__(
        self, policy: Policy, max_new_tokens: int, max_batch_rows: int, max_prompt_tokens: int
    ) -> None:
        """Prepare sampling.

        Args:
            policy: model and tokenizer; weights are read anew at every call of ``sample``.
            max_new_tokens: responses are cut at this length.
            max_batch_rows: responses that grow side by side (bounds memory; no influence on what is drawn).
            max_prompt_tokens: longer prompts are refused.

        Raises:
            InputError: if a limit is not positive or both together exceed the model's context.
        """
        if max_batch_rows < 1:
            raise InputError(f"max_batch_rows: found {max_batch_rows}, expected at least 1.")

        self.policy = policy
        self.max_new_tokens = max_new_tokens
        self.max_batch_rows = max_batch_rows
        self.max_prompt_tokens = limit_prompt_tokens(policy, max_new_tokens, max_prompt_tokens)
        self._direct = decode.is_supported(policy.model)
        self._way: stock.Generator | None = None
        _log.info(
            "sampling %s through the %s forward", policy.source, "direct" if self._direct else "stock"
        )

    @torch.inference_mode()
    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order.

        Args:
            requests: prompts with their numbers of samples; equal prompts are read once.
            seed: seed of the run; with a request's key and a sample's number it decides the draws.
            temperature: of the softmax; 0 means the most probable token.

        Raises:
            InputError: if a prompt is too long or the temperature negative.
        """
        check_temperature(temperature)

        # Requests with one prompt become rows of one group, which shares what was read of the prompt.
        rows_of_prompt: dict[str, list[_Row]] = {}
        for number, request in enumerate(requests):
            rows = rows_of_prompt.setdefault(request.prompt, [])
            rows.extend(_Row(number, index) for index in range(request.count))

        encoded = encode_prompts(self.policy, requests, self.max_prompt_tokens)

        # Shortest first: prompts of a batch are padded to its longest one, and ``grid`` relies on this order.
        order = sorted(
            (prompt for prompt, rows in rows_of_prompt.items() if rows),
            key=lambda prompt: len(encoded[prompt]),
        )
        replies: list[list[Sample | None]] = [[None] * request.count for request in requests]

        # Made anew in each call: it may hold copies of the weights (fused projections), which every update outdates.
        model = decode.DirectModel(self.policy.model) if self._direct else None

        for batch in _batches(
            [(prompt, rows_of_prompt[prompt]) for prompt in order], self.max_batch_rows
        ):
            rows = [row for _, part in batch for row in part]
            # All uniforms of a response come from its own counters, so batching and order cannot change what is drawn.
            draws = [
                uniforms(derive(seed, *requests[row.request].key, row.index), self.max_new_tokens)
                for row in rows
            ]
            responses = Responses(
                np.stack(draws), tuple(self.policy.eos_ids), temperature, self.policy.device
            )

            prompts, numbers = (
                [encoded[prompt] for prompt, _ in batch],
                _numbered([part for _, part in batch]),
            )
            if model is not None:
                grid.generate_batch(model, prompts, numbers, responses)
            else:
                self._respond(prompts, numbers, responses)

            for row, sample in zip(rows, self._samples(responses), strict=True):
                replies[row.request][row.index] = sample

        return [[sample for sample in reply if sample is not None] for reply in replies]

    def forget(self) -> None:
        """Do nothing: what is read of prompts is kept for one call only."""

    def sync(self, weights: Iterable[tuple[str, torch.Tensor]]) -> bool:
        """Do nothing, and say so: the policy's weights are read while it draws."""
        return False

    def _respond(self, prompts: list[list[int]], numbers: list[list[int]], responses: Responses) -> None:
        # Not before the first call, since only then somebody sees to it that the weights are whole.
        self._way = self._way or stock.choose_generator(self.policy.model, self.policy.source)
        self._way(self.policy.model, prompts, numbers, responses)

    def _samples(self, responses: Responses) -> list[Sample]:
        lengths = responses.lengths.tolist()
        tokens = [row[:length] for row, length in zip(responses.tokens.tolist(), lengths, strict=True)]
        logprobs = responses.logprobs.tolist()
        finished = responses.finished.tolist()
        return [
            Sample(
                tuple(ids), tuple(logprobs[row][: len(ids)]), text, finished[row], self.policy.version
            )
            for row, (ids, text) in enumerate(zip(tokens, self.policy.decode(tokens), strict=True))
        ]


def limit_prompt_tokens(policy: Policy, max_new_tokens: int, max_prompt_tokens: int) -> int:
    """Return the longest prompt in tokens: ``max_prompt_tokens``, or what the model's context leaves beside a response.

    Raises:
        InputError: if a limit is not positive or no prompt fits beside a response.
    """
    for name, value in (("max_new_tokens", max_new_tokens), ("max_prompt_tokens", max_prompt_tokens)):
        if value < 1:
            raise InputError(f"{name}: found {value}, expected at least 1.")
    limit = min(max_prompt_tokens, policy.max_context - max_new_tokens)
    if limit < 1:
        raise InputError(
            f"max_new_tokens: found {max_new_tokens}, but {policy.source} reads {policy.max_context} tokens."
        )
    return limit


def check_temperature(temperature: float) -> None:
    """Check the temperature of a softmax.

    Raises:
        InputError: if it is negative or not a number.
    """
    if not temperature >= 0:
        raise InputError(f"temperature: found {temperature}, expected 0 (most probable token) or more.")


def encode_prompts(policy: Policy, requests: Sequence[SampleRequest], most: int) -> dict[str, list[int]]:
    """Return the token ids of every prompt.

    Raises:
        InputError: if one has more than ``most`` tokens.
    """
    encoded = {request.prompt: policy.encode_prompt(request.prompt) for request in requests}
    long = [request for request in requests if len(encoded[request.prompt]) > most]
    if long:
        raise InputError(
            f"{len(long)} of {len(requests)} prompts are longer than the limit of {most} tokens; "
            f"the first, {'/'.join(map(str, long[0].key))}, has {len(encoded[long[0].prompt])}: "
            f"{long[0].prompt[:80]!r}... Prompts are never cut; raise max_prompt_tokens or shorten the history."
        )
    return encoded


def _batches(groups: Sequence[tuple[str, list[_Row]]], limit: int) -> list[list[tuple[str, list[_Row]]]]:
    """Cut groups of rows into batches of at most ``limit`` rows; a group is split only if it does not fit."""
    batches: list[list[tuple[str, list[_Row]]]] = []
    free = 0
    for prompt, rows in groups:
        if len(rows) > free and (free == 0 or len(rows) <= limit):
            batches.append([])
            free = limit
        rest = rows
        while rest:
            if not free:
                batches.append([])
                free = limit
            part, rest = rest[:free], rest[free:]
            batches[-1].append((prompt, part))
            free -= len(part)
    return batches


def _numbered(parts: Sequence[Sequence[_Row]]) -> list[list[int]]:
    # Rows are numbered from 0 in the order in which ``Responses`` has them: group after group.
    numbers: list[list[int]] = []
    start = 0
    for part in parts:
        numbers.append(list(range(start, start + len(part))))
        start += len(part)
    return numbers
