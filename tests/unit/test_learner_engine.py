"""One update is one AdamW step on the whole batch, whatever the micro-batches; checkpoints resume bit-exactly."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.models import naive_logprobs, policy, requests, rows
from threespo.errors import InputError
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy.model import Policy, load_policy
from threespo.policy.sampler import TorchSampler
from threespo.protocol import Aggregation, LossSettings, Row, UpdateRequest, UpdateStats

SETTINGS = OptimSettings(lr=1e-2, micro_batch_tokens=100)


def learner(tmp_path: Path, **changes: object) -> DeepSpeedLearner:
    return DeepSpeedLearner(
        policy(0), policy(1), dataclasses.replace(SETTINGS, **changes), tmp_path / "failed"
    )


def batch_and_loss(
    seed: int = 0,
    aggregation: Aggregation = "token-mean",
    kl_coef: float = 0.05,
    entropy_coef: float = 0.0,
) -> tuple[tuple[Row, ...], LossSettings]:
    settings = LossSettings(kl_coef=kl_coef, aggregation=aggregation, entropy_coef=entropy_coef)
    return rows(seed, groups=4, size=4), settings


def weights(source: Policy) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in source.model.parameters()]


def plain_step(batch: tuple[Row, ...], settings: LossSettings) -> tuple[Policy, float, float]:
    """Take the step with padded tensors, one plain forward per row, and torch's own AdamW and clipping."""
    trained, reference = policy(0), policy(1)
    optimizer = torch.optim.AdamW(trained.model.parameters(), lr=1e-2, weight_decay=0.01)
    terms, row_weights, lengths = [], [], []
    for row in batch:
        logprobs = naive_logprobs(trained, row.prompt, row.tokens)
        with torch.no_grad():
            difference = naive_logprobs(reference, row.prompt, row.tokens) - logprobs
        difference = difference - (logprobs - logprobs.detach())
        advantages = torch.tensor(row.advantages)
        ratio = (logprobs - torch.tensor(row.old_logprobs)).exp()
        surrogate = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        surrogate = torch.where(advantages < 0, torch.minimum(surrogate, -3 * advantages), surrogate)
        kl = (difference.exp() - difference - 1).clamp(max=10)
        ids = trained.encode_prompt(row.prompt)
        logits = trained.model(torch.tensor([[*ids, *row.tokens]])).logits[0, len(ids) - 1 : -1]
        bonus = torch.distributions.Categorical(logits=logits).entropy()
        terms.append(surrogate + settings.kl_coef * kl - settings.entropy_coef * bonus)
        row_weights.append(row.weight)
        lengths.append(len(row.tokens))
    share = torch.tensor(row_weights) / sum(row_weights)
    sums = torch.stack([term.sum() for term in terms])
    loss = {
        "token-mean": sums.sum() / sum(lengths),
        "seq-mean-token-sum": (share * sums).sum(),
        "seq-mean-token-mean": (share * sums / torch.tensor(lengths)).sum(),
        "seq-mean-token-sum-norm": (share * sums).sum() * len(sums) / max(lengths),
    }[settings.aggregation]
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained.model.parameters(), 1.0)
    optimizer.step()
    return trained, loss.item(), float(norm)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.2])
@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
)
def test_an_update_is_the_plain_step_on_the_whole_batch(
    tmp_path: Path, aggregation: Aggregation, entropy_coef: float
) -> None:
    batch, settings = batch_and_loss(aggregation=aggregation, entropy_coef=entropy_coef)
    expected, loss, norm = plain_step(batch, settings)
    for limit in (1, 100, 100_000):
        trainer = learner(tmp_path, micro_batch_tokens=limit)
        stats = trainer.step(batch, settings)
        assert stats.loss == pytest.approx(loss, rel=1e-5)
        assert stats.grad_norm == pytest.approx(norm, rel=1e-5)
        assert stats.tokens == sum(len(row.tokens) for row in batch)
        # Adam's first step is lr * sign(gradient): where the gradient is within rounding of 0 it may go either way.
        moved = torch.cat(
            [
                (a - b).abs().flatten()
                for a, b in zip(weights(trainer.policy), weights(expected), strict=True)
            ]
        )
        assert float((moved > 1e-4).float().mean()) < 1e-3


