"""Packed, prompt-sharing log-probabilities and their gradients equal those of plain full forwards."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import naive_logprobs, policy, rows
from threespo.errors import InputError
from threespo.learner.forward import (
    Group,
    ResponseScorer,
    cut_micro_batches,
    group_by_prompt,
    pack_groups,
)
from threespo.policy.model import Policy
from threespo.protocol import Row

CPU = torch.device("cpu")


def gradients(source: Policy) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in source.model.named_parameters():
        assert parameter.grad is not None
        found[name], parameter.grad = parameter.grad, None
    return found


def packed_logprobs(source: Policy, batch: Sequence[Row], limit: int) -> list[torch.Tensor]:
    scorer = ResponseScorer(source.model)
    result: list[torch.Tensor] = [torch.empty(0)] * len(batch)
    groups = group_by_prompt(
        [source.encode_prompt(row.prompt) for row in batch], [row.tokens for row in batch]
    )
    for part in cut_micro_batches(groups, limit):
        packed = pack_groups(part, CPU, next(source.model.parameters()).dtype)
        values, _ = scorer(packed, 1.0)
        for row, logprobs in zip(packed.rows, values.split(packed.lengths), strict=True):
            result[row] = logprobs
    return result


def weighted(logprobs: list[torch.Tensor], batch: Sequence[Row]) -> torch.Tensor:
    return torch.stack(
        [
            (part * torch.tensor(row.advantages, dtype=part.dtype)).sum()
            for part, row in zip(logprobs, batch, strict=True)
        ]
    ).sum()


@pytest.mark.parametrize(("llama", "seed"), [(False, 0), (False, 1), (True, 2)])
@pytest.mark.parametrize("limit", [1, 60, 100_000])
def test_loss_and_gradients_equal_the_naive_ones(llama: bool, seed: int, limit: int) -> None:
    batch = (*rows(seed, groups=4, size=5), *rows(seed + 50, groups=4, size=1))
    plain, shared = policy(seed, llama=llama), policy(seed, llama=llama)
    expected = weighted([naive_logprobs(plain, row.prompt, row.tokens) for row in batch], batch)
    got = weighted(packed_logprobs(shared, batch, limit), batch)
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    got.backward()
    for (name, one), other in zip(gradients(plain).items(), gradients(shared).values(), strict=True):
        assert float((one - other).norm() / one.norm()) <= 1e-5, name


def test_gradient_checkpointing_changes_nothing() -> None:
    batch = rows(3, groups=3, size=4)
    plain, frugal = policy(), policy()
    frugal.model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    frugal.model.train()
    for source in (plain, frugal):
        weighted(packed_logprobs(source, batch, 100), batch).backward()
    for one, other in zip(gradients(plain).values(), gradients(frugal).values(), strict=True):
        assert torch.equal(one, other)


def test_entropy_and_temperature() -> None:
    source, batch = policy(), rows(4, groups=1, size=1)
    ids = source.encode_prompt(batch[0].prompt)
    packed = pack_groups(group_by_prompt([ids], [batch[0].tokens]), CPU, torch.float32)
    with torch.no_grad():
        logits = (
            source.model(torch.tensor([[*ids, *batch[0].tokens]])).logits[0, len(ids) - 1 : -1] / 0.7
        )
        logprobs, entropy = ResponseScorer(source.model)(packed, 0.7)
    expected = torch.distributions.Categorical(logits=logits)
    assert torch.allclose(entropy, expected.entropy(), atol=1e-5)
    assert torch.allclose(logprobs, expected.log_prob(torch.tensor(batch[0].tokens)), atol=1e-5)


def test_the_model_still_answers_ordinary_calls() -> None:
    plain, installed = policy(), policy()
    ResponseScorer(installed.model)
    tokens = torch.tensor([[0, 0, 5, 6, 7], [4, 5, 6, 7, 8]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    with torch.no_grad():
        expected = plain.model(tokens, attention_mask=mask).logits
        got = installed.model(tokens, attention_mask=mask).logits
    assert torch.allclose(got[mask.bool()], expected[mask.bool()], atol=1e-5)


def test_models_with_sliding_windows_are_refused() -> None:
    source = policy()
    source.model.config.layer_types = ["sliding_attention", "full_attention", "full_attention"]
    with pytest.raises(InputError, match="sliding_attention cannot be trained"):
        ResponseScorer(source.model)


groups_strategy = st.lists(
    st.tuples(st.integers(1, 30), st.lists(st.integers(1, 12), min_size=1, max_size=6)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(groups_strategy, st.integers(1, 120))
def test_cutting_keeps_every_row_once_and_within_the_limit(
    shapes: list[tuple[int, list[int]]], limit: int
) -> None:
    number = itertools.count()
    groups = [
        Group(
            (index,) * prompt,
            tuple((9,) * length for length in lengths),
            tuple(next(number) for _ in lengths),
        )
        for index, (prompt, lengths) in enumerate(shapes)
    ]
    batches = cut_micro_batches(groups, limit)
    assert [row for batch in batches for group in batch for row in group.rows] == list(
        range(next(number))
    )
    for batch in batches:
        alone = len(batch) == 1 and len(batch[0].rows) == 1
        assert sum(group.tokens for group in batch) <= limit or alone


def test_prompts_are_in_a_pack_once_and_nothing_is_padded() -> None:
    groups = group_by_prompt([[1, 2], [3], [1, 2]], [[4, 5], [6, 7, 8], [9]])
    packed = pack_groups(groups, CPU, torch.float32)
    assert packed.tokens.tolist() == [[1, 2, 4, 3, 6, 7]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1, 2]]
    assert packed.predictors.tolist() == [1, 2, 1, 3, 4, 5]
    assert packed.targets.tolist() == [4, 5, 9, 6, 7, 8]
    assert packed.rows == (0, 2, 1)
