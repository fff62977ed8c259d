"""What a study costs: against closed forms, against what `smoke` was measured to take, and as a command."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from threespo import cli
from threespo.errors import InputError
from threespo.scaling import doctor, rates
from threespo.scaling.commands import format_number
from threespo.scaling.estimate import Machine, choose_machine, does_not_fit, estimate_study
from threespo.scaling.job_groups import group_jobs
from threespo.scaling.rates import GPUS, Rates, read_rates, save_rates
from threespo.scaling.shapes import KNOWN_SHAPES, shape_of
from threespo.scaling.workload import GivenLengths, playing_work, text_lengths, training_work
from threespo.study.load import load_study
from threespo.study.matrix import trained_runs

ROOT = Path(__file__).resolve().parents[2]

# Processor seconds of training in `smoke` as it once was, means of three seeds, and of all its jobs (docs/LOG.md).
EARLIER = {
    "seeds": [0, 1, 2],
    "policies": {"tiny-s": {"weakness": "planted"}},
    "methods": {
        "threespo-calibrated": {"method": "threespo", "learning_rate": 1e-4, "options": {"preset": "calibrated"}},
        "threespo-improved": {"method": "threespo", "learning_rate": 1e-4, "options": {"preset": "improved"}},
    },
    "training": {"generations": 10000, "pool": 64, "pool_by_seed": False, "recorded_tasks": 64},
    "evaluation": {"seeds": [123, 456]},
    "alfworld": {"games": {"train": 256, "calibration": 200, "valid_seen": 100, "valid_unseen": 200}},
    "webshop": {"goals": {"calibration": 200, "test": 200}, "training": {"generations": 5000}},
}  # fmt: skip
SMOKE = {
    "alfworld/tiny-s/grpo": 146.0, "alfworld/tiny-s/threespo-literal": 55.2, "alfworld/tiny-s/threespo-calibrated": 40.1,
    "alfworld/tiny-s/threespo-improved": 69.2, "webshop/tiny-s/grpo": 66.5, "webshop/tiny-s/threespo-literal": 25.9,
    "webshop/tiny-s/threespo-calibrated": 36.2, "webshop/tiny-s/threespo-improved": 60.8,
}  # fmt: skip
SMOKE_IN_ALL = 2552.0


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def study(name, **changes):
    return load_study(ROOT / "config" / "studies" / f"{name}.yaml", changes)


def on(name, which, count=4, **changes):
    return estimate_study(study(name, **changes), Machine(which, GPUS.get(which), count, {}))


def line_of(found, name):
    return next(cost for cost in found.costs if cost.group.stage == "train" and cost.group.name == name)


def test_smoke_is_planned_within_a_quarter_of_its_measured_processor_time():
    found = on("smoke", "cpu", 2, **EARLIER)
    planned = {cost.group.name: cost.hours * 3600 for cost in found.costs if cost.group.stage == "train"}
    assert planned.keys() == SMOKE.keys()
    assert found.device_hours * 3600 == pytest.approx(SMOKE_IN_ALL, rel=0.25)
    assert sum(planned.values()) == pytest.approx(sum(SMOKE.values()), rel=0.25)
    for name, seconds in SMOKE.items():
        assert planned[name] == pytest.approx(seconds, rel=0.45), name


def test_work_of_episodes_is_counted_in_closed_form():
    paper = study("paper")
    run = next(run for run in trained_runs(paper) if (run.method, run.env) == ("grpo", "alfworld"))
    text = text_lengths("alfworld", paper.policies[run.policy], GivenLengths(500, 100))
    work = training_work(paper, run, text)
    assert work.generations == 400 * 16 * 8 * 50
    assert work.drawn == 100 * work.generations
    assert work.packed == 600 * work.generations
    assert work.steps == work.generations / 256
    assert work.passes == 5
    assert not work.critic


def test_a_capped_search_finishes_its_path_with_single_samples():
    paper = study("paper")
    run = next(
        run for run in trained_runs(paper) if (run.method, run.env) == ("threespo-literal", "alfworld")
    )
    work = training_work(paper, run, text_lengths("alfworld", paper.policies[run.policy]))
    # 70 generations at 5.6 a state are 12.5 states; 37.5 more follow, one sample each.
    assert work.generations == pytest.approx(6400 * (70 + 37.5))
    assert work.ticks == pytest.approx(400 * 50)


def test_operations_are_those_of_the_usual_rule_for_a_large_model():
    shape = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
    assert shape.forward_flops(1000, 1000, 0) == pytest.approx(
        2 * 1000 * (shape.parameters - shape.head), rel=0.01
    )
    assert shape.cache_bytes() == 2 * 28 * 4 * 128 * 2


def test_what_cannot_fit_is_refused_with_what_would():
    cache = {"vllm": {"kv_cache_memory_bytes": 6_000_000_000}}
    alone = {
        "ranks_per_run": 1,
        "zero_stage": 1,
        "gradient_checkpointing": False,
        "micro_batch_tokens": 16384,
        **cache,
    }
    refused = list(does_not_fit(on("paper", "h100-80", policies={"qwen25-7b": alone})))
    seven = next(sentence for sentence in refused if "qwen25-7b/rloo" in sentence)
    assert "2 x 141 GB with zero_stage: 2" in seven
    assert "4 x 80 GB with zero_stage: 3" in seven
    four = {
        "ranks_per_run": 4,
        "zero_stage": 3,
        "gradient_checkpointing": True,
        "micro_batch_tokens": 4096,
        **cache,
    }
    found = on("paper", "h100-80", policies={"qwen25-7b": four})
    assert line_of(found, "alfworld/qwen25-7b/rloo").runs_per_device == 1
    assert line_of(found, "alfworld/qwen25-7b/ppo").runs_per_device == 0, "its critic is a second model"
    assert (
        line_of(
            on("paper", "h200-141", policies={"qwen25-7b": four}), "alfworld/qwen25-7b/ppo"
        ).runs_per_device
        == 1
    )


def test_runs_that_share_a_gpu_use_what_one_leaves_idle():
    alone = line_of(on("paper", "h200-141"), "alfworld/qwen25-1b5/threespo-literal")
    shared = line_of(on("paper", "h200-141", runs_per_gpu=2), "alfworld/qwen25-1b5/threespo-literal")
    assert alone.device_hours / 2 <= shared.device_hours <= alone.device_hours
    assert shared.hours >= alone.hours
    assert any(
        "do not share" in sentence for sentence in does_not_fit(on("paper", "h200-141", runs_per_gpu=3))
    )


def test_more_ranks_are_sooner_and_dearer():
    def ranks(count):
        changed = {"qwen25-7b": {"ranks_per_run": count, "zero_stage": 2}}
        return line_of(on("paper", "h200-141", policies=changed), "alfworld/qwen25-7b/threespo-literal")

    one, four = ranks(1), ranks(4)
    assert four.hours < one.hours
    assert four.device_hours > one.device_hours
    assert four.memory.total < one.memory.total


def test_disk_energy_and_wall_time_follow_their_formulas():
    found = on("paper", "h200-141")
    shape = KNOWN_SHAPES["Qwen/Qwen2.5-1.5B-Instruct"]
    assert line_of(found, "alfworld/qwen25-1b5/grpo").group.kept == pytest.approx(
        8 * 2 * shape.parameters, rel=0.01
    )
    assert line_of(found, "alfworld/qwen25-1b5/grpo").group.checkpoint == pytest.approx(
        14 * shape.parameters
    )
    assert found.kilowatt_hours == pytest.approx(0.7 * found.device_hours)
    assert found.wall_hours >= found.device_hours / 4
    assert on("paper", "h200-141", 1000).wall_hours < found.wall_hours


def test_measured_rates_replace_assumed_ones():
    mini = study("ci")
    shape = shape_of(mini.policies["tiny-s"], "alfworld")
    slow = Rates(origin="measured on this machine", read=1, step=1, draw=1, update=1, learn=1, head=1)
    save_rates({rates.rates_key("cpu", shape): slow})
    found = estimate_study(mini, choose_machine(None, None, mini, read_rates(), []))
    assert {cost.origin for cost in found.costs} == {"measured on this machine"}
    assert found.device_hours > 100 * on("ci", "cpu").device_hours
    rates.rates_file().write_text('{"cpu/x": {"read": -1}}')
    with pytest.raises(InputError, match="not the rates of a machine"):
        read_rates()


def test_cells_count_every_job_that_takes_time():
    for name in ("smoke", "mini", "paper", "ablations"):
        whole = study(name)
        found = group_jobs(whole)
        assert sum(cell.runs for cell in found if cell.stage == "train") == len(trained_runs(whole))
        assert len({replace(cell, runs=0) for cell in found}) == len(found), (
            "those that cost the same stand together"
        )


def test_a_shape_is_read_from_a_folder_and_an_unknown_one_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 100, "model_type": "qwen2",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    policy = study("paper").policies["qwen25-1b5"]
    assert shape_of(policy.model_copy(update={"source": str(folder)}), "alfworld").head_dim == 16
    with pytest.raises(InputError, match=r"Someone/Model: neither its config.json is here"):
        shape_of(policy.model_copy(update={"source": "Someone/Model"}), "alfworld")
    (folder / "config.json").write_text('{"num_hidden_layers": "two"}')
    with pytest.raises(InputError, match="not the configuration of a decoder model"):
        shape_of(policy.model_copy(update={"source": str(folder)}), "alfworld")


def test_the_command_prints_every_cell_and_refuses_what_does_not_fit(capsys):
    assert cli.main(["plan", "smoke", "--price", "0.05"]) == 0
    said = capsys.readouterr().out
    for name in ("alfworld/tiny-s/grpo", "webshop/tiny-s/threespo-literal"):
        assert name in said
    for word in (
        "core-hours",
        "wall",
        "memory",
        "disk",
        "energy",
        "cost",
        "rates: measured on one core",
    ):
        assert word in said
    assert cli.main(["plan", "paper", "--gpu", "h100-80"]) == cli.EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert "DOES NOT FIT" in said.out
    assert "some runs do not fit on h100-80" in said.err


def test_plan_and_doctor_start_without_torch_and_in_seconds():
    code = "import sys; from threespo.cli import main; main({}); assert not {{'torch', 'pandas'}} & sys.modules.keys()"
    for arguments in (["plan", "paper", "--gpu", "h100-80"], ["doctor"]):
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code.format(arguments)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start < 5


def test_doctor_says_in_ten_lines_what_is_lacking(tmp_path):
    lines = doctor.report_machine(tmp_path / "results")
    assert [line.split()[0] for line in lines] == [
        "machine", "GPUs", "disk", "compiler", "packages", "data", "models", "keys", "can", "cannot",
    ]  # fmt: skip
    can, cannot = lines[8], lines[9]
    assert "smoke" in can
    assert "paper" in cannot
    assert "GPU(s) a run, here" in cannot
    installed = dict.fromkeys(doctor.PACKAGES, "1")
    assert doctor.list_missing(study("ci"), [], 1e12, installed) == []
    assert doctor.list_missing(study("ci"), [], 1e3, installed)[0].endswith("GB of disk")
    assert doctor.list_missing(study("ci"), [], 1e12, {**installed, "torch": None}) == [
        "torch (make install)"
    ]


@pytest.mark.slow
def test_measuring_gives_rates_that_are_used(capsys):
    assert cli.main(["plan", "ci", "--measure"]) == 0
    assert "rates: measured on this machine" in capsys.readouterr().out
    (found,) = read_rates().values()
    assert 1e-6 < found.read < 1e-2
    assert 1e-6 < found.learn < 1e-2


def test_numbers_are_shown_with_three_digits():
    assert [format_number(value) for value in (0, 5, 1234, 2_560_000, 3.2e9)] == [
        "-",
        "5",
        "1.23k",
        "2.56M",
        "3.2G",
    ]


def test_whole_episodes_read_a_prompt_for_each_step():
    text = text_lengths("alfworld", study("smoke").policies["tiny-s"])
    work = playing_work(100, 10, text, 32)
    assert work.generations == pytest.approx(100 * 10 * text.episode)
    assert work.steps == work.packed == 0