def test_the_entropy_bonus_alone_raises_the_entropy(tmp_path: Path) -> None:
    """Without advantages and KL the loss is minus the weighted mean entropy, and only the bonus has a gradient."""
    batch = tuple(
        dataclasses.replace(row, advantages=(0.0,) * len(row.tokens))
        for row in rows(0, groups=4, size=4)
    )
    bonus, none = LossSettings(kl_coef=0.0, entropy_coef=0.5), LossSettings(kl_coef=0.0)
    trainer = learner(tmp_path, lr=1e-3)
    first = trainer.step(batch, bonus)
    assert first.loss == pytest.approx(-0.5 * first.entropy, rel=1e-5)
    assert first.policy_loss == 0.0
    assert first.grad_norm > 0.0
    assert trainer.step(batch, bonus).entropy > first.entropy
    assert learner(tmp_path).step(batch, none).grad_norm == 0.0


def test_statistics_are_token_means(tmp_path: Path) -> None:
    batch, settings = batch_and_loss()
    stats = learner(tmp_path).step(batch, settings)
    source, reference = policy(0), policy(1)
    kl, entropy, gap, clipped, count = 0.0, 0.0, 0.0, 0, 0
    for row in batch:
        ids = source.encode_prompt(row.prompt)
        with torch.no_grad():
            logprobs = naive_logprobs(source, row.prompt, row.tokens)
            difference = naive_logprobs(reference, row.prompt, row.tokens) - logprobs
            logits = source.model(torch.tensor([[*ids, *row.tokens]])).logits[0, len(ids) - 1 : -1]
        ratio = (logprobs - torch.tensor(row.old_logprobs)).exp()
        advantages = torch.tensor(row.advantages)
        clipped += int((((ratio > 1.2) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))).sum())
        kl += float((difference.exp() - difference - 1).clamp(max=10).sum())
        entropy += float(torch.distributions.Categorical(logits=logits).entropy().sum())
        gap += float((torch.tensor(row.old_logprobs) - logprobs).sum())
        count += len(row.tokens)
    assert stats.kl == pytest.approx(kl / count, rel=1e-5)
    assert stats.entropy == pytest.approx(entropy / count, rel=1e-5)
    assert stats.approx_kl == pytest.approx(gap / count, rel=1e-5)
    assert stats.clip_fraction == clipped / count


def test_sampler_and_learner_agree_and_share_weights(tmp_path: Path) -> None:
    trainer = learner(tmp_path)
    sampler = TorchSampler(trainer.policy, 10, 64, 100)
    for seed in range(2):
        asked = requests(seed, 4)
        drawn = [
            (question.prompt, sample)
            for question, samples in zip(
                asked, sampler.sample(asked, seed=seed, temperature=1.0), strict=True
            )
            for sample in samples
        ]
        recomputed = trainer.logprobs([(prompt, sample.tokens) for prompt, sample in drawn])
        for (_, sample), values in zip(drawn, recomputed, strict=True):
            assert values == pytest.approx(sample.logprobs, abs=1e-4)
        batch = tuple(
            Row(p, s.tokens, s.logprobs, (1.0 if i % 2 else -1.0,) * len(s.tokens), version=s.version)
            for i, (p, s) in enumerate(drawn)
        )
        (stats,) = trainer.update(UpdateRequest((batch,), LossSettings()))
        assert stats.sampler_gap < 1e-5


def test_pi_old_is_the_policy_before_the_first_of_several_steps(tmp_path: Path) -> None:
    batches, settings = (rows(0, 2, 4), rows(1, 2, 4), rows(0, 2, 4)), batch_and_loss()[1]
    trainer, by_hand = learner(tmp_path), learner(tmp_path)
    old = [by_hand.logprobs([(row.prompt, row.tokens) for row in batch]) for batch in batches]
    got = trainer.update(UpdateRequest(batches, settings))
    for stats, batch, logprobs in zip(got, batches, old, strict=True):
        ours = tuple(
            dataclasses.replace(r, old_logprobs=tuple(o)) for r, o in zip(batch, logprobs, strict=True)
        )
        expected = dataclasses.asdict(by_hand.step(ours, settings))
        tokens = [
            (x, y)
            for r, o in zip(batch, logprobs, strict=True)
            for x, y in zip(r.old_logprobs, o, strict=True)
        ]
        expected["sampler_gap"] = sum(abs(x - y) for x, y in tokens) / len(tokens)
        expected["recomputed"] = len(tokens)
        found = dataclasses.asdict(stats)
        # Steps of Adam magnify the last bits of float32: gradient norms, and nothing else, were once 0.204 % apart.
        assert found.pop("grad_norm") == pytest.approx(expected.pop("grad_norm"), rel=1e-2)
        assert found == pytest.approx(expected, rel=2e-3, abs=1e-6)
    assert got[0].approx_kl == pytest.approx(0, abs=1e-6)
    assert got[2].approx_kl != pytest.approx(0, abs=1e-3), (
        "the third batch is off-policy after two steps"
    )


