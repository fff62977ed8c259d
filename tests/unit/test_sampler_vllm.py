"""The vLLM sampler without vLLM: copy plan, dirty flag, and what is refused, on an engine that records what it is asked.

``tests/vllm`` has the same sampler on the real engine (``make test-vllm``).
"""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.models import policy, requests
from threespo.errors import InputError
from threespo.policy import vllm_engine
from threespo.policy.model import Policy
from threespo.policy.settings import VllmSettings
from threespo.policy.vllm_engine import (
    EngineRequest,
    EngineResponse,
    check_weights_not_repacked,
    kv_cache_bytes,
)
from threespo.policy.vllm_sampler import VllmSampler
from threespo.policy.weight_sync import CopyPlan, SyncError
from threespo.protocol import SampleRequest
from threespo.rng import derive
from threespo.study.config import PolicySettings


class Fused(nn.Module):
    """Weights as an engine keeps them: query, key and value in one tensor, a vocabulary padded to a multiple of 64."""

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        for name, one in like.named_parameters():
            shape = list(one.shape)
            if "k_proj" in name or "v_proj" in name:
                continue
            if "q_proj" in name:
                shape[0] += 2 * like.get_parameter(name.replace("q_proj", "k_proj")).shape[0]
            if "embed_tokens" in name:
                shape[0] = -(-shape[0] // 64) * 64
            self.register_parameter(
                _flat(name), nn.Parameter(torch.full(shape, float("nan"), dtype=one.dtype), False)
            )

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        for name, loaded in weights:
            part = next((part for part in "qkv" if f"{part}_proj." in name), "")
            target = self.get_parameter(
                _flat(name.replace(f"{part}_proj", "q_proj") if part else name)
            ).data
            size = loaded.shape[0]
            start = {"k": target.shape[0] - 2 * size, "v": target.shape[0] - size}.get(part, 0)
            target.narrow(0, start, size).copy_(loaded)
            if "embed_tokens" in name:
                target[size:].fill_(0)


class Recording:
    """An engine that answers every request with one token, and writes down what it was asked."""

    def __init__(self, source: Policy) -> None:
        self.model: nn.Module = Fused(source.model)
        self.asked: list[list[EngineRequest]] = []
        self.resets = 0
        self.idle = True
        self.meanwhile = lambda: None

    def generate(self, asked: list[EngineRequest], temperature: float) -> list[list[EngineResponse]]:
        self.asked.append(list(asked))
        self.meanwhile()
        return [[EngineResponse((5,), (-0.5,), False)] * one.count for one in asked]

    def reset_prefix_cache(self) -> bool:
        self.resets += 1
        return self.idle


def _flat(name: str) -> str:
    return name.replace(".", "/")


def made(source: Policy) -> tuple[VllmSampler, Recording]:
    engine = Recording(source)
    return VllmSampler(source, engine, max_new_tokens=8, max_prompt_tokens=100), engine


def change(source: Policy, factor: float = 1.5) -> None:
    """Do what a learner does: other weights, in place, and a version more."""
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter.mul_(factor)
    source.version += 1


def same(engine: nn.Module, source: Policy) -> bool:
    """Compare the engine's weights with the policy's, put together here anew."""
    weights = dict(source.model.named_parameters())
    for name, one in weights.items():
        if "k_proj" in name or "v_proj" in name:
            continue
        parts = [one] + [
            weights[name.replace("q_proj", f"{part}_proj")] for part in ("k", "v") if "q_proj" in name
        ]
        whole = torch.cat(parts)
        if not torch.equal(engine.get_parameter(_flat(name))[: len(whole)], whole):
            return False
    return True


# The copy plan


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sync_brings_every_weight_to_its_place(dtype: torch.dtype) -> None:
    source = policy(dtype=dtype)
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    assert not same(engine, source), "a plan copies nothing"
    for factor in (1.0, 1.5):
        change(source, factor)
        plan.sync(source.model.named_parameters())
        assert same(engine, source)


def test_the_smallest_step_arrives() -> None:
    source = policy(dtype=torch.bfloat16)
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    plan.sync(source.model.named_parameters())
    with torch.no_grad():
        weight = source.model.get_parameter("model.layers.1.self_attn.v_proj.weight")
        weight.view(torch.int16)[3, 4] += 1
    assert not same(engine, source)
    plan.sync(source.model.named_parameters())
    assert same(engine, source)


def test_weights_may_be_parts_of_a_larger_tensor_and_move() -> None:
    source = policy()
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    # As ZeRO keeps them: one flat buffer, of which parameters are views.
    flat = torch.cat([one.detach().flatten() for one in source.model.parameters()])
    start = 0
    for one in source.model.parameters():
        one.data = flat[start : start + one.numel()].view_as(one)
        start += one.numel()
    plan.sync(source.model.named_parameters())
    assert same(engine, source)


def test_a_plan_needs_no_data_of_scattered_weights() -> None:
    source = policy()
    engine, shapes = Fused(source.model), []
    for name, one in source.model.named_parameters():
        empty = torch.empty(0, dtype=one.dtype)
        empty.ds_shape = one.shape
        shapes.append((name, empty))
    CopyPlan(engine, shapes).sync(source.model.named_parameters())
    assert same(engine, source)


def test_bits_are_compared_and_not_numbers() -> None:
    source = policy()
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    with torch.no_grad():
        source.model.get_parameter("model.norm.weight")[:2] = torch.tensor([float("nan"), -0.0])
    plan.sync(source.model.named_parameters())
    copied = engine.get_parameter(_flat("model.norm.weight"))
    assert copied[0].isnan()
    assert torch.signbit(copied[1])


def test_a_copy_that_does_not_arrive_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = policy()
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    plan.sync(source.model.named_parameters())
    change(source)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, *_: self)
    with pytest.raises(SyncError, match="38 of 38 weights of the engine differ"):
        plan.sync(source.model.named_parameters())


