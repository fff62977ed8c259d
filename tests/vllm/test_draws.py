"""The real engine draws from the policy's own distribution, and a response's random numbers depend on its counters only."""

from collections import Counter

import pytest
import torch

from tests.vllm.checks import LONGEST, NEW, asked, gap
from threespo.errors import InputError
from threespo.policy.model import Policy
from threespo.policy.sampler import TorchSampler
from threespo.policy.vllm_engine import VllmEngine
from threespo.policy.vllm_sampler import VllmSampler
from threespo.protocol import Sample, SampleRequest


def tokens(replies: list[list[Sample]]) -> list[list[tuple[int, ...]]]:
    return [[one.tokens for one in reply] for reply in replies]


def test_logprobs_are_those_of_a_full_forward(sampler: VllmSampler, policy: Policy) -> None:
    requests = asked(12, 4)
    assert gap(policy, requests, sampler.sample(requests, seed=1, temperature=1.0)) < 1e-4


def test_temperature_is_part_of_the_logprobs(sampler: VllmSampler, policy: Policy) -> None:
    requests = asked(6, 4)
    for request, reply in zip(requests, sampler.sample(requests, seed=1, temperature=0.4), strict=True):
        ids = policy.encode_prompt(request.prompt)
        for one in reply:
            with torch.no_grad():
                logits = policy.model(torch.tensor([[*ids, *one.tokens]])).logits[0, len(ids) - 1 : -1]
            expected = (logits / 0.4).log_softmax(-1).gather(1, torch.tensor(one.tokens)[:, None])[:, 0]
            assert torch.tensor(one.logprobs) == pytest.approx(expected, abs=1e-4)


def test_temperature_zero_takes_the_most_probable_tokens_for_certain(
    sampler: VllmSampler, policy: Policy
) -> None:
    requests = asked(4, 3)
    for request, reply in zip(requests, sampler.sample(requests, seed=1, temperature=0.0), strict=True):
        ids = policy.encode_prompt(request.prompt)
        assert len(reply) == 3
        assert len(set(reply)) == 1
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*ids, *reply[0].tokens]])).logits[0, len(ids) - 1 : -1]
        assert list(reply[0].tokens) == logits.argmax(-1).tolist()
        assert set(reply[0].logprobs) == {0.0}


def test_first_tokens_are_as_frequent_as_they_are_probable(sampler: VllmSampler, policy: Policy) -> None:
    (request,) = asked(1, 4000)
    ids = policy.encode_prompt(request.prompt)
    with torch.no_grad():
        # The shipped policy knows its first token: smaller logits give the others a chance.
        policy.model.get_parameter("model.norm.weight").mul_(0.3)
        expected = policy.model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    (reply,) = sampler.sample((request,), seed=3, temperature=1.0)
    seen = Counter(one.tokens[0] for one in reply)
    common = [token for token in range(len(expected)) if float(expected[token]) * len(reply) >= 5]
    cells = [(seen[token], float(expected[token])) for token in common]
    cells.append((len(reply) - sum(count for count, _ in cells), 1 - sum(share for _, share in cells)))
    square = sum((count - len(reply) * share) ** 2 / (len(reply) * share) for count, share in cells)
    freedom = len(cells) - 1
    assert freedom >= 20
    # Five standard deviations above the mean.
    assert square < freedom + 5 * (2 * freedom) ** 0.5


def test_whole_responses_are_drawn_as_by_the_torch_sampler(sampler: VllmSampler, policy: Policy) -> None:
    requests, other = asked(6, 500), TorchSampler(policy, NEW, 256, LONGEST)
    ours = sampler.sample(requests, seed=5, temperature=1.0)
    theirs = other.sample(requests, seed=5, temperature=1.0)
    square, freedom = 0.0, 0
    for left, right in zip(ours, theirs, strict=True):
        assert tokens([left]) != tokens([right]), "the random numbers are others"
        # Parts of responses that are frequent enough to be counted: lengths, and what stands at the fourth place.
        for part in (
            lambda one: len(one.tokens),
            lambda one: one.tokens[:5][-1],
            lambda one: one.finished,
        ):
            counts = Counter(map(part, left)), Counter(map(part, right))
            kinds = [kind for kind in counts[0] | counts[1] if counts[0][kind] + counts[1][kind] >= 10]
            square += sum(
                (counts[0][kind] - counts[1][kind]) ** 2 / (counts[0][kind] + counts[1][kind])
                for kind in kinds
            )
            freedom += len(kinds)
    assert freedom >= 60
    # Each term has mean one where both draw alike; tables of one sum lose a degree of freedom each, which only helps.
    assert square < freedom + 5 * (2 * freedom) ** 0.5


def test_a_response_ends_with_its_end_token_or_at_the_limit(
    sampler: VllmSampler, policy: Policy
) -> None:
    replies = sampler.sample(asked(20), seed=2, temperature=1.3)
    samples = [one for reply in replies for one in reply]
    assert {one.finished for one in samples} == {True, False}
    for one in samples:
        assert not policy.eos_ids & set(one.tokens[:-1])
        assert one.finished == (one.tokens[-1] in policy.eos_ids)
        assert one.finished or len(one.tokens) == NEW
        assert len(one.logprobs) == len(one.tokens)
        assert one.text == policy.decode([one.tokens])[0]


def test_a_draw_is_the_same_alone_and_in_company(sampler: VllmSampler) -> None:
    requests = asked(16)
    together = sampler.sample(requests, seed=7, temperature=1.0)
    assert tokens(sampler.sample(requests[::-1], seed=7, temperature=1.0)[::-1]) == tokens(together)
    assert tokens([sampler.sample((one,), seed=7, temperature=1.0)[0] for one in requests]) == tokens(
        together
    )
    assert all(len(set(reply)) > 4 for reply in tokens(together))
    assert tokens(sampler.sample(requests, seed=8, temperature=1.0)) != tokens(together)


def test_equal_prompts_with_different_keys_are_drawn_independently(sampler: VllmSampler) -> None:
    (prompt,) = {one.prompt for one in asked(1)}
    requests = (SampleRequest(prompt, 8, ("a",)), SampleRequest(prompt, 8, ("b",)))
    first, second = sampler.sample(requests, seed=1, temperature=1.0)
    assert tokens([first]) != tokens([second])


def test_after_forgetting_the_same_requests_give_the_same_bytes(sampler: VllmSampler) -> None:
    requests = asked(10)
    first = sampler.sample(requests, seed=1, temperature=1.0)
    sampler.forget()
    assert repr(sampler.sample(requests, seed=1, temperature=1.0)) == repr(first)


def test_an_engine_that_does_not_fit_is_refused_in_one_line(policy: Policy) -> None:
    with pytest.raises(
        InputError, match=r"vLLM cannot start for .*small-s.*kv_cache_memory_bytes or memory_share"
    ) as error:
        VllmEngine(policy, NEW, LONGEST, kv_cache_memory_bytes=2**45)
    assert "\n" not in str(error.value)