def test_a_single_batch_is_on_policy_whatever_the_sampler_said(tmp_path: Path) -> None:
    batch, settings = batch_and_loss()
    one, other = learner(tmp_path), learner(tmp_path)
    (stats,) = one.update(UpdateRequest((batch,), settings))
    old = other.logprobs([(row.prompt, row.tokens) for row in batch])
    ours = tuple(
        dataclasses.replace(row, old_logprobs=tuple(o)) for row, o in zip(batch, old, strict=True)
    )
    expected = other.step(ours, settings)
    assert stats.loss == pytest.approx(expected.loss, rel=1e-5)
    assert stats.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    assert (stats.clip_fraction, stats.approx_kl) == (0.0, 0.0)


@pytest.mark.parametrize("alone", [True, False], ids=["one batch", "several batches"])
def test_pi_old_of_a_row_is_the_policy_that_drew_it_even_if_that_has_moved(
    tmp_path: Path, alone: bool
) -> None:
    """Drawn at version 0, learned from after three steps, beside a row that was drawn at version 3."""
    trainer = learner(tmp_path, lr=1e-1)
    sampler = TorchSampler(trainer.policy, 10, 64, 100)
    (old,) = rows_of(sampler, 0)
    trainer.update(UpdateRequest((rows(2, 2, 4), rows(3, 2, 4), rows(4, 2, 4)), LossSettings()))
    (new,) = rows_of(sampler, 1)
    assert (old.version, new.version, trainer.policy.version) == (0, 3, 3)

    # An untouched copy says what version 0 thought of the old row, and the moved policy what it thinks now.
    with torch.no_grad():
        then, now = (naive_logprobs(one, old.prompt, old.tokens) for one in (policy(0), trainer.policy))
        ratios = (now - then).exp()
    assert float((now - then).abs().mean()) > 0.05, "the policy has moved"

    # What the sampler said of the new row is blurred: the learner must compute it anew.
    blurred = dataclasses.replace(new, old_logprobs=tuple(x - 0.5 for x in new.old_logprobs))
    batches = ((old, blurred),) if alone else ((old, blurred), (blurred,))
    stats = trainer.update(UpdateRequest(batches, LossSettings(kl_coef=0.0)))[0]
    tokens = len(old.tokens) + len(new.tokens)
    assert stats.ratio == pytest.approx((float(ratios.sum()) + len(new.tokens)) / tokens, rel=1e-4)
    assert stats.approx_kl == pytest.approx(float((then - now).sum()) / tokens, rel=1e-3)
    assert stats.staleness == pytest.approx(3 * len(old.tokens) / tokens)
    assert (stats.oldest, stats.recomputed) == (3, len(new.tokens))
    assert stats.sampler_gap == pytest.approx(0.5, abs=1e-4)
    inside = -ratios.clamp(0.8, 1.2).minimum(ratios)
    assert stats.loss == pytest.approx((float(inside.sum()) - len(new.tokens)) / tokens, rel=1e-4)


def rows_of(sampler: TorchSampler, seed: int) -> tuple[Row, ...]:
    (request,) = requests(seed, 1, most=1)
    (samples,) = sampler.sample((request,), seed=seed, temperature=1.0)
    return tuple(
        Row(request.prompt, s.tokens, s.logprobs, (1.0,) * len(s.tokens), version=s.version)
        for s in samples
    )


@pytest.mark.parametrize("version", [None, -1, 2])
def test_a_row_that_no_known_weights_have_drawn_is_refused(tmp_path: Path, version: int | None) -> None:
    trainer = learner(tmp_path)
    trainer.update(UpdateRequest((rows(0, 2, 4),), LossSettings()))
    row = dataclasses.replace(rows(1, 1, 1)[0], version=version)
    for batches in (((row,),), ((row,), rows(0, 2, 4, version=1))):
        with pytest.raises(
            InputError, match=f"row 0 of an update: drawn .* version {version}; expected one from 0 to 1"
        ):
            trainer.update(UpdateRequest(batches, LossSettings()))
    assert trainer.steps == 1


