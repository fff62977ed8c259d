"""The sampler draws from the model's own distribution, and a draw depends on its counters only."""

import dataclasses
import itertools
from collections import Counter

import pytest
import torch

from tests.models import naive_logprobs, policy, requests
from threespo.errors import InputError
from threespo.policy.draw import draw_tokens
from threespo.policy.model import Policy
from threespo.policy.sampler import TorchSampler
from threespo.protocol import Sample, SampleRequest


def sample(
    source: Policy,
    asked: tuple[SampleRequest, ...],
    limit: int = 64,
    temperature: float = 1.0,
    new_tokens: int = 14,
) -> list[list[Sample]]:
    sampler = TorchSampler(
        source, max_new_tokens=new_tokens, max_batch_rows=limit, max_prompt_tokens=100
    )
    return sampler.sample(asked, seed=5, temperature=temperature)


@pytest.fixture(scope="module", params=["qwen2", "qwen2-untied", "llama"])
def any_policy(request: pytest.FixtureRequest) -> Policy:
    """Qwen2 goes through the direct forward, Llama through the stock one."""
    return policy(llama=request.param == "llama", tied=request.param != "qwen2-untied")


def test_logprobs_are_those_of_a_full_forward(any_policy: Policy) -> None:
    asked = requests(1, 12)
    worst = 0.0
    for request, samples in zip(asked, sample(any_policy, asked), strict=True):
        assert len(samples) == request.count
        for drawn in samples:
            with torch.no_grad():
                expected = naive_logprobs(any_policy, request.prompt, drawn.tokens)
            worst = max(worst, float((torch.tensor(drawn.logprobs) - expected).abs().max()))
    assert worst <= 1e-4


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_batching_changes_no_token(any_policy: Policy, limit: int) -> None:
    asked = requests(2, 25)
    expected = sample(any_policy, asked, limit=64)
    got = sample(any_policy, asked, limit=limit)
    # Rounding could in principle move a draw that lies within 1e-5 of a boundary: none here.
    assert [[s.tokens for s in group] for group in got] == [
        [s.tokens for s in group] for group in expected
    ]


def test_order_and_company_of_requests_change_no_token(any_policy: Policy) -> None:
    asked = requests(3, 10)
    together = sample(any_policy, asked)
    backwards = sample(any_policy, asked[::-1])[::-1]
    alone = [sample(any_policy, (request,))[0] for request in asked]
    for other in (backwards, alone):
        assert [[s.tokens for s in group] for group in other] == [
            [s.tokens for s in group] for group in together
        ]


def test_a_common_beginning_is_read_once_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from threespo.policy import decode

    source, opening = policy(), " ".join(f"w{number}" for number in range(24))
    asked = tuple(dataclasses.replace(one, prompt=f"{opening} {one.prompt}") for one in requests(11, 12))
    alone = [sample(source, (request,))[0] for request in asked]
    read: list[int] = []
    prefill = decode.DirectModel.prefill

    def counting(self, tokens, *arguments):
        read.append(tokens.numel())
        return prefill(self, tokens, *arguments)

    monkeypatch.setattr(decode.DirectModel, "prefill", counting)
    together = sample(source, asked)
    assert [[s.tokens for s in group] for group in together] == [
        [s.tokens for s in group] for group in alone
    ]
    for request, samples in zip(asked, together, strict=True):
        with torch.no_grad():
            expected = naive_logprobs(source, request.prompt, samples[0].tokens)
        assert torch.tensor(samples[0].logprobs) == pytest.approx(expected, abs=1e-4)
    longest = max(len(source.encode_prompt(request.prompt)) for request in asked)
    assert read[0] >= 24
    assert sum(read[1:]) <= len(asked) * (longest - read[0])


def test_direct_and_stock_forward_draw_the_same() -> None:
    source, asked = policy(), requests(4, 20)
    stock = TorchSampler(source, max_new_tokens=14, max_batch_rows=64, max_prompt_tokens=100)
    stock._direct = False
    expected = stock.sample(asked, seed=5, temperature=1.0)
    got = sample(source, asked)
    assert [[s.tokens for s in group] for group in got] == [
        [s.tokens for s in group] for group in expected
    ]


def test_same_inputs_give_the_same_bytes() -> None:
    asked = requests(5, 10)
    assert repr(sample(policy(), asked)) == repr(sample(policy(), asked))


def test_equal_prompts_with_different_keys_are_drawn_independently() -> None:
    asked = (SampleRequest("w1 w2", 4, ("a",)), SampleRequest("w1 w2", 4, ("b",)))
    first, second = sample(policy(), asked)
    assert {s.tokens for s in first}.isdisjoint(s.tokens for s in second)


