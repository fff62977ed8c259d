"""Weights reach the real engine bit by bit, and a sampler that leaves out a part of that is found out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.vllm.checks import LONGEST, NEW, SHIPPED, asked, gap, started, step
from threespo.errors import InputError
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy import vllm_engine
from threespo.policy.model import Policy, load_policy
from threespo.policy.vllm_engine import VllmEngine
from threespo.policy.vllm_sampler import VllmSampler
from threespo.policy.weight_sync import SyncError
from threespo.protocol import LossSettings, Row, UpdateRequest


def differing(engine: nn.Module, source: Policy) -> int:
    """Count the numbers that differ between the engine's weights and the policy's, fused here by hand."""
    weights: dict[str, Tensor] = dict(source.model.named_parameters())
    count = 0
    for name, one in engine.named_parameters():
        parts = [name]
        for whole, pieces in (
            ("qkv_proj", ("q_proj", "k_proj", "v_proj")),
            ("gate_up_proj", ("gate_proj", "up_proj")),
        ):
            if whole in name:
                parts = [name.replace(whole, piece) for piece in pieces]
        expected = torch.cat([weights.pop(part) for part in parts])
        count += int((one[: len(expected)] != expected).sum())
    assert not weights, "a weight of the policy that the engine has not"
    return count


def learned(source: Policy, sampler: VllmSampler, rate: float) -> DeepSpeedLearner:
    """Take one optimizer step on sampled rows."""
    dtype = str(next(source.model.parameters()).dtype).removeprefix("torch.")
    learner = DeepSpeedLearner(source, None, OptimSettings(lr=rate, dtype=dtype))
    (request,) = asked(1)
    (reply,) = sampler.sample((request,), seed=1, temperature=1.0)
    rows = tuple(
        Row(
            request.prompt,
            one.tokens,
            one.logprobs,
            (float(place % 3) - 1.0,) * len(one.tokens),
            version=one.version,
        )
        for place, one in enumerate(reply)
    )
    (stats,) = learner.update(UpdateRequest((rows,), LossSettings(kl_coef=0.0)))
    assert stats.recomputed == stats.tokens, "the samples are of the weights that were learned from"
    return learner


def test_after_a_step_of_1e_6_all_bits_are_the_learners(
    sampler: VllmSampler, policy: Policy, engine: VllmEngine
) -> None:
    learned(policy, sampler, 1e-6)
    assert differing(engine.model, policy) > 1000
    sampler = VllmSampler(policy, engine, NEW, LONGEST)
    requests = asked(8)
    replies = sampler.sample(requests, seed=1, temperature=1.0)
    assert differing(engine.model, policy) == 0
    assert {one.version for reply in replies for one in reply} == {1}
    assert gap(policy, requests, replies) < 1e-4


def test_weights_follow_from_version_to_version(
    sampler: VllmSampler, policy: Policy, engine: VllmEngine
) -> None:
    requests = asked(8, 2)
    for number in range(3):
        replies = sampler.sample(requests, seed=1, temperature=1.0)
        assert gap(policy, requests, replies) < 1e-4
        assert {one.version for reply in replies for one in reply} == {number}
        step(policy, lambda one: one * 1.05)


def test_policies_take_turns_on_one_engine(sampler: VllmSampler, engine: VllmEngine) -> None:
    requests = asked(4, 2)
    sampler.sample(requests, seed=1, temperature=1.0)
    strong = load_policy(SHIPPED / "strong")
    sampler.set_policy(strong)
    assert gap(strong, requests, sampler.sample(requests, seed=1, temperature=1.0)) < 1e-4
    assert differing(engine.model, strong) == 0


def test_bfloat16_with_a_head_of_its_own() -> None:
    source = load_policy(SHIPPED / "base", dtype="bfloat16")
    model: Any = source.model
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    engine = started(source)
    sampler = VllmSampler(source, engine, NEW, LONGEST)
    requests = asked(4, 4)
    sampler.sample(requests, seed=1, temperature=1.0)
    assert differing(engine.model, source) == 0
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    source.version += 1
    replies = sampler.sample(requests, seed=1, temperature=1.0)
    assert differing(engine.model, source) == 0
    # Bfloat16 has eight bits: single tokens may be far off, means are not.
    assert gap(source, requests, replies) < 1.0


def test_an_engine_at_work_cannot_forget(
    sampler: VllmSampler, policy: Policy, engine: VllmEngine
) -> None:
    from vllm import SamplingParams

    sampler.sample(asked(1), seed=1, temperature=1.0)
    core = engine._llm.llm_engine
    core.add_request(
        "busy",
        {"prompt_token_ids": policy.encode_prompt(asked(1)[0].prompt)},
        SamplingParams(max_tokens=NEW),
    )
    core.step()
    step(policy, lambda one: one * 1.01)
    with pytest.raises(SyncError, match="did not reset its prefix cache"):
        sampler.sample(asked(1), seed=1, temperature=1.0)
    core.abort_request(["busy"])
    while core.has_unfinished_requests():
        core.step()
    assert gap(policy, asked(1), sampler.sample(asked(1), seed=1, temperature=1.0)) < 1e-4


# Mutants: what each part of a sync is there for


def follows(sampler: VllmSampler, source: Policy) -> bool:
    """Whether samples after a step are of the policy as it is then: the property that every mutant below must lose."""
    requests = asked(8, 2)
    sampler.sample(requests, seed=1, temperature=1.0)
    step(source, lambda one: one * 1.05)
    return gap(source, requests, sampler.sample(requests, seed=1, temperature=1.0)) < 1e-4


def test_the_property_holds_without_a_mutation(sampler: VllmSampler, policy: Policy) -> None:
    assert follows(sampler, policy)


def test_mutant_without_sync(
    sampler: VllmSampler, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler.sync()
    monkeypatch.setattr(VllmSampler, "sync", lambda self: setattr(self, "version", self.policy.version))
    assert not follows(sampler, policy)


def test_mutant_that_copies_nothing(
    sampler: VllmSampler, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler.sync()
    step(policy, lambda one: one * 1.05)
    monkeypatch.setattr(Tensor, "copy_", lambda self, *_: self)
    with pytest.raises(SyncError, match=r"\d+ of 38 weights"):
        sampler.sync()


def test_mutant_without_reset(
    sampler: VllmSampler, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VllmSampler, "forget", lambda self: None)
    try:
        assert not follows(sampler, policy)
    finally:
        monkeypatch.undo()
        sampler.forget()


@pytest.mark.parametrize("checked", [True, False])
def test_mutant_with_repacked_weights(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    import vllm.model_executor.layers.utils as layers

    # What the CPU build does without us.
    monkeypatch.setattr(vllm_engine, "_use_own_weight", layers.dispatch_cpu_unquantized_gemm)
    if checked:
        with pytest.raises(InputError, match="vLLM computes with repacked weights"):
            started(policy)
        return
    monkeypatch.setattr(vllm_engine, "check_weights_not_repacked", lambda model: None)
    engine = started(policy)
    with pytest.raises(InputError, match="vLLM cannot take its weights in place"):
        VllmSampler(policy, engine, NEW, LONGEST).sync()


def test_mutant_with_a_repacked_head(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.model_executor.layers.utils as layers

    original, plain = layers.dispatch_cpu_unquantized_gemm, vllm_engine._use_own_weight

    # Only of the head, which is the embedding: its weight is there, is synced, and is not what is computed with.
    def of_the_head(layer: nn.Module, remove_weight: bool) -> None:
        (plain if remove_weight else original)(layer, remove_weight)

    monkeypatch.setattr(vllm_engine, "_use_own_weight", of_the_head)
    monkeypatch.setattr(vllm_engine, "check_weights_not_repacked", lambda model: None)
    engine = started(policy)
    sampler = VllmSampler(policy, engine, NEW, LONGEST)
    sampler.sync()
    assert differing(engine.model, policy) == 0
    assert not follows(sampler, policy)