@pytest.mark.parametrize("stage", [0, 1])
def test_the_rate_of_the_next_steps_can_be_changed(tmp_path: Path, stage: int) -> None:
    """Adam's first step is the rate times a sign, so it scales with the rate; at rate 0 nothing moves."""
    moved = {}
    for factor in (1.0, 0.25, 0.0):
        trainer = learner(tmp_path, zero_stage=stage, weight_decay=0.0)
        before = weights(trainer.policy)
        trainer.scale_rate(factor)
        trainer.step(*batch_and_loss())
        after = weights(trainer.policy)
        moved[factor] = torch.cat([(b - a).flatten() for a, b in zip(before, after, strict=True)])
    assert not moved[0.0].any()
    assert torch.allclose(moved[0.25], 0.25 * moved[1.0], atol=1e-6)
    assert float(moved[1.0].abs().max()) > 1e-3


def test_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    results = []
    for _ in range(2):
        trainer = learner(tmp_path)
        results.append(
            ([trainer.step(*batch_and_loss(seed)) for seed in range(3)], weights(trainer.policy))
        )
    assert results[0][0] == results[1][0]
    assert all(torch.equal(one, other) for one, other in zip(results[0][1], results[1][1], strict=True))


@pytest.mark.parametrize(
    ("stage", "dtype"), [(0, "float32"), (1, "float32"), (2, "float32"), (3, "float32"), (1, "bfloat16")]
)
def test_a_checkpoint_resumes_bit_exactly(tmp_path: Path, stage: int, dtype: str) -> None:
    def fresh() -> DeepSpeedLearner:
        settings = dataclasses.replace(SETTINGS, zero_stage=stage, dtype=dtype)
        kind = torch.float32 if dtype == "float32" else torch.bfloat16
        return DeepSpeedLearner(
            policy(0, dtype=kind), policy(1, dtype=kind), settings, tmp_path / "failed"
        )

    def go_on(trainer: DeepSpeedLearner) -> tuple[list[UpdateStats], str]:
        stats = [trainer.step(*batch_and_loss(seed)) for seed in (2, 3)]
        trainer.export(tmp_path / "export")
        return stats, (tmp_path / "export" / "model.safetensors").read_bytes().hex()

    first = fresh()
    for seed in range(2):
        first.step(*batch_and_loss(seed))
    first.save(tmp_path / "checkpoint")
    expected = go_on(first)
    second = fresh()
    second.load(tmp_path / "checkpoint")
    assert second.steps == 2
    assert go_on(second) == expected


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_all_zero_stages_take_the_same_step(tmp_path: Path, stage: int) -> None:
    expected, got = learner(tmp_path), learner(tmp_path, zero_stage=stage)
    for seed in range(2):
        one, other = expected.step(*batch_and_loss(seed)), got.step(*batch_and_loss(seed))
        assert dataclasses.astuple(other) == pytest.approx(dataclasses.astuple(one), rel=1e-3, abs=1e-5)


def test_an_export_is_a_plain_folder_with_the_trained_weights(tmp_path: Path) -> None:
    trainer = learner(tmp_path)
    trainer.step(*batch_and_loss())
    trainer.export(tmp_path / "export")
    loaded = load_policy(tmp_path / "export")
    assert all(torch.equal(a, b) for a, b in zip(weights(loaded), weights(trainer.policy), strict=True))
    assert loaded.model.config._attn_implementation == "sdpa"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    learner(tmp_path).save(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_truncated_checkpoint_is_named(tmp_path: Path, checkpoint: Path) -> None:
    state = next((checkpoint / "state").glob("*model_states.pt"))
    state.write_bytes(state.read_bytes()[:-10])
    with pytest.raises(InputError, match=rf"{state.name}: is truncated or changed"):
        learner(tmp_path).load(checkpoint)
    state.unlink()
    with pytest.raises(InputError, match=rf"{state.name}: is missing"):
        learner(tmp_path).load(checkpoint)


def test_a_foreign_checkpoint_is_named(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(InputError, match=r"zero_stage differs \(found 0, expected 1\)"):
        learner(tmp_path, zero_stage=1).load(checkpoint)
    other = DeepSpeedLearner(policy(tied=False), None, SETTINGS)
    with pytest.raises(InputError, match="parameters differs"):
        other.load(checkpoint)


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"identity": {}})])
def test_a_broken_manifest_is_named(tmp_path: Path, checkpoint: Path, content: str) -> None:
    (checkpoint / "learner.json").write_text(content)
    with pytest.raises(InputError, match=r"learner\.json"):
        learner(tmp_path).load(checkpoint)


def test_a_folder_without_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint"):
        learner(tmp_path).load(tmp_path)