def test_frequencies_are_the_probabilities() -> None:
    source = policy(spread=0.1)
    ids = source.encode_prompt("w3 w4")
    with torch.no_grad():
        expected = source.model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    count = 20_000
    (drawn,) = sample(source, (SampleRequest("w3 w4", count, ("many",)),), limit=count, new_tokens=1)
    seen = Counter(s.tokens[0] for s in drawn)
    chi_square = sum(
        (seen[token] - count * float(p)) ** 2 / (count * float(p)) for token, p in enumerate(expected)
    )
    # 62 degrees of freedom: mean 62, standard deviation 11.1; five of them above.
    assert chi_square < 118


def test_temperature_is_part_of_the_logprobs() -> None:
    source, asked = policy(), requests(6, 4)
    for request, samples in zip(
        asked, sample(source, asked, temperature=0.4, new_tokens=1), strict=True
    ):
        with torch.no_grad():
            logits = source.model(torch.tensor([source.encode_prompt(request.prompt)])).logits[0, -1]
        expected = (logits / 0.4).log_softmax(-1)
        for drawn in samples:
            assert drawn.logprobs[0] == pytest.approx(float(expected[drawn.tokens[0]]), abs=1e-4)


def test_temperature_zero_takes_the_most_probable_token() -> None:
    source = policy()
    ((drawn,),) = sample(source, (SampleRequest("w5 w6 w7", 1, ("greedy",)),), temperature=0.0)
    ids = source.encode_prompt("w5 w6 w7")
    for token in drawn.tokens:
        with torch.no_grad():
            assert token == int(source.model(torch.tensor([ids])).logits[0, -1].argmax())
        ids = [*ids, token]


def test_a_response_ends_with_its_end_token_or_at_the_limit(any_policy: Policy) -> None:
    end = any_policy.tokenizer.eos_token_id
    samples = list(itertools.chain(*sample(any_policy, requests(7, 60))))
    assert {s.finished for s in samples} == {True, False}
    for drawn in samples:
        assert end not in drawn.tokens[:-1]
        assert drawn.finished == (drawn.tokens[-1] == end)
        assert drawn.finished or len(drawn.tokens) == 14
        assert len(drawn.logprobs) == len(drawn.tokens)
        words = any_policy.tokenizer.convert_ids_to_tokens(list(drawn.tokens))
        assert drawn.text.split() == [word for word in words if word != "<end>"]


def test_weights_are_read_anew_at_every_call() -> None:
    source, asked = policy(), requests(8, 3)
    before = sample(source, asked)
    sampler = TorchSampler(source, 14, 64, 100)
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter.mul_(1.5)
    after = sampler.sample(asked, seed=5, temperature=1.0)
    assert after == sample(source, asked) != before


def test_a_draw_at_the_upper_edge_is_a_possible_token() -> None:
    logits = torch.tensor([[0.0, 0.0, float("-inf")]])
    below_one = torch.tensor([1.0 - 2.0**-53], dtype=torch.float64)
    tokens, logprobs = draw_tokens(logits, below_one, 1.0)
    assert (tokens.item(), logprobs.item()) == (1, pytest.approx(-0.6931471805599453, abs=1e-15))
    tokens, _ = draw_tokens(logits, torch.tensor([0.0], dtype=torch.float64), 1.0)
    assert tokens.item() == 0


def test_no_request_gives_no_reply() -> None:
    assert sample(policy(), ()) == []
    assert sample(policy(), (SampleRequest("w1", 0, ("none",)),)) == [[]]


def test_prompts_over_the_limit_are_counted_and_named() -> None:
    asked = (*requests(9, 2), SampleRequest("w1 " * 120, 1, ("train", 3, "task-9")))
    with pytest.raises(
        InputError, match=r"1 of 3 prompts .* 100 tokens; the first, train/3/task-9, has 122"
    ):
        sample(policy(), asked)


@pytest.mark.parametrize("field", ["max_new_tokens", "max_batch_rows", "max_prompt_tokens"])
def test_limits_must_be_positive(field: str) -> None:
    limits = {"max_new_tokens": 4, "max_batch_rows": 4, "max_prompt_tokens": 4, field: 0}
    with pytest.raises(InputError, match=field):
        TorchSampler(policy(), **limits)


def test_a_negative_temperature_is_refused() -> None:
    with pytest.raises(InputError, match="temperature"):
        sample(policy(), requests(1, 1), temperature=-1.0)


def test_a_response_limit_beyond_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="max_new_tokens: found 256"):
        TorchSampler(policy(), 256, 4, 4)


def test_models_that_the_direct_forward_does_not_know_are_sampled_through_their_own() -> None:
    from threespo.policy.decode import is_supported

    assert is_supported(policy().model)
    assert not is_supported(policy(llama=True).model)
    sliding = policy()
    sliding.model.config.layer_types = ["sliding_attention"] * 3
    assert not is_supported(dataclasses.replace(sliding).model)
