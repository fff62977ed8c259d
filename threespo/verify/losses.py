"""Replay reference cases of the training loss: its parts, its aggregations, and its gradient."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from threespo.learner.loss import k3, policy_losses, token_weights
from threespo.protocol import LossSettings
from threespo.verify import Report, read_cases, timed_report

_FIELDS = ("old_logp", "logp", "ref_logp", "advantages", "mask", "agg_mode", "kl_coef", "expected")
_TOLERANCE = 1e-6


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare every case in float64: losses, clip fractions, KL, per-token values, and d loss / d log pi."""
    with timed_report("losses") as report:
        for case in read_cases(file, _FIELDS):
            error = max(deviations(case, torch.float64).values())
            report.add_case(error <= _TOLERANCE, error)
    return report


def deviations(case: dict[str, Any], dtype: torch.dtype) -> dict[str, float]:
    """Return the largest deviation of each expected quantity, relative to max(1, |expected|).

    Args:
        case: a reference case.
        dtype: of the computation; the reference is float64.
    """
    found = _compute(case, dtype)
    result: dict[str, float] = {}
    for name, value in case["expected"].items():
        expected = torch.tensor(value, dtype=torch.float64)
        error = (found[name].double() - expected).abs() / expected.abs().clamp(min=1.0)
        result[name] = float(error.max())
    return result


def _compute(case: dict[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    mask = torch.tensor(case["mask"], dtype=torch.bool)
    old_logprobs = torch.tensor(case["old_logp"], dtype=dtype)[mask]
    reference = torch.tensor(case["ref_logp"], dtype=dtype)[mask]
    advantages = torch.tensor(case["advantages"], dtype=dtype)[mask]
    logprobs = torch.tensor(case["logp"], dtype=dtype)[mask].requires_grad_()
    settings = LossSettings(
        clip_low=case["clip_low"],
        clip_high=case["clip_high"],
        clip_dual=case["clip_c"],
        kl_coef=case["kl_coef"],
        aggregation=case["agg_mode"],
    )

    # Values are of response tokens alone, (tokens,), as the learner has them; the reference has (rows, width) and a mask.
    lengths = mask.sum(dim=1)
    rows, width = mask.shape
    weights = token_weights(lengths, torch.ones(rows, dtype=dtype), settings.aggregation, width)

    losses = policy_losses(logprobs, old_logprobs, advantages, settings)
    kl = k3(logprobs, reference)
    policy_loss = (losses.policy * weights).sum()
    kl_loss = (kl * weights).sum()
    total = policy_loss + settings.kl_coef * kl_loss
    (gradient,) = torch.autograd.grad(total, logprobs)

    def padded(values: Tensor) -> Tensor:
        return torch.zeros(mask.shape, dtype=dtype).masked_scatter(mask, values.detach())

    return {
        "pg_loss": policy_loss.detach(),
        "clipfrac": losses.clipped.double().mean(),
        "clipfrac_lower": losses.dual_clipped.double().mean(),
        "approx_kl": (old_logprobs - logprobs.detach()).mean(),
        "kl_loss": kl_loss.detach(),
        "total_loss": total.detach(),
        "pg_loss_tokens": padded(losses.policy),
        "kl_tokens": padded(kl),
        "grad_logp": padded(gradient),
    }
