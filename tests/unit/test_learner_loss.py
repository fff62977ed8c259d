"""The loss equals reference values computed by the released implementation."""

import json
import lzma
from pathlib import Path

import pytest
import torch

from threespo.errors import InputError
from threespo.learner.loss import k3, policy_losses, token_weights
from threespo.protocol import LossSettings
from threespo.verify.losses import deviations, verify


def test_all_reference_cases_are_reproduced(golden: Path) -> None:
    report = verify(golden / "losses.jsonl.xz")
    assert (report.cases, report.mismatches) == (12, 0)
    assert report.max_abs_error <= 1e-6


def test_float32_stays_within_its_rounding(golden: Path) -> None:
    with lzma.open(golden / "losses.jsonl.xz", "rt") as lines:
        assert max(max(deviations(json.loads(line), torch.float32).values()) for line in lines) <= 1e-5


def test_a_changed_reference_is_noticed(golden: Path, tmp_path: Path) -> None:
    with lzma.open(golden / "losses.jsonl.xz", "rt") as lines:
        case = json.loads(next(lines))
    case["expected"]["grad_logp"][0][0] += 1e-4
    (tmp_path / "changed.jsonl").write_text(json.dumps(case) + "\n")
    assert verify(tmp_path / "changed.jsonl").mismatches == 1


def test_k3_has_no_gradient_above_its_cap() -> None:
    logprobs = torch.tensor([-9.0, -1.0], dtype=torch.float64, requires_grad=True)
    values = k3(logprobs, torch.tensor([-1.0, -1.5], dtype=torch.float64))
    values.sum().backward()
    assert values.tolist() == pytest.approx([10.0, 0.6065306597126334 - 0.5], abs=1e-12)
    # d/dlogp (e^d - d - 1) = 1 - e^d
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1 - 0.6065306597126334], abs=1e-12)


def test_dual_clip_bounds_the_loss_of_negative_advantages() -> None:
    losses = policy_losses(
        torch.tensor([0.0]), torch.tensor([-3.0]), torch.tensor([-2.0]), LossSettings()
    )
    assert losses.policy.item() == pytest.approx(2.0 * 3.0)
    assert losses.dual_clipped.item()


LENGTHS = torch.tensor([1, 4, 2])
WEIGHTS = torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("aggregation", "per_row"),
    [
        ("token-mean", [1 / 7, 1 / 7, 1 / 7]),
        ("seq-mean-token-sum", [1 / 4, 3 / 4, 0]),
        ("seq-mean-token-mean", [1 / 4, 3 / 16, 0]),
        ("seq-mean-token-sum-norm", [3 / 40, 9 / 40, 0]),
    ],
)
def test_token_weights_by_hand(aggregation: str, per_row: list[float]) -> None:
    got = token_weights(LENGTHS, WEIGHTS, aggregation, padded_width=10)  # type: ignore[arg-type]
    expected = [
        weight for weight, length in zip(per_row, LENGTHS.tolist(), strict=True) for _ in range(length)
    ]
    assert got.tolist() == pytest.approx(expected, abs=1e-15)


def test_weights_without_a_positive_sum_are_refused() -> None:
    with pytest.raises(InputError, match="positive sum"):
        token_weights(LENGTHS, torch.zeros(3, dtype=torch.float64), "seq-mean-token-mean", 10)
