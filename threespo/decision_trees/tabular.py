"""A policy that is a table of softmax logits, for decision trees: the methods' own requests, answered in microseconds.

A response is one token, the number of an action. The loss is the learner's; the step is plain gradient descent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """Logits by prompt, (actions,) each; a prompt that was never updated has the logits that it starts from."""

    actions: int
    learning_rate: float
    initial: Tensor
    """Logits of every prompt at the start, and of the reference policy for ever, (actions,)."""
    logits: dict[str, Tensor] = field(default_factory=dict)
    version: int = 0
    """Steps taken."""

    def logprobs(self, prompt: str) -> list[float]:
        """Return the log-probability of each action."""
        values: list[float] = self.logits.get(prompt, self.initial).log_softmax(dim=0).tolist()
        return values

    def probabilities(self, prompt: str) -> list[float]:
        """Return the probability of each action."""
        return [math.exp(value) for value in self.logprobs(prompt)]

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request (``protocol.Sampler``); each draw depends on its counters only.

        Args:
            requests: prompts with their numbers of samples.
            seed: seed of the run.
            temperature: of the softmax, above 0.
        """
        return [self._draw(request, seed, temperature) for request in requests]

    def _draw(self, request: SampleRequest, seed: int, temperature: float) -> list[Sample]:
        scaled = (
            (self.logits.get(request.prompt, self.initial) / temperature).log_softmax(dim=0).tolist()
        )
        samples = []
        for number in range(request.count):
            # Inverse CDF: the last action takes what rounding leaves over.
            left = derive(seed, *request.key, number) / 2.0**64
            action = 0
            while action + 1 < self.actions and left >= math.exp(scaled[action]):
                left -= math.exp(scaled[action])
                action += 1
            text = f"<think></think><action>{action}</action>"
            samples.append(Sample((action,), (scaled[action],), text, True, self.version))
        return samples

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Take exactly one step of gradient descent on each batch (``protocol.Learner``)."""
        present = self.version
        # Before the first step, as the learner does: pi_old of a row is the policy that drew it.
        old = {
            id(row): self.logprobs(row.prompt)[row.tokens[0]]
            if row.version == present
            else row.old_logprobs[0]
            for batch in request.batches
            for row in batch
        }
        return [
            self._step(batch, [old[id(row)] for row in batch], request.loss) for batch in request.batches
        ]

    def _step(self, rows: Sequence[Row], old: Sequence[float], loss: LossSettings) -> UpdateStats:
        places, prompts = _places(rows)
        table = torch.stack(
            [self.logits.get(prompt, self.initial) for prompt in prompts]
        ).requires_grad_()
        taken = torch.tensor([row.tokens[0] for row in rows])
        logprobs = table.log_softmax(dim=1)[places, taken]
        reference = self.initial.log_softmax(dim=0)[taken]
        advantages = torch.tensor([row.advantages[0] for row in rows])
        before = torch.tensor(old)
        stale = [self.version - row.version for row in rows if row.version is not None]
        assert len(stale) == len(rows), "samples of this table carry its version"

        ones = torch.ones(len(rows), dtype=torch.long)
        weights = torch.tensor([row.weight for row in rows], dtype=torch.float64)
        shares = token_weights(ones, weights, loss.aggregation, 1).float()

        losses = policy_losses(logprobs, before, advantages, loss)
        kl = k3(logprobs, reference)
        policy_loss = (losses.policy * shares).sum()
        objective = policy_loss + loss.kl_coef * (kl * shares).sum()
        if loss.entropy_coef != 0.0:
            objective = objective - loss.entropy_coef * (_entropies(table)[places] * shares).sum()

        (gradient,) = torch.autograd.grad(objective, table)
        for prompt, row in zip(
            prompts, (table.detach() - self.learning_rate * gradient).unbind(), strict=True
        ):
            self.logits[prompt] = row
        self.version += 1

        entropy = float(_entropies(table.detach())[places].mean())

        return UpdateStats(
            loss=float(objective.detach()),
            policy_loss=float(policy_loss.detach()),
            kl=float(kl.detach().mean()),
            entropy=entropy,
            clip_fraction=float(losses.clipped.float().mean()),
            approx_kl=float((before - logprobs.detach()).mean()),
            grad_norm=float(gradient.norm()),
            ratio=float((logprobs.detach() - before).exp().mean()),
            staleness=sum(stale) / len(stale),
            oldest=max(stale),
            sampler_gap=0.0,
            recomputed=0,
            tokens=len(rows),
        )


@dataclass(slots=True)
class TabularCritic:
    """Values by prompt (``protocol.Critic``); nothing is expected of what follows a response's only token."""

    learning_rate: float
    table: dict[str, float] = field(default_factory=dict)

    def values(self, request: ValueRequest) -> list[list[float]]:
        """Return the value before the token, and 0 after it."""
        return [[self.table.get(prompt, 0.0), 0.0] for prompt, _ in request.responses]

    def update(self, request: ValueUpdateRequest) -> list[ValueStats]:
        """Take exactly one step of gradient descent on each batch."""
        return [self._step(rows, request.clip) for rows in request.batches]

    def _step(self, rows: Sequence[ValueRow], clip: float) -> ValueStats:
        places, prompts = _places(rows)
        table = torch.tensor([self.table.get(prompt, 0.0) for prompt in prompts], requires_grad=True)
        old, returns = (
            torch.tensor([getattr(row, name)[0] for row in rows]) for name in ("old_values", "returns")
        )
        losses, clipped = value_losses(table[places], old, returns, clip)
        (gradient,) = torch.autograd.grad(losses.mean(), table)
        self.table |= zip(
            prompts, (table.detach() - self.learning_rate * gradient).tolist(), strict=True
        )
        return ValueStats(
            float(losses.detach().mean()),
            float(clipped.float().mean()),
            float(gradient.norm()),
            len(rows),
        )


def _entropies(table: Tensor) -> Tensor:
    """Return the entropy of each row's softmax, (rows,), in nats."""
    # The logarithm of a probability that has become 0 is finite in this form.
    logprobs = table.log_softmax(dim=1)
    return -(logprobs.exp() * logprobs).sum(dim=1)


def _places(rows: Sequence[Row] | Sequence[ValueRow]) -> tuple[Tensor, list[str]]:
    """Return each row's place among the distinct prompts, and these."""
    index: dict[str, int] = {}
    places = [index.setdefault(row.prompt, len(index)) for row in rows]
    return torch.tensor(places), list(index)
