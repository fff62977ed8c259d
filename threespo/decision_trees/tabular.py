"""A policy that is a table of softmax logits, for decision trees: the methods' own requests, answered in microseconds.

A response is one token, the number of an action. The loss is the learner's; the step is plain gradient descent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from threespo.learner.loss import k3, policy_losses, token_weights, value_losses
from threespo.protocol import (
    LossSettings,
    Row,
    Sample,
    SampleRequest,
    UpdateRequest,
    UpdateStats,
    ValueRequest,
    ValueRow,
    ValueStats,
    ValueUpdateRequest,
)
from threespo.rng import derive


@dataclass(slots=True)
class TabularPolicy:
    """Logits by prompt, (actions,) each; a prompt that was never updated has the initial logits."""

    actions: int
    learning_rate: float
    initial: Tensor
    """Logits of every prompt at the start, and of the reference policy throughout, (actions,)."""
    logits: dict[str, Tensor] = field(default_factory=dict)
    version: int = 0
    """Optimizer steps so far."""

    def logprobs(self, prompt: str) -> list[float]:
        """Return the log-probability of each action."""
        values: list[float] = self._logits_of(prompt).log_softmax(dim=0).tolist()
        return values

    def probabilities(self, prompt: str) -> list[float]:
        """Return the probability of each action."""
        return [math.exp(value) for value in self.logprobs(prompt)]

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request (``protocol.Sampler``), at a temperature above 0."""
        return [self._draw_samples(request, seed, temperature) for request in requests]

    def _logits_of(self, prompt: str) -> Tensor:
        return self.logits.get(prompt, self.initial)

    def _draw_samples(self, request: SampleRequest, seed: int, temperature: float) -> list[Sample]:
        scaled = self._logits_of(request.prompt) / temperature
        logprobs = scaled.log_softmax(dim=0).tolist()
        samples = []
        for number in range(request.count):
            # Inverse CDF. The last action takes the remainder that rounding leaves.
            remaining = derive(seed, *request.key, number) / 2.0**64
            action = 0
            while action + 1 < self.actions and remaining >= math.exp(logprobs[action]):
                remaining -= math.exp(logprobs[action])
                action += 1
            # In the form that the environments parse, so that a tree needs no parser of its own.
            text = f"<think></think><action>{action}</action>"
            samples.append(Sample((action,), (logprobs[action],), text, True, self.version))
        return samples

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Take exactly one step of gradient descent on each batch (``protocol.Learner``)."""
        # Before the first step, as the learner does: pi_old of a row is the policy that drew it.
        old_logprobs = [[self._old_logprob(row) for row in batch] for batch in request.batches]
        return [
            self._take_step(batch, old, request.loss)
            for batch, old in zip(request.batches, old_logprobs, strict=True)
        ]

    def _old_logprob(self, row: Row) -> float:
        # As the learner does: computed where the policy is still that of the draw, else the sampler's.
        if row.version == self.version:
            return self.logprobs(row.prompt)[row.tokens[0]]
        return row.old_logprobs[0]

    def _take_step(
        self, rows: Sequence[Row], old_logprobs: Sequence[float], loss: LossSettings
    ) -> UpdateStats:
        # One entry for each distinct prompt, so that rows of one prompt add their gradients up.
        indices, prompts = _index_prompts(rows)
        table = torch.stack([self._logits_of(prompt) for prompt in prompts]).requires_grad_()
        actions = torch.tensor([row.tokens[0] for row in rows])
        logprobs = table.log_softmax(dim=1)[indices, actions]
        reference = self.initial.log_softmax(dim=0)[actions]
        advantages = torch.tensor([row.advantages[0] for row in rows])
        old = torch.tensor(old_logprobs)
        ages = [self.version - row.version for row in rows if row.version is not None]
        assert len(ages) == len(rows), "samples of this table carry its version"

        # The share of each row in the loss, as the learner computes it for responses of one token.
        lengths = torch.ones(len(rows), dtype=torch.long)
        weights = torch.tensor([row.weight for row in rows], dtype=torch.float64)
        shares = token_weights(lengths, weights, loss.aggregation, 1).float()

        losses = policy_losses(logprobs, old, advantages, loss)
        kl = k3(logprobs, reference)
        policy_loss = (losses.policy * shares).sum()
        objective = policy_loss + loss.kl_coef * (kl * shares).sum()
        if loss.entropy_coef != 0.0:
            entropies = _row_entropies(table)[indices]
            objective = objective - loss.entropy_coef * (entropies * shares).sum()

        (gradient,) = torch.autograd.grad(objective, table)
        stepped = table.detach() - self.learning_rate * gradient
        self.logits.update(zip(prompts, stepped.unbind(), strict=True))
        self.version += 1

        # Of the policy before the step. Sampler and learner are one table, so there is no gap.
        return UpdateStats(
            loss=float(objective.detach()),
            policy_loss=float(policy_loss.detach()),
            kl=float(kl.detach().mean()),
            entropy=float(_row_entropies(table.detach())[indices].mean()),
            clip_fraction=float(losses.clipped.float().mean()),
            approx_kl=float((old - logprobs.detach()).mean()),
            grad_norm=float(gradient.norm()),
            ratio=float((logprobs.detach() - old).exp().mean()),
            staleness=sum(ages) / len(ages),
            oldest=max(ages),
            sampler_gap=0.0,
            recomputed=0,
            tokens=len(rows),
        )


@dataclass(slots=True)
class TabularCritic:
    """Values by prompt (``protocol.Critic``); the value after a response's only token is 0."""

    learning_rate: float
    table: dict[str, float] = field(default_factory=dict)

    def values(self, request: ValueRequest) -> list[list[float]]:
        """Return the value before the token, and 0 after it."""
        return [[self.table.get(prompt, 0.0), 0.0] for prompt, _ in request.responses]

    def update(self, request: ValueUpdateRequest) -> list[ValueStats]:
        """Take exactly one step of gradient descent on each batch."""
        return [self._take_step(rows, request.clip) for rows in request.batches]

    def _take_step(self, rows: Sequence[ValueRow], clip: float) -> ValueStats:
        indices, prompts = _index_prompts(rows)
        table = torch.tensor([self.table.get(prompt, 0.0) for prompt in prompts], requires_grad=True)
        old_values = torch.tensor([row.old_values[0] for row in rows])
        returns = torch.tensor([row.returns[0] for row in rows])
        losses, clipped = value_losses(table[indices], old_values, returns, clip)

        (gradient,) = torch.autograd.grad(losses.mean(), table)
        stepped = table.detach() - self.learning_rate * gradient
        self.table.update(zip(prompts, stepped.tolist(), strict=True))
        return ValueStats(
            loss=float(losses.detach().mean()),
            clip_fraction=float(clipped.float().mean()),
            grad_norm=float(gradient.norm()),
            tokens=len(rows),
        )


class PromptIndex(NamedTuple):
    """The distinct prompts of a batch."""

    indices: Tensor
    """Of each row's prompt in ``prompts``, (rows,)."""
    prompts: list[str]


def _index_prompts(rows: Sequence[Row] | Sequence[ValueRow]) -> PromptIndex:
    numbers: dict[str, int] = {}
    indices = [numbers.setdefault(row.prompt, len(numbers)) for row in rows]
    return PromptIndex(torch.tensor(indices), list(numbers))


def _row_entropies(table: Tensor) -> Tensor:
    """Return the entropy of each row's softmax, (rows,), in nats."""
    # The logarithm of a probability that has become 0 is finite in this form.
    logprobs = table.log_softmax(dim=1)
    return -(logprobs.exp() * logprobs).sum(dim=1)
