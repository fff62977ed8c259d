"""Linear layers through oneDNN compute what torch's own do, gradients included."""

import copy

import pytest
import torch
from torch import nn

from threespo.policy import linear


@pytest.mark.parametrize("shape", [(3, 40), (64, 40), (5, 33, 40)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_equal_those_of_torch(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(40, 24, bias=bias)
    fast = copy.deepcopy(plain)
    linear.use_onednn(nn.Sequential(fast))
    results = []
    for layer in (plain, fast):
        states = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).requires_grad_()
        output = layer(states)
        output.square().sum().backward()
        results.append(
            [output.detach(), states.grad, *(parameter.grad for parameter in layer.parameters())]
        )
    for expected, got in zip(*results, strict=True):
        assert expected is not None
        assert got is not None
        assert got.shape == expected.shape
        assert float((got - expected).norm() / expected.norm()) < 1e-6


def test_installing_keeps_parameters_and_their_names() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
    before = dict(model.named_parameters())
    linear.use_onednn(model)
    assert isinstance(model[0], linear.OneDnnLinear)
    assert all(parameter is before[name] for name, parameter in model.named_parameters())


def test_a_copy_is_independent() -> None:
    model = nn.Sequential(nn.Linear(20, 20))
    linear.use_onednn(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
        twin[0].bias.zero_()
    assert not torch.equal(model(torch.ones(32, 20)), twin(torch.ones(32, 20)))
