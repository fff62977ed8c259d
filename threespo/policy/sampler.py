"""The torch sampler: each distinct prompt is read once, all its responses share what was read.

The draw of token t of response i depends on (run seed, request key, i, t) only, never on how requests were batched.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class _PromptGroup(NamedTuple):
    """Rows with the same prompt, which share what was read of it."""

    prompt: str
    rows: list[_Row]


class TorchSampler:
    """Samples from a policy's current weights, on the device that they are on (``protocol.LocalSampler``)."""

    def __init__(
        self, policy: Policy, max_new_tokens: int, max_batch_rows: int, max_prompt_tokens: int
    ) -> None:
        """Prepare sampling.

        Args:
            policy: model and tokenizer; every call of ``sample`` reads the current weights.
            max_new_tokens: responses are cut at this length.
            max_batch_rows: responses that are generated at a time (bounds memory; no influence on what is drawn).
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
        self._stock_generator: stock.Generator | None = None
        forward = "direct" if self._direct else "stock"
        _log.info("sampling %s through the %s forward", policy.source, forward)

    @torch.inference_mode()
    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order (``protocol.Sampler``).

        Raises:
            InputError: if a prompt is too long or the temperature negative.
        """
        check_temperature(temperature)
        encoded = encode_prompts(self.policy, requests, self.max_prompt_tokens)

        # Requests with the same prompt form one group: the prompt is read once for all of their rows.
        groups: dict[str, _PromptGroup] = {}
        for request_index, request in enumerate(requests):
            group = groups.setdefault(request.prompt, _PromptGroup(request.prompt, []))
            group.rows.extend(_Row(request_index, index) for index in range(request.count))

        # Shortest first: prompts of a batch are padded to its longest one, and ``grid`` relies on this order.
        sorted_groups = sorted(
            (group for group in groups.values() if group.rows),
            key=lambda group: len(encoded[group.prompt]),
        )
        samples: list[list[Sample | None]] = [[None] * request.count for request in requests]

        # Made in each call: it may hold copies of the weights (fused projections), which every update outdates.
        direct_model = decode.DirectModel(self.policy.model) if self._direct else None

        for batch in _split_into_batches(sorted_groups, self.max_batch_rows):
            rows = [row for group in batch for row in group.rows]
            # All uniforms of a response come from its own counters, so batching and order cannot change what is drawn.
            draws = [
                uniforms(derive(seed, *requests[row.request].key, row.index), self.max_new_tokens)
                for row in rows
            ]
            eos_ids = tuple(self.policy.eos_ids)
            responses = Responses(np.stack(draws), eos_ids, temperature, self.policy.device)

            prompts = [encoded[group.prompt] for group in batch]
            row_numbers = _number_rows(batch)
            if direct_model is not None:
                grid.generate_batch(direct_model, prompts, row_numbers, responses)
            else:
                self._generate_with_stock(prompts, row_numbers, responses)

            for row, sample in zip(rows, self._make_samples(responses), strict=True):
                samples[row.request][row.index] = sample

        return [[sample for sample in row if sample is not None] for row in samples]

    def forget(self) -> None:
        """Do nothing: what is read of prompts is kept for one call only."""

    def sync(self, weights: Iterable[tuple[str, torch.Tensor]]) -> bool:
        """Do nothing, and return false: the policy's own weights are read while it draws."""
        return False

    def _generate_with_stock(
        self, prompts: list[list[int]], row_numbers: list[list[int]], responses: Responses
    ) -> None:
        if self._stock_generator is None:
            # Not in __init__: with ZeRO 3 the weights are complete only while a call of ``sample`` runs.
            self._stock_generator = stock.choose_generator(self.policy.model, self.policy.source)
        self._stock_generator(self.policy.model, prompts, row_numbers, responses)

    def _make_samples(self, responses: Responses) -> list[Sample]:
        lengths = responses.lengths.tolist()
        logprobs = responses.logprobs.tolist()
        finished = responses.finished.tolist()
        tokens = [row[:length] for row, length in zip(responses.tokens.tolist(), lengths, strict=True)]
        texts = self.policy.decode(tokens)
        return [
            Sample(
                tuple(tokens[row]),
                tuple(logprobs[row][: lengths[row]]),
                texts[row],
                finished[row],
                self.policy.version,
            )
            for row in range(len(tokens))
        ]


def limit_prompt_tokens(policy: Policy, max_new_tokens: int, max_prompt_tokens: int) -> int:
    """Return the longest prompt in tokens: ``max_prompt_tokens``, or what a response leaves of the model's context.

    Raises:
        InputError: if a limit is not positive or the context has no room for a prompt and a response.
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
    """Raise ``InputError`` if the temperature of a softmax is negative or not a number."""
    if not temperature >= 0:
        raise InputError(f"temperature: found {temperature}, expected 0 (most probable token) or more.")


def encode_prompts(
    policy: Policy, requests: Sequence[SampleRequest], max_tokens: int
) -> dict[str, list[int]]:
    """Return the token ids of every prompt.

    Raises:
        InputError: if one has more than ``max_tokens`` tokens.
    """
    encoded = {request.prompt: policy.encode_prompt(request.prompt) for request in requests}
    too_long = [request for request in requests if len(encoded[request.prompt]) > max_tokens]
    if too_long:
        first = too_long[0]
        raise InputError(
            f"{len(too_long)} of {len(requests)} prompts are longer than the limit of {max_tokens} tokens; "
            f"the first, {'/'.join(map(str, first.key))}, has {len(encoded[first.prompt])}: "
            f"{first.prompt[:80]!r}... Prompts are never cut; raise max_prompt_tokens or shorten the history."
        )
    return encoded


def _split_into_batches(groups: Sequence[_PromptGroup], max_rows: int) -> list[list[_PromptGroup]]:
    """Cut groups into batches of at most ``max_rows`` rows; a group is split only if it does not fit into one."""
    batches: list[list[_PromptGroup]] = []
    free_rows = 0
    for group in groups:
        rest = group.rows
        fits_empty_batch = len(rest) <= max_rows
        while rest:
            # A group that fits into one batch begins a new one rather than be read twice.
            if free_rows == 0 or (fits_empty_batch and len(rest) > free_rows):
                batches.append([])
                free_rows = max_rows
            batches[-1].append(_PromptGroup(group.prompt, rest[:free_rows]))
            taken = len(batches[-1][-1].rows)
            rest = rest[taken:]
            free_rows -= taken
    return batches


def _number_rows(batch: Sequence[_PromptGroup]) -> list[list[int]]:
    """Return the row numbers of each group: ``Responses`` has the rows group after group."""
    numbers: list[list[int]] = []
    start = 0
    for group in batch:
        numbers.append(list(range(start, start + len(group.rows))))
        start += len(group.rows)
    return numbers
