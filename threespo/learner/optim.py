"""Settings of the optimizer, shared by learner and critic."""

from dataclasses import dataclass

CHECKPOINT_BYTES = {("float32", 0): 12, ("float32", 1): 16, ("float32", 2): 16, ("float32", 3): 12,
                    ("bfloat16", 1): 14, ("bfloat16", 2): 14, ("bfloat16", 3): 12}  # fmt: skip
"""Bytes of a checkpoint per parameter, by number type and ZeRO stage: float32 master weights and both
moments, and, below stage 3, the weights as the model computes with them (at stage 0 in float32 these are
the master weights). Measured."""


@dataclass(frozen=True, slots=True)
class OptimSettings:
    """Settings of the optimizer and of how a batch is computed."""

    lr: float = 1e-6
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    grad_clip: float = 1.0
    """Largest norm of the gradient."""
    micro_batch_tokens: int = 2048
    """Packed tokens computed at once; bounds memory and has no influence on the step but rounding."""
    zero_stage: int = 0
    """DeepSpeed ZeRO stage, 0 to 3; in bfloat16 from 1."""
    dtype: str = "float32"
    """``float32`` or ``bfloat16`` (with float32 master weights and float32 sums of gradients)."""
    temperature: float = 1.0
    """Sampling temperature, which the log-probabilities include."""
    padded_width: int | None = None
    """Constant of ``seq-mean-token-sum-norm``, in tokens; ``None``: the longest response of the batch."""
    gradient_checkpointing: bool = False
    """Compute activations a second time in the backward pass instead of keeping them: less memory, a third more work."""
    offload_optimizer: bool = False
    """Keep master weights and moments in the host's memory and take the steps there; from ZeRO 1."""
