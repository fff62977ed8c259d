"""How a batch and its sampling are shared among ranks, where the ranks are, and what is said when memory or disk run out."""

import dataclasses
import hashlib
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import settings_of
from tests.models import policy, requests, rows
from tests.unit.test_learner_engine import SETTINGS, learner
from threespo.errors import InputError
from threespo.learner import backend, checks
from threespo.learner import checkpoint as files
from threespo.learner.critic import DeepSpeedCritic
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.forward import (
    Group,
    ResponseScorer,
    balance_micro_batches,
    cut_micro_batches,
    pack_groups,
)
from threespo.learner.optim import CHECKPOINT_BYTES
from threespo.policy.sampler import TorchSampler
from threespo.protocol import LossSettings, SampleRequest, UpdateRequest
from threespo.runs import checkpoint
from threespo.runs.launch import HOSTFILE, Node, gpus_on_first_machine, list_nodes
from threespo.runs.parts import ShardedSampler, assign_requests
from threespo.study.load import parse_study


def groups_of(sizes: list[tuple[int, list[int]]]) -> list[Group]:
    groups, row = [], 0
    for number, (prompt, lengths) in enumerate(sizes):
        numbers = tuple(range(row, row + len(lengths)))
        groups.append(Group((number,) * prompt, tuple((1,) * length for length in lengths), numbers))
        row += len(lengths)
    return groups


SIZES = st.lists(
    st.tuples(st.integers(1, 30), st.lists(st.integers(1, 20), min_size=1, max_size=6)),
    min_size=1,
    max_size=8,
)


