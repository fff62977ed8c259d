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
        steps = method.train_epoch(epoch, starts)
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                result: EpochResult = stop.value
                return result

            start = time.perf_counter()
            if isinstance(request, UpdateRequest):
                reply = self.learner.update(request)
                self.updates += reply
                self.advantages += [
                    math.fsum(row.advantages) / len(row.advantages)
                    for batch in request.batches
                    for row in batch
                ]
                self.update_seconds += time.perf_counter() - start
            elif isinstance(request, ValueRequest | ValueUpdateRequest):
                # Counted as update time: values are a forward pass of the critic, part of learning.
                assert self.critic is not None, "a method that asks for values has a critic_rate"
                ask: Any = (
                    self.critic.values if isinstance(request, ValueRequest) else self.critic.update
                )
                reply = ask(request)
                self.update_seconds += time.perf_counter() - start
            else:
                reply = self.sampler.sample(request, seed=self.seed, temperature=self.temperature)
                self.generations += sum(one.count for one in request)
                self.tokens += sum(len(sample.tokens) for samples in reply for sample in samples)
                self.sampling_seconds += time.perf_counter() - start