def test_a_weight_that_the_engine_has_moved_is_noticed() -> None:
    source = policy()
    engine = Fused(source.model)
    plan = CopyPlan(engine, source.model.named_parameters())
    weight = engine.get_parameter(_flat("model.norm.weight"))
    weight.data = weight.data.clone()
    with pytest.raises(SyncError, match="elsewhere"):
        plan.sync(source.model.named_parameters())


def test_missing_and_other_tensors_are_refused() -> None:
    source = policy()
    plan = CopyPlan(Fused(source.model), source.model.named_parameters())
    weights = dict(source.model.named_parameters())
    with pytest.raises(
        SyncError, match=r"model.norm.weight and 0 more of the policy's weights were not given"
    ):
        plan.sync((name, one) for name, one in weights.items() if name != "model.norm.weight")
    with pytest.raises(SyncError, match=r"model.norm.weight: \(47,\) is not as the copy plan has it"):
        plan.sync({**weights, "model.norm.weight": torch.zeros(47)}.items())
    with pytest.raises(SyncError, match=r"extra: \(48,\)"):
        plan.sync({"extra": torch.zeros(48), **weights}.items())


class Computing(Fused):
    """Its loader changes weights on the way."""

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        super().load_weights((name, one * 2 if "norm" in name else one) for name, one in weights)


class Forgetting(Fused):
    """Its loader leaves a weight out, as one does whose name it does not know."""

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        super().load_weights((name, one) for name, one in weights if name != "model.norm.weight")


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Computing, "computes with weights"), (Forgetting, r"model.norm.weight: .* does not copy")],
)
def test_loaders_that_do_not_only_copy_are_refused(kind: type[Fused], says: str) -> None:
    source = policy()
    with pytest.raises(SyncError, match=says):
        CopyPlan(kind(source.model), source.model.named_parameters())
    sampler, engine = made(source)
    engine.model = kind(source.model)
    with pytest.raises(
        InputError, match=r"random: vLLM cannot take its weights in place: .* sampler: torch"
    ):
        sampler.sync()


def test_an_engine_of_another_type_or_with_weights_of_its_own_is_refused() -> None:
    source = policy()
    with pytest.raises(
        SyncError, match=r"embed_tokens.weight: .* of torch.float32 in the policy, .* of torch.bfloat16"
    ):
        CopyPlan(Fused(policy(dtype=torch.bfloat16).model), source.model.named_parameters())
    larger = Fused(source.model)
    larger.scale = nn.Parameter(torch.ones(3))
    with pytest.raises(SyncError, match="scale: the policy has 0 of the 3 numbers"):
        CopyPlan(larger, source.model.named_parameters())


# The sampler


def test_weights_are_synced_once_per_version() -> None:
    source = policy()
    sampler, engine = made(source)
    asked = requests(1, 3)
    for _ in range(2):
        replies = sampler.sample(asked, seed=1, temperature=1.0)
        assert [len(reply) for reply in replies] == [request.count for request in asked]
        assert {sample.version for reply in replies for sample in reply} == {0}
    assert engine.resets == 1

    # Three steps between two batches of requests are one sync.
    for _ in range(3):
        change(source)
    replies = sampler.sample(asked, seed=1, temperature=1.0)
    assert {sample.version for reply in replies for sample in reply} == {3}
    assert engine.resets == 2
    assert same(engine.model, source)


def test_a_step_while_responses_are_drawn_is_an_error() -> None:
    source = policy()
    sampler, engine = made(source)
    engine.meanwhile = lambda: change(source)
    with pytest.raises(SyncError, match="from step 0 to 1 while responses were drawn"):
        sampler.sample(requests(1, 2), seed=1, temperature=1.0)


def test_an_engine_that_cannot_forget_is_an_error_until_it_can() -> None:
    source = policy()
    sampler, engine = made(source)
    engine.idle = False
    for _ in range(2):
        with pytest.raises(SyncError, match="did not reset its prefix cache"):
            sampler.sample(requests(1, 2), seed=1, temperature=1.0)
        assert sampler.version is None
    assert not engine.asked
    engine.idle = True
    assert sampler.sample(requests(1, 2), seed=1, temperature=1.0)


