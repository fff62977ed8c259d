"""What is said when memory runs out: the settings that decide how much is needed."""

import contextlib
from collections.abc import Iterator

import torch

from threespo.errors import InputError
from threespo.learner.optim import OptimSettings

LOWER_CACHE_FIRST = "Lower policies.NAME.vllm.kv_cache_memory_bytes first. "
"""Of a draw by an engine, whose cache is the largest thing that only it needs."""


@contextlib.contextmanager
def explain_out_of_memory(doing: str, settings: OptimSettings, first: str = "") -> Iterator[None]:
    """Turn running out of memory, the GPU's or the host's, into an ``InputError`` that names what to change.

    Args:
        doing: what is done in the block, as the message's subject.
        settings: in force.
        first: what to change before all else.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _exhausted(error):
            raise
        raise InputError(
            f"{doing}: out of memory ({_first_line(error)}). {first}{memory_remedy(settings)}"
        ) from error


def memory_remedy(settings: OptimSettings) -> str:
    """Return which settings would need less memory than those in force."""
    more = [f"lower micro_batch_tokens (now {settings.micro_batch_tokens})"]
    more += [] if settings.gradient_checkpointing else ["set gradient_checkpointing: true"]
    more += [] if settings.offload_optimizer else ["set offload_optimizer: true (from zero_stage 1)"]
    more += [
        f"raise ranks_per_run, with zero_stage {max(2, settings.zero_stage)} or 3 (now {settings.zero_stage})"
    ]
    return f"Of the study's training or of the policy: {'; or '.join(more)}. `threespo plan` says what a rank needs."


def _exhausted(error: Exception) -> bool:
    # The allocator of CPUs has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(
        error
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