@given(SIZES, st.integers(1, 200), st.integers(1, 5))
def test_a_batch_is_spread_whole_within_its_limit_and_in_no_more_passes(
    sizes: list[tuple[int, list[int]]], limit: int, ranks: int
) -> None:
    groups = groups_of(sizes)
    whole, parts = cut_micro_batches(groups, limit), balance_micro_batches(groups, limit, ranks)
    rows_of = [
        sorted(row for part in found for group in part for row in group.rows) for found in (whole, parts)
    ]
    assert rows_of[0] == rows_of[1] == list(range(len(rows_of[0])))
    assert -(-len(parts) // ranks) <= -(-len(whole) // ranks), "no more passes"
    for part in parts:
        assert (
            sum(group.tokens for group in part) <= limit or sum(len(group.rows) for group in part) == 1
        )
    if ranks == 1:
        assert parts == whole


def test_no_rows_are_no_micro_batches(tmp_path: Path) -> None:
    assert balance_micro_batches([], 100, 1) == balance_micro_batches([], 100, 2) == []
    assert learner(tmp_path).logprobs([]) == []


@given(st.integers(1, 30), st.integers(2, 16), st.integers(2, 20), st.integers(2, 8))
def test_one_states_responses_give_every_rank_work(
    prompt: int, count: int, length: int, ranks: int
) -> None:
    """Equal responses to one prompt, which fit one pass: the largest part is as small as it can be.

    Of two tokens at least: a response of one has no token of its own in a pack, and stays where the others are.
    """
    parts = balance_micro_batches(groups_of([(prompt, [length] * count)]), 10_000, ranks)
    sizes = [sum(len(group.rows) for group in part) for part in parts]
    assert max(sizes) == -(-count // ranks)
    assert len(parts) == -(-count // max(sizes))


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_each_request_is_answered_at_one_rank_those_of_one_prompt_together(
    asked: list[tuple[str, int]], ranks: int
) -> None:
    parts = assign_requests(
        [SampleRequest(prompt, count, (number,)) for number, (prompt, count) in enumerate(asked)], ranks
    )
    assert sorted(number for part in parts for number in part) == list(range(len(asked)))
    homes = Counter(prompt for part in parts for prompt in {asked[number][0] for number in part})
    assert set(homes.values()) == {1}
    if ranks == 1:
        assert parts == [list(range(len(asked)))]


def test_a_sample_does_not_depend_on_who_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks after each other in one process: what each hands over is put together, and is what one rank draws."""
    trainer, asked = learner(tmp_path, zero_stage=3), requests(0, 7)
    sampler = ShardedSampler(TorchSampler(trainer.policy, 10, 64, 100), trainer)
    alone = sampler.sample(asked, seed=1, temperature=1.0)

    drawn: list[Any] = []
    for rank in range(3):
        monkeypatch.setattr("threespo.learner.backend.get_rank", lambda rank=rank: rank)
        monkeypatch.setattr("threespo.learner.backend.get_world_size", lambda: 3)
        monkeypatch.setattr("threespo.learner.backend.gather_objects", lambda own: [*drawn, own])
        if rank < 2:
            numbers = assign_requests(asked, 3)[rank]
            own = TorchSampler(policy(0), 10, 64, 100).sample(
                tuple(asked[n] for n in numbers), seed=1, temperature=1.0
            )
            drawn.append((own, None))
    together = sampler.sample(asked, seed=1, temperature=1.0)
    assert [[s.tokens for s in reply] for reply in together] == [
        [s.tokens for s in reply] for reply in alone
    ]


def test_masks_are_those_of_the_definition() -> None:
    """A response token sees the prompt, and of the responses its own up to itself; bit for bit, in both number types."""
    group = groups_of([(5, [4, 1, 6, 3])])[0]
    inputs = [len(response) - 1 for response in group.responses]
    owner = [number for number, count in enumerate(inputs) for _ in range(count)]
    for dtype in (torch.float32, torch.bfloat16):
        (span,) = pack_groups([group], torch.device("cpu"), dtype).spans
        expected = [
            [0.0] * 5
            + [0.0 if owner[i] == owner[j] and j <= i else float("-inf") for j in range(len(owner))]
            for i in range(len(owner))
        ]
        assert span.mask is not None
        assert span.mask.dtype == dtype
        assert torch.equal(span.mask, torch.tensor(expected, dtype=dtype))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gradients_in_bfloat16_add_up_in_float32(tmp_path: Path, stage: int) -> None:
    """Fifty micro-batches: Adam's first moment is a tenth of the sum of their bfloat16 gradients, taken in float32."""
    from deepspeed.utils import safe_get_full_optimizer_state

    batch, loss = rows(0, groups=25, size=2), LossSettings(kl_coef=0.0)
    settings = dataclasses.replace(
        SETTINGS, zero_stage=stage, dtype="bfloat16", micro_batch_tokens=1, grad_clip=1e9
    )
    trainer = DeepSpeedLearner(policy(0, dtype=torch.bfloat16), None, settings, tmp_path)
    # The same passes without DeepSpeed. After it has started: ZeRO 3 computes linear layers in another order of rounding.
    plain = DeepSpeedLearner.__new__(DeepSpeedLearner)
    plain.policy, plain.settings = policy(0, dtype=torch.bfloat16), settings
    plain._dtype, plain._reference = torch.bfloat16, None
    plain._engine = ResponseScorer(plain.policy.model)
    flat = plain._flatten(batch, loss, False)
    total = [
        torch.zeros_like(parameter, dtype=torch.float32) for parameter in plain.policy.model.parameters()
    ]
    for part in cut_micro_batches(flat.groups, 1):
        plain.policy.model.zero_grad()
        plain._compute_loss(part, flat, loss)[1].backward()
        for whole, parameter in zip(total, plain.policy.model.parameters(), strict=True):
            assert parameter.grad is not None
            whole += parameter.grad.float()

    trainer.step(batch, loss)
    moments = [
        safe_get_full_optimizer_state(parameter, "exp_avg")
        for parameter in trainer.policy.model.parameters()
    ]
    got = torch.cat([moment.flatten().float() * 10 for moment in moments])
    expected = torch.cat([whole.flatten() for whole in total])
    # Stage 1 hands the sum on in bfloat16 once (0.16 %); adding up in bfloat16 would lose 1 %.
    assert float((got - expected).norm() / expected.norm()) < (3e-3 if stage == 1 else 1e-5)


@pytest.mark.parametrize(
    "changes", [{"gradient_checkpointing": True}, {"zero_stage": 1, "offload_optimizer": True}]
)
def test_what_saves_memory_changes_no_step(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain, frugal = learner(tmp_path), learner(tmp_path, **changes)
    for seed in range(2):
        request = UpdateRequest((rows(seed, 4, 4, version=seed),), LossSettings())
        one, other = plain.update(request)[0], frugal.update(request)[0]
        assert dataclasses.astuple(other) == pytest.approx(dataclasses.astuple(one), rel=1e-3, abs=1e-5)


def test_a_model_of_another_kind_is_sampled_alike_under_gradient_checkpointing(tmp_path: Path) -> None:
    """Its own forward keeps no cache while it trains with checkpointing; Qwen2's is not used for sampling."""
    settings = dataclasses.replace(SETTINGS, gradient_checkpointing=True)
    trainer = DeepSpeedLearner(policy(0, llama=True), None, settings, tmp_path)
    asked = requests(0, 3)
    got = ShardedSampler(TorchSampler(trainer.policy, 10, 64, 100), trainer).sample(
        asked, seed=1, temperature=1.0
    )
    assert got == TorchSampler(policy(0, llama=True), 10, 64, 100).sample(asked, seed=1, temperature=1.0)
    assert trainer._engine.module.training, "as checkpointing needs it"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "bfloat16"}, "zero_stage: found 0 with dtype bfloat16"),
        ({"offload_optimizer": True}, "offload_optimizer"),
    ],
)
def test_stages_that_cannot_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        learner(tmp_path, **changes)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError()]
)
def test_out_of_memory_names_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trainer = learner(tmp_path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("threespo.learner.backend.take_optimizer_step", fail)
    with pytest.raises(
        InputError,
        match=r"update 0: out of memory.*micro_batch_tokens \(now 100\).*gradient_checkpointing",
    ):
        trainer.update(UpdateRequest((rows(0, 2, 2),), LossSettings()))
    with (
        pytest.raises(InputError, match="sampling: out of memory"),
        checks.explain_out_of_memory("sampling", SETTINGS),
    ):
        torch.empty(1 << 60)
    with pytest.raises(RuntimeError, match="other"), checks.explain_out_of_memory("sampling", SETTINGS):
        raise RuntimeError("other")


@pytest.mark.parametrize(("stage", "dtype"), sorted((stage, dtype) for dtype, stage in CHECKPOINT_BYTES))
def test_the_computed_size_of_a_checkpoint_is_that_of_its_files(
    tmp_path: Path, stage: int, dtype: str
) -> None:
    kind = torch.float32 if dtype == "float32" else torch.bfloat16
    settings = dataclasses.replace(SETTINGS, zero_stage=stage, dtype=dtype)
    trainer = DeepSpeedLearner(policy(0, dtype=kind), None, settings, tmp_path)
    trainer.step(rows(0, 2, 2), LossSettings(kl_coef=0.0))
    trainer.save(tmp_path / "checkpoint")
    written = sum(file.stat().st_size for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    # Headers and manifest: some 60 kilobytes, whatever the model's size.
    assert 0 < written - trainer.size() < 120_000


def test_too_little_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    critic = DeepSpeedCritic(policy(1), SETTINGS, tmp_path)
    trained = {"learner": learner(tmp_path), "critic": critic}
    each = sum(one.size() for one in trained.values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * each))
    checkpoint.check_disk_space(tmp_path / "not" / "there", trained, 2)
    with pytest.raises(InputError, match=r"3 checkpoint\(s\) of \d\.\d MB each.*Free disk space"):
        checkpoint.check_disk_space(tmp_path / "not" / "there", trained, 3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(InputError, match="1 checkpoint"):
        checkpoint.save_checkpoint(tmp_path / "run", checkpoint.Progress("x"), trained)
    assert not (tmp_path / "run").exists()


def test_large_files_are_hashed_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "large").write_bytes(bytes(range(256)) * 10)
    monkeypatch.setattr(files, "BLOCK_BYTES", 1000)
    content = (tmp_path / "large").read_bytes()
    blocks = [hashlib.blake2b(content[start : start + 1000]).digest() for start in (0, 1000, 2000)]
    assert files._digest_files([tmp_path / "small", tmp_path / "large", tmp_path / "empty"]) == [
        hashlib.blake2b(b"abc").hexdigest(),
        hashlib.blake2b(b"".join(blocks)).hexdigest(),
        hashlib.blake2b(b"").hexdigest(),
    ]


def test_a_checkpoint_of_another_number_of_ranks_is_refused_with_the_reason(tmp_path: Path) -> None:
    trained = {"learner": learner(tmp_path)}
    checkpoint.save_checkpoint(tmp_path / "run", checkpoint.Progress("x", ranks=2, epoch=1), trained)
    with pytest.raises(
        InputError, match=r"made by 2 rank\(s\), and this run has 1: .* Set ranks_per_run: 2"
    ):
        checkpoint.load_checkpoint(tmp_path / "run", "y", trained, 1)


def test_a_host_file_says_where_the_ranks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_nodes(3) == [Node("localhost", 3)]
    file = tmp_path / "hosts"
    file.write_text("# machines\nnode-1 slots=4\n\nnode-2 slots=4  # the other\nnode-3 slots=4\n")
    monkeypatch.setenv(HOSTFILE, str(file))
    assert list_nodes(4) == [Node("node-1", 4)]
    assert list_nodes(6) == [Node("node-1", 4), Node("node-2", 2)]
    job: Any = SimpleNamespace(ranks=6, gpus=6)
    assert gpus_on_first_machine(job) == 4
    for content, said in (
        (None, "cannot be read"),
        ("node-1\n", "line 1: found 'node-1', expected 'HOST slots=N'"),
        ("node-1 slots=0\n", "expected 'HOST slots=N'"),
        ("-oProxyCommand=x slots=4\n", "expected 'HOST slots=N'"),
        ("node-1 slots=4\n", "4 slots, but ranks_per_run is 6"),
    ):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        with pytest.raises(InputError, match=said):
            list_nodes(6)


def test_the_nodes_of_a_slurm_job_share_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho node-1\necho node-2\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert list_nodes(8) == [Node("node-1", 4), Node("node-2", 4)]
    with pytest.raises(InputError, match="2 nodes of the Slurm job cannot share evenly"):
        list_nodes(3)


def test_a_policys_size_decides_for_that_policy() -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "config" / "studies" / "ci.yaml").read_text())
    tiny = values["policies"]["tiny-s"]
    large = {
        **tiny,
        "dtype": "bfloat16",
        "ranks_per_run": 4,
        "micro_batch_tokens": 100,
        "gradient_checkpointing": True,
    }
    study = parse_study(
        {**values, "policies": {"tiny-s": tiny, "large": large}, "gpus_per_rank": 1}, "test"
    )
    plain, other = (
        settings_of("train", study, f"alfworld/{name}/grpo/seed-0") for name in study.policies
    )
    assert (plain.ranks, plain.gpus, plain.training.zero_stage, plain.training.micro_batch_tokens) == (
        1,
        1,
        0,
        8192,
    )
    assert (other.ranks, other.gpus, other.training.zero_stage, other.training.micro_batch_tokens) == (
        4,
        4,
        1,
        100,
    )
    assert (plain.training.gradient_checkpointing, other.training.gradient_checkpointing) == (
        False,
        True,
    )
    # Only training has several ranks.
    assert settings_of("evaluate", study, "alfworld/large/grpo/seed-0").gpus == 1
    assert settings_of("train", study, "alfworld/tiny-s/grpo/seed-0").key() != other.key()


@pytest.mark.parametrize(
    ("visible", "seen"), [("GPU-a,GPU-b,GPU-c", "GPU-b"), ("4, 7", "7"), (None, "1")]
)
def test_a_rank_sees_its_own_gpu_as_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("LOCAL_RANK", "1")
    backend._hide_other_gpus()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["LOCAL_RANK"]) == (seen, "0")
