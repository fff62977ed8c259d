"""The critic of PPO: the policy's backbone with a value head in place of its vocabulary, trained alongside it.

It starts from the base policy's weights and a head of zeros, and has parameters and an optimizer of its
own.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from threespo.errors import InputError
from threespo.learner import attention, backend, checkpoint
from threespo.learner.checks import check_settings, explain_out_of_memory, not_finite_error
from threespo.learner.engine import checkpoint_identity
from threespo.learner.forward import Group, Pack, balance_micro_batches, group_by_prompt, pack_groups
from threespo.learner.loss import value_losses
from threespo.learner.optim import OptimSettings
from threespo.policy import linear
from threespo.policy.model import Policy, parse_dtype, text_config
from threespo.protocol import ValueRequest, ValueRow, ValueStats, ValueUpdateRequest


class ValueScorer(nn.Module):
    """Value of the position before every response token of a pack."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        stock: Any = model
        attention.install_attention(stock)
        linear.use_onednn(stock)
        self.backbone: nn.Module = stock.base_model
        weight = next(stock.parameters())
        self.head = nn.Linear(
            text_config(stock.config).hidden_size,
            1,
            bias=False,
            device=weight.device,
            dtype=weight.dtype,
        )
        # All values begin at 0, so the first advantages are the returns.
        nn.init.zeros_(self.head.weight)

    def forward(self, packed: Pack) -> Float[Tensor, " N"]:
        """Return the values, with gradient."""
        hidden = self.backbone(
            input_ids=packed.tokens,
            position_ids=packed.positions,
            # A mask in its final form is passed on untouched; ours is in the spans.
            attention_mask=packed.tokens.new_zeros((1, 1, 1, 1)),
            use_cache=False,
            spans=packed.spans,
        ).last_hidden_state
        # A token's value is that of the position which predicts it: before the token is known.
        values: Tensor = self.head(hidden[0, packed.predictors])[:, 0].float()
        return values