def test_seeds_come_from_run_and_key_alone() -> None:
    source = policy()
    sampler, engine = made(source)
    asked = requests(2, 6)
    sampler.sample(asked, seed=3, temperature=1.0)
    for request in asked:
        sampler.sample((request,), seed=3, temperature=1.0)
    together, alone = engine.asked[0], [one for (one,) in engine.asked[1:]]
    assert together == alone
    assert [one.seed for one in together] == [derive(3, *request.key) % 2**62 for request in asked]
    assert len({one.seed for one in together}) == 6


def test_requests_without_samples_and_policies_in_turn() -> None:
    source, other = policy(0), policy(1)
    sampler, engine = made(source)
    empty = SampleRequest("w1", 0, ("none",))
    assert sampler.sample((), seed=1, temperature=1.0) == []
    assert sampler.sample((empty,), seed=1, temperature=1.0) == [[]]
    assert engine.resets == 0
    assert sampler.sample((empty, *requests(1, 1)), seed=1, temperature=1.0)[0] == []
    assert same(engine.model, source)
    # Of the same version, and yet other weights.
    sampler.set_policy(other)
    sampler.sample(requests(1, 1), seed=1, temperature=1.0)
    assert same(engine.model, other)
    assert not same(engine.model, source)


def test_what_is_asked_wrongly_is_refused_as_by_the_torch_sampler() -> None:
    source = policy()
    sampler, engine = made(source)
    with pytest.raises(
        InputError, match=r"1 of 3 prompts .* 100 tokens; the first, train/3/task-9, has 122"
    ):
        sampler.sample(
            (*requests(9, 2), SampleRequest("w1 " * 120, 1, ("train", 3, "task-9"))),
            seed=1,
            temperature=1.0,
        )
    with pytest.raises(InputError, match=r"temperature: found -1\.0"):
        sampler.sample(requests(1, 1), seed=1, temperature=-1.0)
    with pytest.raises(
        InputError, match=r"found 0.005; vLLM draws at 0 and from 0.01 to 2, or set sampler: torch"
    ):
        sampler.sample(requests(1, 1), seed=1, temperature=0.005)
    with pytest.raises(InputError, match="max_new_tokens: found 256"):
        VllmSampler(source, engine, 256, 100)
    assert not engine.asked


# The engine's surroundings


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (
            None,
            r"sampler: vllm, but vLLM is not installed\. Install the tested one .*'\.\[gpu\]'.* sampler: torch",
        ),
        ("0.33.1", r"vLLM 0\.33\.1 is installed, and 0\.32\.0 is what was tested\. Install"),
    ],
)
def test_vllm_is_there_in_the_tested_version(
    monkeypatch: pytest.MonkeyPatch, version: str | None, says: str
) -> None:
    homes = {"vllm": ["vllm"]} if version else {}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: homes)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    for ask in (vllm_engine.check_vllm_installed, lambda: vllm_engine.VllmEngine(policy(), 8, 100)):
        with pytest.raises(InputError, match=says) as error:
            ask()
        assert "\n" not in str(error.value)


def test_builds_of_the_tested_version_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.metadata, "packages_distributions", lambda: {"vllm": ["somebodys-vllm"]}
    )
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{vllm_engine.TESTED_VERSION}+cpu")
    vllm_engine.check_vllm_installed()


def test_the_tested_version_is_the_pinned_one() -> None:
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    assert f"vllm=={vllm_engine.TESTED_VERSION}" in pins


def test_repacked_weights_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for part in model:
        part.cpu_linear = F.linear
    check_weights_not_repacked(model)
    model[1].cpu_linear = lambda *_: None
    with pytest.raises(InputError, match=r"repacked weights \(1 and 0 more\)"):
        check_weights_not_repacked(model)


def test_the_cache_fits_what_is_asked_for() -> None:
    source = policy()
    # Three layers of two heads of eight numbers, keys and values, four bytes each.
    token = 2 * 3 * 2 * 8 * 4
    assert kv_cache_bytes(source, 200) >= 256 * 200 * token
    assert kv_cache_bytes(source, 200) <= 256 * 400 * token
    assert kv_cache_bytes(source, 10**9) == 8 * 2**30


# The field


def test_auto_is_vllm_for_pretrained_policies_on_a_gpu() -> None:
    tiny = PolicySettings(stands_for="x")
    pretrained = PolicySettings(kind="pretrained", source="owner/name", stands_for="x")
    assert [tiny.sampling(gpus).sampler for gpus in (0, 1)] == ["torch", "torch"]
    assert [pretrained.sampling(gpus).sampler for gpus in (0, 1)] == ["torch", "vllm"]
    asked = PolicySettings(stands_for="x", sampler="vllm", vllm=VllmSettings(memory_share=0.3))
    assert (asked.sampling(0).sampler, asked.sampling(0).vllm.memory_share) == ("vllm", 0.3)


def test_the_cache_reruns_only_jobs_that_have_one() -> None:
    small, large = (
        PolicySettings(
            kind="pretrained",
            source="owner/name",
            stands_for="x",
            vllm=VllmSettings(kv_cache_memory_bytes=size * 2**30),
        )
        for size in (6, 10)
    )
    assert small.sampling(0) == large.sampling(0)
    assert small.sampling(1) != large.sampling(1)
