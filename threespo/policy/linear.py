"""Linear layers on a CPU through oneDNN.

torch sends float32 products to MKL, which on processors that are not Intel's uses half of the vector width; oneDNN does
not: on one core of an AMD EPYC (Zen 5) it reached 230 GFLOP/s against 105. The sums are the same up to their order.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# oneDNN keeps what it has compiled for each shape, 1,024 of them; packs hardly ever have the same length twice, so that is
# half a gigabyte for nothing. Read when the first product is computed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

_MIN_ROWS = 16
"""With fewer rows than this the call itself costs more than the product."""


def onednn_linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``states @ weight.T + bias``, as ``torch.nn.functional.linear``; gradients are not recorded.

    Args:
        states: (…, inputs).
        weight: (outputs, inputs).
        bias: (outputs,).
    """
    if not _is_onednn_faster(states):
        return F.linear(states, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return product


class OneDnnLinear(nn.Linear):
    """``nn.Linear`` with its three products (output and both gradients) computed by ``onednn_linear``."""

    def forward(self, states: Tensor) -> Tensor:
        """Return ``states @ weight.T + bias``."""
        if not _is_onednn_faster(states):
            return F.linear(states, self.weight, self.bias)
        product: Tensor = _LinearFunction.apply(states, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product


def use_onednn(model: nn.Module) -> None:
    """Turn every ``nn.Linear`` of the model, in place, into a ``OneDnnLinear``; parameters and their names stay."""
    for module in model.modules():
        if type(module) is nn.Linear:
            # A new module in its place would break what refers to the old one, tied weights and hooks included.
            module.__class__ = OneDnnLinear


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        ctx.has_bias = bias is not None
        return onednn_linear(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        output_gradient = gradients[0].reshape(-1, weight.shape[0])
        states_gradient = weight_gradient = bias_gradient = None
        # ``onednn_linear`` multiplies by a transposed matrix, so each of these products passes it a transposed copy.
        if ctx.needs_input_grad[0]:
            product = onednn_linear(output_gradient, weight.t().contiguous())
            states_gradient = product.view(states.shape)
        if ctx.needs_input_grad[1]:
            flat_states = states.reshape(-1, weight.shape[1])
            weight_gradient = onednn_linear(
                output_gradient.t().contiguous(), flat_states.t().contiguous()
            )
        if ctx.has_bias and ctx.needs_input_grad[2]:
            bias_gradient = output_gradient.sum(dim=0)
        return states_gradient, weight_gradient, bias_gradient


def _is_onednn_faster(states: Tensor) -> bool:
    return (
        states.device.type == "cpu"
        and states.dtype == torch.float32
        and states.numel() >= _MIN_ROWS * states.shape[-1]
        and torch.backends.mkldnn.is_available()
        # Under autocast torch itself multiplies in bfloat16, through oneDNN.
        and not torch.is_autocast_enabled("cpu")
    )
