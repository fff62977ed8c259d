"""Drives a method: its requests are answered by a sampler, a learner and a critic, and what they cost is counted."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

from threespo.methods.base import Method
from threespo.protocol import (
    Critic,
    EpochResult,
    Learner,
    Sampler,
    SampleRequest,
    UpdateRequest,
    UpdateStats,
    ValueRequest,
    ValueUpdateRequest,
)


@dataclass(slots=True)
class Driver:
    """Answers a method's requests and counts what they cost."""

    sampler: Sampler
    learner: Learner
    critic: Critic | None
    seed: int
    temperature: float
    generations: int = 0
    tokens: int = 0
    """Tokens of all responses, those that no update was made from included."""
    updates: list[UpdateStats] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    """Mean advantage of every row that was learned from."""
    sampling_seconds: float = 0.0
    update_seconds: float = 0.0

    def run_epoch(self, method: Method, epoch: int, starts: list[Any]) -> EpochResult:
        """Run one epoch of ``method`` to its end and return its result.

        Args:
            method: yields the requests.
            epoch: its number, from 0.
            starts: first state of an episode of every task of the epoch.
        """
        requests = method.train_epoch(epoch, starts)
        # Sending None starts the generator.
        reply: Any = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration as stop:
                result: EpochResult = stop.value
                return result

            start = time.perf_counter()
            if isinstance(request, UpdateRequest):
                reply = self._update(request)
                self.update_seconds += time.perf_counter() - start
            elif isinstance(request, ValueRequest | ValueUpdateRequest):
                # Counted as update time: values are a forward pass of the critic, part of learning.
                reply = self._ask_critic(request)
                self.update_seconds += time.perf_counter() - start
            else:
                reply = self._sample(request)
                self.sampling_seconds += time.perf_counter() - start

    def _update(self, request: UpdateRequest) -> list[UpdateStats]:
        stats = self.learner.update(request)
        self.updates += stats
        # Means over a response's tokens: most methods give all of them the same advantage. ``fsum`` is exact, so the order
        # of the tokens cannot change a recorded number.
        for batch in request.batches:
            self.advantages += [math.fsum(row.advantages) / len(row.advantages) for row in batch]
        return stats

    def _ask_critic(self, request: ValueRequest | ValueUpdateRequest) -> Any:
        assert self.critic is not None, "a method that asks for values has a critic_rate"
        if isinstance(request, ValueRequest):
            return self.critic.values(request)
        return self.critic.update(request)

    def _sample(self, requests: tuple[SampleRequest, ...]) -> Any:
        replies = self.sampler.sample(requests, seed=self.seed, temperature=self.temperature)
        # A generation is one sampled response, the budget's unit.
        self.generations += sum(request.count for request in requests)
        self.tokens += sum(len(sample.tokens) for samples in replies for sample in samples)
        return replies
