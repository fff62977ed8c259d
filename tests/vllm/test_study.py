"""The whole `ci` study with the vLLM sampler: every stage, by the workflow; and a run that is killed on its way."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from threespo.files import read_json
from threespo.paths import Paths
from threespo.tables import read_table

ROOT = Path(__file__).parents[2]
RUNS = ("alfworld/tiny-s/grpo/seed-0", "alfworld/tiny-s/threespo-calibrated/seed-0")
CHANGES = {"policies": {"tiny-s": {"sampler": "vllm"}}, "seeds": [0], "evaluation": {"seeds": [123]}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The study's results. One seed of two, and one evaluation of two: the stages are all there."""
    folder = tmp_path_factory.mktemp("results")
    command = [
        Path(sys.executable).with_name("snakemake"),
        "--cores",
        "2",
        "--config",
        "study=ci",
        f"results={folder}",
    ]
    done = subprocess.run(
        [
            *command,
            "name=vllm",
            f"set={yaml.safe_dump(CHANGES, default_flow_style=True, width=1000).strip()}",
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Paths(folder / "ci-vllm")


def test_every_stage_runs_with_vllm(finished: Paths) -> None:
    assert finished.report.is_file()
    for run in RUNS:
        for stage in ("train", "evaluate", "learning"):
            assert read_json(finished.record(stage, run), "")["field"]["sampling.sampler"] == '"vllm"'
        assert read_table(finished.run(run).evaluation).success.notna().all()
        assert len(read_table(finished.run(run).learning))
    assert len(read_table(finished.run(RUNS[1]).probe))


@pytest.mark.parametrize("run", RUNS)
def test_what_was_learned_from_is_of_the_learners_weights(finished: Paths, run: str) -> None:
    metrics = read_table(finished.run(run).metrics)
    gaps = metrics.sampler_gap.dropna()
    assert len(gaps) >= 3
    # Mean difference between the engine's and the learner's log-probability of a token.
    assert gaps.max() < 1e-5
    assert metrics.optimizer_steps.max() >= 4


def test_a_killed_run_ends_in_the_same_bytes(finished: Paths, tmp_path: Path) -> None:
    run, paths = RUNS[1], Paths(tmp_path / "ci-vllm")
    shutil.copytree(finished.root, paths.root)
    shutil.rmtree(paths.run(run).weights.parent)
    paths.record("train", run).unlink()
    command = [sys.executable, "-m", "threespo.cli", "train", str(paths.study), "--run", run]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        while "epoch 2" not in log.read_text() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, log.read_text()[-3000:]
        subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=True)
    assert log.read_text().count("epoch 1:") == 1, "it did not go on, but began anew"

    for name in ("metrics", "trees"):
        first, second = (getattr(one.run(run), name).read_bytes() for one in (finished, paths))
        assert first == second, name
    # Not the workflow's own mark, which begins with a point.
    for file in sorted(path.name for path in finished.run(run).weights.glob("[!.]*")):
        first, second = ((one.run(run).weights / file).read_bytes() for one in (finished, paths))
        assert first == second, file
