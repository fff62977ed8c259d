"""Errors of the learner: settings out of range, malformed rows, losses that are not finite, memory that runs out."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from threespo.errors import InputError
from threespo.files import write_json
from threespo.learner import backend
from threespo.learner.optim import OptimSettings
from threespo.protocol import Row

LOWER_CACHE_FIRST = "Lower policies.NAME.vllm.kv_cache_memory_bytes first. "
"""For a draw by an engine: its cache is the largest thing that only drawing needs."""

MAX_REASON_LENGTH = 200
"""Characters of another program's message that ours shows."""


def check_settings(settings: OptimSettings) -> None:
    """Raise ``InputError`` if a setting is out of range."""
    in_range = {
        "lr": settings.lr >= 0,
        "grad_clip": settings.grad_clip > 0,
        "micro_batch_tokens": settings.micro_batch_tokens > 0,
        "zero_stage": settings.zero_stage in (0, 1, 2, 3),
        "temperature": settings.temperature > 0,
        "padded_width": settings.padded_width is None or settings.padded_width > 0,
        "dtype": settings.dtype in ("float32", "bfloat16"),
    }
    for name, good in in_range.items():
        if not good:
            raise InputError(
                f"optimizer setting {name}: found {getattr(settings, name)!r}, which is out of range."
            )

    if settings.zero_stage == 0 and settings.dtype == "bfloat16":
        raise InputError(
            "optimizer setting zero_stage: found 0 with dtype bfloat16, expected 1 or more: at stage 0 DeepSpeed adds up "
            "gradients in bfloat16 and counts its own start as Adam's first step."
        )
    if settings.zero_stage == 0 and settings.offload_optimizer:
        raise InputError(
            "optimizer setting offload_optimizer: stage 0 of ZeRO cannot; set zero_stage to 1 or more."
        )


def check_rows(rows: Sequence[Row], current_version: int) -> None:
    """Raise ``InputError`` if a batch is empty or a row malformed; ``current_version`` is that of the policy's weights."""
    if not rows:
        raise InputError("an update needs at least one row, found none.")
    for number, row in enumerate(rows):
        if not row.tokens or not len(row.tokens) == len(row.old_logprobs) == len(row.advantages):
            raise InputError(
                f"row {number} of an update: {len(row.tokens)} tokens, {len(row.old_logprobs)} log-probabilities and "
                f"{len(row.advantages)} advantages; expected equal numbers, at least one."
            )
        # A row may be from older weights (later batches of an epoch), but not from newer ones.
        if row.version is None or not 0 <= row.version <= current_version:
            raise InputError(
                f"row {number} of an update: drawn from weights of version {row.version}; expected one from 0 to "
                f"{current_version}, that of the present weights. Whoever samples must say from which weights "
                "(``Sample.version``)."
            )


def not_finite_error(file: Path, quantity: str, step: int, batch: dict[str, Any]) -> InputError:
    """Save the batch of an update that failed and return the error that says so."""
    # All ranks have the same rows.
    if backend.get_rank() == 0:
        write_json(file, {"found": quantity, "step": step, **batch})
    return InputError(
        f"update {step}: {quantity} is not finite; training stops. The batch is in {file}. "
        "Look for infinite advantages, returns or log-probabilities there, or lower the learning rate."
    )


@contextlib.contextmanager
def explain_out_of_memory(
    activity: str, settings: OptimSettings, first_remedy: str = ""
) -> Iterator[None]:
    """Turn running out of memory, the GPU's or the host's, into an ``InputError`` that names what to change.

    Args:
        activity: what is done in the block, as the message's subject.
        settings: in force.
        first_remedy: what to change before all else.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_memory_error = isinstance(error, torch.OutOfMemoryError | MemoryError)
        # The allocator of CPUs has no exception of its own.
        if not is_memory_error and "can't allocate memory" not in str(error):
            raise
        # CUDA's text goes on with a page of advice.
        first_line = str(error).strip().partition("\n")[0]
        reason = first_line[:MAX_REASON_LENGTH] or type(error).__name__
        raise InputError(
            f"{activity}: out of memory ({reason}). {first_remedy}{memory_remedy(settings)}"
        ) from error


def memory_remedy(settings: OptimSettings) -> str:
    """Return which settings would need less memory than those in force."""
    # What costs the least time first.
    changes = [f"lower micro_batch_tokens (now {settings.micro_batch_tokens})"]
    if not settings.gradient_checkpointing:
        changes.append("set gradient_checkpointing: true")
    if not settings.offload_optimizer:
        changes.append("set offload_optimizer: true (from zero_stage 1)")
    least_stage = max(2, settings.zero_stage)
    changes.append(
        f"raise ranks_per_run, with zero_stage {least_stage} or 3 (now {settings.zero_stage})"
    )
    return (
        f"Of the study's training or of the policy: {'; or '.join(changes)}. "
        "`threespo plan` says what a rank needs."
    )