def test_a_loss_that_is_not_finite_stops_and_saves_the_batch(tmp_path: Path) -> None:
    trainer = learner(tmp_path)
    before = weights(trainer.policy)
    bad = dataclasses.replace(
        rows(0, 1, 1)[0], advantages=(float("nan"),) * len(rows(0, 1, 1)[0].tokens)
    )
    with pytest.raises(InputError, match=r"update 0: loss nan is not finite.*update-000000\.json"):
        trainer.update(UpdateRequest(((*rows(1, 2, 2), bad),), LossSettings()))
    saved = json.loads((tmp_path / "failed" / "update-000000.json").read_text())
    assert len(saved["rows"]) == 5
    assert all(torch.equal(a, b) for a, b in zip(before, weights(trainer.policy), strict=True))


def test_the_policy_cannot_be_its_own_reference() -> None:
    source = policy()
    with pytest.raises(InputError, match="reference policy is the policy itself"):
        DeepSpeedLearner(source, source, SETTINGS)


def test_malformed_rows_are_refused(tmp_path: Path) -> None:
    trainer = DeepSpeedLearner(policy(), None, SETTINGS, tmp_path)
    row = Row("w1", (4, 5), (-1.0,), (1.0, 1.0), version=0)
    free = LossSettings(kl_coef=0.0)
    for batch, message in (
        ((), "at least one row"),
        ((row,), "row 0 of an update: 2 tokens, 1 log-probabilities"),
        ((Row("w1 " * 254, (4, 5), (-1.0, -1.0), (1.0, 1.0), version=0),), "exceeds the 256"),
    ):
        with pytest.raises(InputError, match=message):
            trainer.update(UpdateRequest((batch,), free))
    with pytest.raises(InputError, match="no reference policy"):
        trainer.step(*batch_and_loss())


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", -1.0), ("zero_stage", 4), ("dtype", "float16"), ("temperature", 0.0), ("grad_clip", 0.0)],
)
def test_settings_out_of_range_are_named(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{field}: found"):
        learner(tmp_path, **{field: value})


def test_partitioned_weights_can_be_sampled_from(tmp_path: Path) -> None:
    trainer, asked = learner(tmp_path, zero_stage=3), requests(0, 3)
    with trainer.gather_weights():
        got = TorchSampler(trainer.policy, 10, 64, 100).sample(asked, seed=1, temperature=1.0)
    assert got == TorchSampler(policy(0), 10, 64, 100).sample(asked, seed=1, temperature=1.0)


SCRIPT = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from tests.models import requests
from tests.unit.test_learner_engine import learner, three_requests
from threespo.policy.sampler import TorchSampler
folder = Path(sys.argv[1])
trainer = learner(folder, zero_stage=int(sys.argv[2]))
first, *others = three_requests()
stats = trainer.update(first)
trainer.save(folder / "checkpoint")
trainer.load(folder / "checkpoint")
# Ranks draw unequal numbers of batches: here one draws none.
with trainer.gather_weights():
    if torch.distributed.get_rank() == 1:
        TorchSampler(trainer.policy, 10, 64, 100).sample(requests(0, 3), seed=1, temperature=1.0)
stats += [one for request in others for one in trainer.update(request)]
trainer.export(folder / "export")
if torch.distributed.get_rank() == 0:
    (folder / "stats.txt").write_text(repr([[s.loss, s.kl, s.grad_norm, s.sampler_gap] for s in stats]))
# The backend's threads must not outlive the interpreter.
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def three_requests() -> list[UpdateRequest]:
    """Several batches, which need pi_old computed first, one batch, which does not, and a batch too small for two ranks."""
    settings = batch_and_loss()[1]
    first, second, third = (batch_and_loss(seed)[0] for seed in range(3))
    asked = ((first, second), (third,), (rows(5, 1, 1), rows(6, 1, 1)))
    return [UpdateRequest(batches, settings) for batches in asked]


def test_a_learner_leaves_no_launchers_variables_behind(tmp_path: Path) -> None:
    """A process started later would take them for a launcher's, and ask for the one port that they name."""
    before = dict(os.environ)
    learner(tmp_path).update(three_requests()[0])
    left = {name for name in os.environ if os.environ[name] != before.get(name)}
    assert not left & {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, pytest.param(2, marks=pytest.mark.long), 3])
def test_two_processes_take_the_same_steps_as_one(tmp_path: Path, stage: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*launcher, str(script), str(tmp_path), str(stage)], check=True, cwd=root, env=environment
    )
    single = learner(tmp_path)
    steps = [stats for request in three_requests() for stats in single.update(request)]
    expected = [[s.loss, s.kl, s.grad_norm, s.sampler_gap] for s in steps]
    got = json.loads((tmp_path / "stats.txt").read_text())
    for one, other in zip(expected, got, strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1e-5)
