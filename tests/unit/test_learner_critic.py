"""The critic gives the values of a plain forward, and takes plain AdamW steps on the clipped value loss."""

import dataclasses
import random
from pathlib import Path

import pytest
import torch

from tests.models import policy, prompt
from threespo.errors import InputError
from threespo.learner.critic import DeepSpeedCritic
from threespo.learner.loss import value_losses
from threespo.learner.optim import OptimSettings
from threespo.policy.model import Policy
from threespo.protocol import ValueRequest, ValueRow, ValueUpdateRequest

SETTINGS = OptimSettings(lr=1e-2, micro_batch_tokens=60)
CLIP = 0.5


def critic(tmp_path: Path, **changes: object) -> DeepSpeedCritic:
    return DeepSpeedCritic(policy(0), dataclasses.replace(SETTINGS, **changes), tmp_path / "failed")  # type: ignore[arg-type]


def rows(seed: int, count: int = 9, copies: int = 3) -> tuple[ValueRow, ...]:
    """Return random rows, ``copies`` for each prompt."""
    rng = random.Random(seed)
    texts = [prompt(rng) for _ in range(-(-count // copies))]
    result = []
    for number in range(count):
        length = rng.randint(1, 9)
        tokens = tuple(rng.randrange(3, 63) for _ in range(length))
        draws = [tuple(rng.gauss(0, 1) for _ in range(length)) for _ in range(2)]
        result.append(ValueRow(texts[number // copies], tokens, *draws))
    return tuple(result)


def naive_values(
    backbone: Policy, head: torch.Tensor, text: str, tokens: tuple[int, ...]
) -> torch.Tensor:
    """Return the values before each token and after the last, from one plain full forward."""
    ids = backbone.encode_prompt(text)
    hidden = backbone.model.base_model(
        torch.tensor([[*ids, *tokens]]), use_cache=False
    ).last_hidden_state[0]
    return (hidden[len(ids) - 1 :] @ head.T)[:, 0]


def plain_steps(batches: list[tuple[ValueRow, ...]]) -> tuple[Policy, torch.Tensor, list[float]]:
    trained = policy(0)
    head = torch.nn.Parameter(torch.zeros(1, 48))
    optimizer = torch.optim.AdamW(
        [*trained.model.base_model.parameters(), head], lr=1e-2, weight_decay=0.01
    )
    losses = []
    for batch in batches:
        terms = []
        for row in batch:
            values = naive_values(trained, head, row.prompt, row.tokens)[:-1]
            old, returns = torch.tensor(row.old_values), torch.tensor(row.returns)
            bounded = torch.maximum(torch.minimum(values, old + CLIP), old - CLIP)
            terms.append(0.5 * torch.maximum((values - returns) ** 2, (bounded - returns) ** 2))
        loss = torch.cat(terms).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*trained.model.base_model.parameters(), head], 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return trained, head.detach(), losses


def values_of(batch: tuple[ValueRow, ...], source: DeepSpeedCritic) -> list[list[float]]:
    return source.values(ValueRequest(tuple((row.prompt, row.tokens) for row in batch)))


@pytest.mark.parametrize("micro_batch_tokens", [1, 60, 5000])
def test_steps_and_values_are_those_of_plain_code(tmp_path: Path, micro_batch_tokens: int) -> None:
    batches, probe = [rows(0), rows(1), rows(2)], rows(3)
    ours = critic(tmp_path, micro_batch_tokens=micro_batch_tokens)
    assert {value for row in values_of(probe, ours) for value in row} == {0.0}, (
        "it begins without an opinion"
    )
    stats = ours.update(ValueUpdateRequest(tuple(batches), CLIP))
    trained, head, losses = plain_steps(batches)
    assert [one.loss for one in stats] == pytest.approx(losses, rel=1e-4)
    for row, got in zip(probe, values_of(probe, ours), strict=True):
        with torch.no_grad():
            expected = naive_values(trained, head, row.prompt, row.tokens)
        assert len(got) == len(row.tokens) + 1
        # Adam divides by the gradient's own size, so rounding shows where a gradient nearly vanishes.
        assert got == pytest.approx(expected.tolist(), abs=1e-3)
    assert max(map(max, values_of(probe, ours))) > 0.05


def test_the_clip_keeps_values_near_their_old_ones() -> None:
    """V = 1, V_old = 0, G = 3: clipped to 0.5 it is farther from G, so the clip decides and the gradient is zero."""
    values = torch.tensor([1.0, 0.2, 1.0], requires_grad=True)
    losses, clipped = value_losses(values, torch.zeros(3), torch.tensor([3.0, 3.0, 0.0]), 0.5)
    assert losses.tolist() == pytest.approx([0.5 * 2.5**2, 0.5 * 2.8**2, 0.5])
    assert clipped.tolist() == [True, False, False]
    (gradient,) = torch.autograd.grad(losses.sum(), values)
    assert gradient.tolist() == pytest.approx([0.0, -2.8, 1.0])


def test_a_critic_learns_which_prompt_pays(tmp_path: Path) -> None:
    rng = random.Random(5)
    texts = [prompt(rng) for _ in range(6)]
    batch = tuple(
        ValueRow(text, (5, 7, 9), (0.0,) * 3, (10.0 * (number % 2),) * 3)
        for number, text in enumerate(texts)
    )
    ours = critic(tmp_path)
    for _ in range(120):
        ours.update(ValueUpdateRequest((batch,), 100.0))
    for number, values in enumerate(values_of(batch, ours)):
        assert values[:-1] == pytest.approx([10.0 * (number % 2)] * 3, abs=1.0)


def test_it_goes_on_bit_exactly_from_a_checkpoint(tmp_path: Path) -> None:
    first = critic(tmp_path)
    first.update(ValueUpdateRequest((rows(0), rows(1)), CLIP))
    first.save(tmp_path / "checkpoint")
    second = critic(tmp_path)
    second.load(tmp_path / "checkpoint")
    request = ValueUpdateRequest((rows(2), rows(3)), CLIP)
    assert second.steps == 2
    assert second.update(request) == first.update(request)
    assert values_of(rows(4), second) == values_of(rows(4), first)


def test_bad_rows_and_infinite_returns_are_named(tmp_path: Path) -> None:
    ours = critic(tmp_path)
    with pytest.raises(
        InputError, match=r"row 0 of a critic's update: 2 tokens, 1 old values and 2 returns"
    ):
        ours.update(ValueUpdateRequest(((ValueRow("w1", (4, 5), (0.0,), (0.0, 0.0)),),), CLIP))
    with pytest.raises(
        InputError, match=r"the critic's loss (inf|nan) is not finite.*critic-update-000000\.json"
    ):
        ours.update(ValueUpdateRequest(((ValueRow("w1", (4,), (0.0,), (float("inf"),)),),), CLIP))
    assert (tmp_path / "failed" / "critic-update-000000.json").is_file()
