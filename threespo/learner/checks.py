"""What a learner refuses: settings out of range, malformed rows, and losses that are not finite."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import write_json
from threespo.learner import backend
from threespo.learner.optim import OptimSettings
from threespo.protocol import Row


def check_settings(settings: OptimSettings) -> None:
    """Raise ``InputError`` if a setting is out of range."""
    for name, good in (
        ("lr", settings.lr >= 0),
        ("grad_clip", settings.grad_clip > 0),
        ("micro_batch_tokens", settings.micro_batch_tokens > 0),
        ("zero_stage", settings.zero_stage in (0, 1, 2, 3)),
        ("temperature", settings.temperature > 0),
        ("padded_width", settings.padded_width is None or settings.padded_width > 0),
        ("dtype", settings.dtype in ("float32", "bfloat16")),
    ):
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


def check_rows(rows: Sequence[Row], present: int) -> None:
    """Raise ``InputError`` if a batch is empty or a row malformed.

    Args:
        rows: the batch.
        present: version of the present weights.
    """
    if not rows:
        raise InputError("an update needs at least one row, found none.")
    for number, row in enumerate(rows):
        if not row.tokens or not len(row.tokens) == len(row.old_logprobs) == len(row.advantages):
            raise InputError(
                f"row {number} of an update: {len(row.tokens)} tokens, {len(row.old_logprobs)} log-probabilities and "
                f"{len(row.advantages)} advantages; expected equal numbers, at least one."
            )
        if row.version is None or not 0 <= row.version <= present:
            raise InputError(
                f"row {number} of an update: drawn from weights of version {row.version}; expected one from 0 to {present}, "
                "that of the present weights. Whoever samples must say from which weights (``Sample.version``)."
            )


def not_finite_error(file: Path, what: str, step: int, batch: dict[str, Any]) -> InputError:
    """Save the batch of an update that failed and return the error that says so."""
    if backend.get_rank() == 0:
        write_json(file, {"found": what, "step": step, **batch})
    return InputError(
        f"update {step}: {what} is not finite; training stops. The batch is in {file}. "
        "Look for infinite advantages, returns or log-probabilities there, or lower the learning rate."
    )