class DeepSpeedCritic:
    """Values of responses, and optimizer steps on them."""

    def __init__(
        self,
        policy: Policy,
        settings: OptimSettings,
        failed_updates: Path = Path("failed-updates"),
    ) -> None:
        """Prepare the critic.

        Args:
            policy: becomes the backbone; it must not be the policy that is trained.
            settings: optimizer and batching.
            failed_updates: folder for batches whose loss is not finite.

        Raises:
            InputError: if a setting is out of range or the model cannot be trained in packs.
        """
        check_settings(settings)
        self.policy = policy
        self.settings = settings
        self.steps = 0
        self._failed_updates = failed_updates
        self._dtype = parse_dtype(settings.dtype)
        self._scorer = ValueScorer(policy.model)
        with explain_out_of_memory("the start of the critic", settings):
            self._engine = backend.start_engine(self._scorer, settings)

    def scale_rate(self, factor: float) -> None:
        """Take the next steps with ``factor`` times the learning rate of the settings."""
        backend.set_learning_rate(self._engine, self.settings.lr * factor)

    def values(self, request: ValueRequest) -> list[list[float]]:
        """Return V before each token and after the last one, len(tokens) + 1 values for each response."""
        prompts = [self.policy.encode_prompt(prompt) for prompt, _ in request.responses]
        # A response's last token is not in a pack; one more behind it puts it there.
        responses = [(*tokens, tokens[-1]) for _, tokens in request.responses]
        micro_batches = self._make_micro_batches(group_by_prompt(prompts, responses))

        values_of_row: dict[int, list[float]] = {}
        with torch.no_grad():
            for groups, counts in backend.share_of_rank(micro_batches):
                packed = self._pack(groups)
                row_values = self._engine(packed).split(packed.lengths)
                if counts:
                    for row, values in zip(packed.rows, row_values, strict=True):
                        values_of_row[row] = values.tolist()

        # Each rank has computed its share of the rows.
        for rank_values in backend.gather_objects(values_of_row):
            values_of_row |= rank_values
        return [values_of_row[row] for row in range(len(responses))]

    def update(self, request: ValueUpdateRequest) -> list[ValueStats]:
        """Take one optimizer step on each batch, in order.

        Raises:
            InputError: if a row is malformed, or loss or gradient is not finite (the batch is saved then).
        """
        with explain_out_of_memory(f"update {self.steps} of the critic", self.settings):
            return [self._step(rows, request.clip) for rows in request.batches]

    def size(self) -> int:
        """Return the bytes that ``save`` writes, by all ranks together."""
        return checkpoint.checkpoint_bytes(self._scorer, self.settings)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer state and step count into ``folder``, whole or not at all."""
        identity = checkpoint_identity(self._scorer, self.settings)
        checkpoint.save_engine(self._engine, folder, identity, self.steps)

    def load(self, folder: Path) -> None:
        """Go on bit-exactly from what ``save`` wrote.

        Raises:
            InputError: if the checkpoint is missing, truncated, or of another model or other settings.
        """
        identity = checkpoint_identity(self._scorer, self.settings)
        self.steps = checkpoint.load_engine(self._engine, folder, identity)

    def _step(self, rows: Sequence[ValueRow], clip: float) -> ValueStats:
        _check_value_rows(rows)
        prompts = [self.policy.encode_prompt(row.prompt) for row in rows]
        groups = group_by_prompt(prompts, [row.tokens for row in rows])
        tokens = sum(len(row.tokens) for row in rows)

        def compute_loss(micro_batch: list[Group]) -> tuple[Tensor, Tensor]:
            packed = self._pack(micro_batch)
            packed_rows = [rows[row] for row in packed.rows]
            old_values = self._concatenate([row.old_values for row in packed_rows])
            returns = self._concatenate([row.returns for row in packed_rows])
            losses, clipped = value_losses(self._engine(packed), old_values, returns, clip)
            # The micro-batch's share of the mean over all tokens of the batch.
            objective = losses.sum() / tokens
            statistics = torch.stack((objective.detach(), clipped.sum().float()))
            return statistics.double().cpu(), objective

        sums = backend.accumulate_gradients(
            self._engine, self._make_micro_batches(groups), compute_loss, self.policy.device
        )
        loss, clipped_tokens = sums.tolist()
        if not math.isfinite(loss):
            raise self._failure(rows, f"the critic's loss {loss}")

        # Clipped by DeepSpeed; an infinite norm is found before or after the step
        # (``take_optimizer_step``).
        norm = backend.take_optimizer_step(self._engine)
        if not math.isfinite(norm):
            raise self._failure(rows, f"the critic's gradient norm {norm}")

        self.steps += 1
        return ValueStats(loss, clipped_tokens / tokens, norm, tokens)

    def _concatenate(self, parts: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([value for part in parts for value in part], device=self.policy.device)

    def _make_micro_batches(self, groups: Sequence[Group]) -> list[list[Group]]:
        return balance_micro_batches(groups, self.settings.micro_batch_tokens, backend.get_world_size())

    def _pack(self, groups: Sequence[Group]) -> Pack:
        return pack_groups(groups, self.policy.device, self._dtype)

    def _failure(self, rows: Sequence[ValueRow], quantity: str) -> InputError:
        batch = {"rows": [dataclasses.asdict(row) for row in rows]}
        file = self._failed_updates / f"critic-update-{self.steps:06d}.json"
        return not_finite_error(file, quantity, self.steps, batch)


def _check_value_rows(rows: Sequence[ValueRow]) -> None:
    if not rows:
        raise InputError("an update of the critic needs at least one row, found none.")
    for number, row in enumerate(rows):
        if not row.tokens or not len(row.tokens) == len(row.old_values) == len(row.returns):
            raise InputError(
                f"row {number} of a critic's update: {len(row.tokens)} tokens, {len(row.old_values)} old values and "
                f"{len(row.returns)} returns; expected equal numbers, at least one."
            )
