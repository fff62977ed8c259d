"""The learner: one optimizer step per batch of rows, on the DeepSpeed engine (CPU or GPU, ZeRO 0 to 3)."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from threespo.errors import InputError
from threespo.files import replace_folder
from threespo.learner import backend, checkpoint
from threespo.learner.checks import (
    check_rows,
    check_settings,
    explain_out_of_memory,
    not_finite_error,
)
from threespo.learner.forward import (
    Group,
    Pack,
    ResponseScorer,
    balance_micro_batches,
    group_by_prompt,
    pack_groups,
)
from threespo.learner.loss import k3, policy_losses, token_weights
from threespo.learner.optim import OptimSettings
from threespo.policy.model import Policy, parse_dtype
from threespo.protocol import LossSettings, Row, UpdateRequest, UpdateStats


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """The rows of a request as flat tensors, row after row: token j of row i is at ``starts[i] + j``."""

    groups: list[Group]
    starts: list[int]
    old_logprobs: Float[Tensor, " tokens"]
    advantages: Float[Tensor, " tokens"]
    weights: Float[Tensor, " tokens"]
    recompute: Bool[Tensor, " tokens"]
    """Where the present policy is pi_old, and its own forward pass gives log pi_old."""
    staleness: Float[Tensor, " tokens"]

    @property
    def tokens(self) -> int:
        return len(self.advantages)

    def token_indices(self, packed: Pack) -> Tensor:
        """Return where the pack's response tokens are in the flat tensors."""
        ranges = [
            torch.arange(self.starts[row], self.starts[row] + length)
            for row, length in zip(packed.rows, packed.lengths, strict=True)
        ]
        return torch.cat(ranges).to(self.advantages.device)


