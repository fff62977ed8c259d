"""The training loss (eq. 5): clipped surrogate with dual clip, and the k3 estimate of the KL divergence.

Everything is per response token, flat, row after row. So nothing is padded, and a batch can be cut into
micro-batches anywhere: each token's share of the whole batch's mean (``token_weights``) is fixed
beforehand.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from threespo.errors import InputError
from threespo.protocol import Aggregation, LossSettings

MAX_KL = 10.0
"""k3 is capped here per token; the gradient above is zero."""


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """The parts of the loss for each response token."""

    policy: Float[Tensor, " tokens"]
    """Clipped surrogate with dual clip."""
    clipped: Bool[Tensor, " tokens"]
    """Whether the clipped ratio decided (before the dual clip)."""
    dual_clipped: Bool[Tensor, " tokens"]
    """Whether the dual clip decided."""


def policy_losses(
    logprobs: Float[Tensor, " tokens"],
    old_logprobs: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    settings: LossSettings,
) -> TokenLosses:
    """Return the clipped surrogate of each token (eq. 5): max(-A r, -A clip(r)), for A < 0 at most ``-A clip_dual``.

    Args:
        logprobs: log pi of each token, (tokens,), with gradient.
        old_logprobs: log pi_old of each token, (tokens,).
        advantages: advantage of each token, (tokens,).
        settings: the clip ranges.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    unclipped = -advantages * ratio
    clipped_ratio = torch.clamp(ratio, 1.0 - settings.clip_low, 1.0 + settings.clip_high)
    clipped = -advantages * clipped_ratio
    # The larger loss of both: clipping never makes a step look better than it is.
    pessimistic = torch.maximum(unclipped, clipped)

    # Dual clip: without this bound a token that became much more probable, and was bad, would dominate
    # the batch.
    negative = advantages < 0
    bound = -advantages * settings.clip_dual
    bounded = torch.where(negative, torch.minimum(pessimistic, bound), pessimistic)
    return TokenLosses(
        policy=bounded,
        clipped=clipped > unclipped,
        dual_clipped=negative & (pessimistic > bound),
    )


def k3(
    logprobs: Float[Tensor, " tokens"], reference: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Return the k3 estimate of KL(pi || pi_ref) of each token: e^d - d - 1, d = log pi_ref - log pi, at most 10.

    Args:
        logprobs: log pi of each token, (tokens,), with gradient.
        reference: log pi_ref of each token, (tokens,).
    """
    difference = reference - logprobs
    # Unlike -log ratio it is never negative, and before the cap it is unbiased for tokens drawn from pi.
    return torch.clamp(torch.exp(difference) - difference - 1.0, max=MAX_KL)


def value_losses(
    values: Float[Tensor, " tokens"],
    old_values: Float[Tensor, " tokens"],
    returns: Float[Tensor, " tokens"],
    clip: float,
) -> tuple[Float[Tensor, " tokens"], Bool[Tensor, " tokens"]]:
    """Return 0.5 max((V - G)^2, (clip(V, V_old - clip, V_old + clip) - G)^2) of each token, and where the clip decided.

    Args:
        values: V of each token, (tokens,), with gradient.
        old_values: V as it was when the advantages were computed, (tokens,).
        returns: G, the target of each token, (tokens,).
        clip: how far V may leave V_old before its loss stops falling, in units of return.
    """
    unclipped = (values - returns).square()
    clipped_values = torch.clamp(values, old_values - clip, old_values + clip)
    clipped = (clipped_values - returns).square()
    return 0.5 * torch.maximum(unclipped, clipped), clipped > unclipped


def token_weights(
    lengths: Int[Tensor, " rows"],
    row_weights: Float[Tensor, " rows"],
    aggregation: Aggregation,
    padded_width: int,
) -> Float[Tensor, " tokens"]:
    """Return each token's share: the aggregated loss is the weighted sum of the token losses over the whole batch.

    Args:
        lengths: response tokens of each row.
        row_weights: relative weight of each row; only their ratios count, and only where rows are averaged
            (``token-mean`` ignores them).
        aggregation: ``token-mean`` = sum / tokens; ``seq-mean-token-sum`` = weighted mean over rows of row sums;
            ``seq-mean-token-mean`` = weighted mean over rows of row means; ``seq-mean-token-sum-norm`` = sum (rows
            weighted with mean 1) / ``padded_width``.
        padded_width: the constant length of ``seq-mean-token-sum-norm``, in tokens.

    Raises:
        InputError: if the row weights do not have a positive sum, or the aggregation is unknown.
    """
    total_weight = float(row_weights.sum())
    if not total_weight > 0:
        raise InputError(f"row weights must have a positive sum, found {total_weight}.")

    # In every case the shares of all tokens of the batch are computed at once, before it is cut into
    # micro-batches.
    if aggregation == "token-mean":
        per_row = torch.full_like(row_weights, 1.0 / int(lengths.sum()))
    elif aggregation == "seq-mean-token-sum":
        per_row = row_weights / total_weight
    elif aggregation == "seq-mean-token-mean":
        per_row = row_weights / total_weight / lengths
    elif aggregation == "seq-mean-token-sum-norm":
        per_row = row_weights * len(lengths) / total_weight / padded_width
    else:
        raise InputError(
            f"loss.aggregation: found {aggregation!r}, which is not one of the four known ones."
        )
    return torch.repeat_interleave(per_row, lengths)