class DeepSpeedLearner:
    """Takes optimizer steps on a policy's model in place: a sampler of the same policy always sees current weights."""

    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        settings: OptimSettings,
        failed_updates: Path = Path("failed-updates"),
    ) -> None:
        """Prepare training.

        Args:
            policy: what is trained.
            reference: the frozen policy of the KL penalty; may be ``None`` if no request asks for the penalty.
            settings: optimizer and batching.
            failed_updates: folder for batches whose loss is not finite.

        Raises:
            InputError: if a setting is out of range or the model cannot be trained in packs.
        """
        check_settings(settings)
        if reference is not None and reference.model is policy.model:
            raise InputError(
                "the reference policy is the policy itself; load it a second time, it must stay frozen."
            )
        self.policy = policy
        self.settings = settings
        self._failed_updates = failed_updates
        self._dtype = parse_dtype(settings.dtype)

        scorer = ResponseScorer(policy.model)
        if settings.gradient_checkpointing:
            model: Any = policy.model
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with explain_out_of_memory("the start of training", settings):
            self._engine = backend.start_engine(scorer, settings)

        # In the precision of training: both sides of the KL divergence are rounded alike.
        self._reference: ResponseScorer | None = None
        if reference is not None:
            frozen = ResponseScorer(reference.model).to(self._dtype).to(policy.device)
            self._reference = frozen.requires_grad_(False).eval()

    @property
    def steps(self) -> int:
        """Optimizer steps taken; the version of the policy's weights."""
        return self.policy.version

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Take one optimizer step on each batch, in order; pi_old of a row is the policy that drew it.

        Raises:
            InputError: if a row is malformed or does not say which weights drew it, the penalty has no reference, or loss or
                gradient is not finite (the batch is saved then; do not go on with this learner).
        """
        with explain_out_of_memory(f"update {self.steps}", self.settings):
            # A single batch meets the present weights in its own forward pass, which gives the log
            # pi_old of the rows that were drawn from them. Later batches meet changed weights, so theirs
            # are computed beforehand.
            if len(request.batches) == 1:
                return [self.step(request.batches[0], request.loss, recompute=True)]
            return self._update_in_steps(request)

    def _update_in_steps(self, request: UpdateRequest) -> list[UpdateStats]:
        """Take a step on each of several batches, with log pi_old recomputed for all rows of the present version."""
        for rows in request.batches:
            check_rows(rows, self.steps)

        # By identity: a row that is in several batches is computed once.
        fresh = {id(row): row for rows in request.batches for row in rows if row.version == self.steps}
        recomputed = self.logprobs([(row.prompt, row.tokens) for row in fresh.values()])
        logprobs_of_row = dict(zip(fresh, map(tuple, recomputed), strict=True))

        result = []
        for rows in request.batches:
            gaps: list[float] = []
            current_rows: list[Row] = []
            for row in rows:
                logprobs = logprobs_of_row.get(id(row))
                if logprobs is None:
                    current_rows.append(row)
                    continue
                gaps += [
                    abs(sampled - learned)
                    for sampled, learned in zip(row.old_logprobs, logprobs, strict=True)
                ]
                current_rows.append(dataclasses.replace(row, old_logprobs=logprobs))

            stats = self.step(tuple(current_rows), request.loss)
            sampler_gap = sum(gaps) / max(1, len(gaps))
            result.append(dataclasses.replace(stats, sampler_gap=sampler_gap, recomputed=len(gaps)))
        return result

    def step(self, rows: tuple[Row, ...], loss: LossSettings, recompute: bool = False) -> UpdateStats:
        """Take exactly one optimizer step on the whole batch, whatever the size of the micro-batches.

        ``recompute``: rows of the present version get log pi_old from the step's own forward pass,
        instead of what they bring. Raises like ``update``.
        """
        if loss.kl_coef != 0.0 and self._reference is None:
            raise InputError(
                f"loss.kl_coef: found {loss.kl_coef} but there is no reference policy; give one or set it to 0."
            )

        check_rows(rows, self.steps)
        batch = self._flatten(rows, loss, recompute)
        sums = backend.accumulate_gradients(
            self._engine,
            self._make_micro_batches(batch.groups),
            lambda groups: self._compute_loss(groups, batch, loss),
            self.policy.device,
        )

        # Before the step: weights are not spoilt by it.
        if not bool(torch.isfinite(sums[0])):
            raise self._failure(rows, loss, f"loss {float(sums[0])}")
        norm = backend.take_optimizer_step(self._engine)
        if not math.isfinite(norm):
            raise self._failure(rows, loss, f"gradient norm {norm}")

        self.policy.version += 1
        return _update_stats(sums, batch, norm)

    def scale_rate(self, factor: float) -> None:
        """Take the next steps with ``factor`` times the learning rate of the settings."""
        backend.set_learning_rate(self._engine, self.settings.lr * factor)

    def logprobs(self, rows: Sequence[tuple[str, Sequence[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of (prompt, response tokens) rows under the current weights."""
        prompts = [self.policy.encode_prompt(prompt) for prompt, _ in rows]
        groups_of_rows = group_by_prompt(prompts, [tokens for _, tokens in rows])

        logprobs_of_row: dict[int, list[float]] = {}
        with torch.no_grad():
            for groups, counts in backend.share_of_rank(self._make_micro_batches(groups_of_rows)):
                packed = pack_groups(groups, self.policy.device, self._dtype)
                logprobs = self._engine(packed, self.settings.temperature)[0]
                if counts:
                    for row, values in zip(packed.rows, logprobs.split(packed.lengths), strict=True):
                        logprobs_of_row[row] = values.tolist()

        # Each rank has computed its share of the rows.
        for rank_logprobs in backend.gather_objects(logprobs_of_row):
            logprobs_of_row |= rank_logprobs
        return [logprobs_of_row[row] for row in range(len(rows))]

    def size(self) -> int:
        """Return the bytes that ``save`` writes, by all ranks together, without the files' headers."""
        return checkpoint.checkpoint_bytes(self.policy.model, self.settings)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer state and step count into ``folder``, whole or not at all."""
        identity = checkpoint_identity(self.policy.model, self.settings)
        checkpoint.save_engine(self._engine, folder, identity, self.steps)

    def load(self, folder: Path) -> None:
        """Go on bit-exactly from what ``save`` wrote.

        Raises:
            InputError: if the checkpoint is missing, truncated, or of another model or other settings.
        """
        identity = checkpoint_identity(self.policy.model, self.settings)
        self.policy.version = checkpoint.load_engine(self._engine, folder, identity)

    @contextlib.contextmanager
    def gather_weights(self) -> Iterator[None]:
        """Keep the policy's weights whole on every rank while sampling from it; needed at ZeRO 3, free below."""
        with backend.gather_parameters(self._engine):
            yield

    def gathered_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the policy's weights by name, each whole on every rank until the next is asked for."""
        return backend.gather_one_by_one(self._engine, self.policy.model.named_parameters())

    def export(self, folder: Path) -> None:
        """Write the policy as a plain Hugging Face folder: configuration, safetensors weights, tokenizer."""
        model: Any = self.policy.model
        with self.gather_weights():
            if backend.get_rank() == 0:
                with replace_folder(folder) as temporary:
                    model.save_pretrained(temporary)
                    self.policy.tokenizer.save_pretrained(temporary)

    def _make_micro_batches(self, groups: Sequence[Group]) -> list[list[Group]]:
        return balance_micro_batches(groups, self.settings.micro_batch_tokens, backend.get_world_size())

    def _compute_loss(
        self, groups: list[Group], batch: FlatBatch, loss: LossSettings
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of statistics and the objective (this micro-batch's share of the batch's loss, eq. 5)."""
        packed = pack_groups(groups, self.policy.device, self._dtype)
        indices = batch.token_indices(packed)
        weights = batch.weights[indices]
        with_entropy_gradient = loss.entropy_coef != 0.0
        logprobs, entropy = self._engine(packed, self.settings.temperature, with_entropy_gradient)

        # Log pi_old: recomputed where the present weights drew the row, for sampler and learner round
        # differently.
        sampled_logprobs = batch.old_logprobs[indices]
        old_logprobs = torch.where(batch.recompute[indices], logprobs.detach(), sampled_logprobs)
        losses = policy_losses(logprobs, old_logprobs, batch.advantages[indices], loss)
        policy_loss = (losses.policy * weights).sum()

        objective = policy_loss
        kl = torch.zeros_like(entropy)
        if loss.kl_coef != 0.0 and self._reference is not None:
            with torch.no_grad():
                reference = self._reference(packed, self.settings.temperature)[0]
            # As a loss term, not in the reward (tab:hyperparams).
            kl = k3(logprobs, reference)
            objective = policy_loss + loss.kl_coef * (kl * weights).sum()
        if with_entropy_gradient:
            objective = objective - loss.entropy_coef * (entropy * weights).sum()

        with torch.no_grad():
            # In the order in which ``_update_stats`` reads them.
            sums = (
                objective,
                policy_loss,
                kl.sum(),
                entropy.sum(),
                losses.clipped.sum().float(),
                (old_logprobs - logprobs).sum(),
                (logprobs - old_logprobs).exp().sum(),
                (sampled_logprobs - old_logprobs).abs().sum(),
            )
            statistics = torch.stack(sums)
        # In float64, in which sums over many micro-batches lose nothing.
        return statistics.double().cpu(), objective

    def _flatten(self, rows: Sequence[Row], loss: LossSettings, recompute: bool) -> FlatBatch:
        device = self.policy.device
        lengths = torch.tensor([len(row.tokens) for row in rows])
        row_staleness = torch.tensor([self.steps - (row.version or 0) for row in rows])
        staleness = row_staleness.repeat_interleave(lengths).to(device)

        # In float64 until each token has its share.
        row_weights = torch.tensor([row.weight for row in rows], dtype=torch.float64)
        padded_width = self.settings.padded_width or int(lengths.max())
        weights = token_weights(lengths, row_weights, loss.aggregation, padded_width)

        prompts = [self._encode_whole_prompt(row) for row in rows]
        old_logprobs = [logprob for row in rows for logprob in row.old_logprobs]
        advantages = [advantage for row in rows for advantage in row.advantages]
        return FlatBatch(
            groups=group_by_prompt(prompts, [row.tokens for row in rows]),
            starts=(lengths.cumsum(0) - lengths).tolist(),
            old_logprobs=torch.tensor(old_logprobs, device=device),
            advantages=torch.tensor(advantages, device=device),
            weights=weights.float().to(device),
            recompute=(staleness == 0) & recompute,
            staleness=staleness.float(),
        )

    def _encode_whole_prompt(self, row: Row) -> list[int]:
        """Return the tokens of a row's prompt, which is never cut."""
        prompt = self.policy.encode_prompt(row.prompt)
        if len(prompt) + len(row.tokens) > self.policy.max_context:
            raise InputError(
                f"a row of {len(prompt)} prompt and {len(row.tokens)} response tokens exceeds the "
                f"{self.policy.max_context} that {self.policy.source} reads: {row.prompt[:80]!r}... "
                "Rows are never cut; shorten the history."
            )
        return prompt

    def _failure(self, rows: Sequence[Row], loss: LossSettings, quantity: str) -> InputError:
        batch = {"rows": [dataclasses.asdict(row) for row in rows], "loss": dataclasses.asdict(loss)}
        file = self._failed_updates / f"update-{self.steps:06d}.json"
        return not_finite_error(file, quantity, self.steps, batch)


def checkpoint_identity(model: nn.Module, settings: OptimSettings) -> dict[str, Any]:
    """Return what must be equal where a checkpoint is saved and where it is loaded, as JSON values."""
    # At ZeRO 3 a parameter is empty between passes and keeps its shape in ``ds_shape``.
    shapes = [
        [name, list(getattr(parameter, "ds_shape", parameter.shape))]
        for name, parameter in model.named_parameters()
    ]
    return {
        "format": 1,
        "parameters": shapes,
        "zero_stage": settings.zero_stage,
        "dtype": settings.dtype,
        "world_size": backend.get_world_size(),
    }


def _update_stats(sums: Tensor, batch: FlatBatch, norm: float) -> UpdateStats:
    loss, policy_loss, kl, entropy, clipped, approx_kl, ratio, gap = sums.tolist()
    # Loss and policy loss are weighted means already; the others are sums over tokens.
    tokens = batch.tokens
    recomputed = int(batch.recompute.sum())
    return UpdateStats(
        loss=loss,
        policy_loss=policy_loss,
        kl=kl / tokens,
        entropy=entropy / tokens,
        clip_fraction=clipped / tokens,
        approx_kl=approx_kl / tokens,
        grad_norm=norm,
        ratio=ratio / tokens,
        staleness=float(batch.staleness.mean()),
        oldest=int(batch.staleness.max()),
        sampler_gap=gap / max(1, recomputed),
        recomputed=recomputed,
        tokens=tokens,
    )
