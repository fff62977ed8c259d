"""A run of two processes is that of one: same draws and states in its first epoch; the death of a rank costs it nothing."""

import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.integration.test_train import VALUES, outputs, paths, prepared, study  # noqa: F401
from tests.jobs import train
from threespo.errors import InputError, StoppedError
from threespo.paths import Paths
from threespo.runs import launch
from threespo.study.load import parse_study
from threespo.study.matrix import find_run
from threespo.tables import read_table

pytestmark = pytest.mark.slow

RUN = "alfworld/tiny-s/threespo/seed-0"


def trained(prepared: Path, folder: Path, method: str = "threespo", **changes: Any) -> Any:  # noqa: F811
    """Train a run of the tiny study with other settings of training, and return its folder."""
    ranks = changes.pop("ranks_per_run", 1)
    values = {**VALUES, "ranks_per_run": ranks, "training": {**VALUES["training"], **changes}}
    where = Paths(folder)
    for name in ("data", "policy"):
        if not (folder / name).exists():
            folder.mkdir(exist_ok=True)
            (folder / name).symlink_to(prepared / name)
    changed = parse_study(values, "test")
    run = find_run(changed, f"alfworld/tiny-s/{method}/seed-0")
    train(changed, run, where)
    return where, run


def first_epoch(where: Paths, run: Any) -> tuple[pd.DataFrame, ...]:
    folder = where.run(run)
    return tuple(table[table["epoch"] == 1] for table in map(read_table, (folder.trees, folder.metrics)))


@pytest.mark.parametrize(
    ("method", "stages"), [pytest.param("threespo", (0, 1, 2, 3), marks=pytest.mark.long), ("ppo", (3,))]
)
def test_two_ranks_draw_and_learn_like_one(
    prepared: Path,  # noqa: F811
    tmp_path: Path,
    method: str,
    stages: tuple[int, ...],
) -> None:
    one = {"generations": None, "epochs": 2, "snapshots": 2}
    trees, metrics = first_epoch(*trained(prepared, tmp_path / "one", method, **one))
    for stage in stages:
        two = trained(
            prepared, tmp_path / f"two-{stage}", method, **one, zero_stage=stage, ranks_per_run=2
        )
        other_trees, other_metrics = first_epoch(*two)
        pd.testing.assert_frame_equal(other_trees, trees, rtol=1e-3, atol=1e-4)
        counts = [
            "generations",
            "env_steps",
            "epoch_paths",
            "epoch_successes",
            "optimizer_steps",
            "invalid_rate",
        ]
        pd.testing.assert_frame_equal(other_metrics[counts], metrics[counts])
        assert metrics["optimizer_steps"].iloc[-1] > 0
        for name in ("loss", "policy_loss", "kl", "entropy", "grad_norm", "sampler_gap"):
            expected = pytest.approx(metrics[name].tolist(), rel=1e-3, abs=1e-3, nan_ok=True)
            assert other_metrics[name].tolist() == expected, (stage, name)


@pytest.mark.long
def test_the_death_of_a_rank_ends_the_run_and_another_call_ends_in_the_same_bytes(
    prepared: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    settings = {"zero_stage": 2, "ranks_per_run": 2}
    whole = outputs(*trained(prepared, tmp_path / "whole", **settings))
    killed: list[float] = []

    def kill() -> None:
        checkpoints = tmp_path / "killed" / "checkpoints"
        while not list(checkpoints.rglob("epoch-000001/progress.json")):
            time.sleep(0.05)
        victim = max(multiprocessing.active_children(), key=lambda child: child.pid or 0)
        killed.append(time.monotonic())
        victim.kill()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(
        StoppedError, match=r"rank [01] of the run has ended \(Signal 9.*all its ranks were ended"
    ):
        trained(prepared, tmp_path / "killed", **settings)
    assert time.monotonic() - killed[0] < 60
    assert not multiprocessing.active_children()

    # With one rank its checkpoint is of no use, and says so.
    with pytest.raises(InputError, match=r"made by 2 rank\(s\), and this run has 1.*ranks_per_run: 2"):
        trained(prepared, tmp_path / "killed", zero_stage=2)
    assert outputs(*trained(prepared, tmp_path / "killed", **settings)) == whole


def test_what_a_rank_refuses_is_said_once(
    prepared: Path,  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Prompts that are too long are refused by whichever rank has them, at a sample in which the others go on."""
    short = {**VALUES["policies"]["tiny-s"], "max_prompt_tokens": 20}
    values = {**VALUES, "ranks_per_run": 2, "policies": {"tiny-s": short}}
    for name in ("data", "policy"):
        (tmp_path / name).symlink_to(prepared / name)
    study_of_two = parse_study(values, "test")
    with pytest.raises(InputError, match="prompts are longer than the limit of 20 tokens"):
        train(study_of_two, find_run(study_of_two, RUN), Paths(tmp_path))
    assert "Traceback" not in capfd.readouterr().err


def test_ranks_on_two_machines(
    prepared: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two names of this machine; a script takes the place of the remote shell."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\necho "$1" >> "$HOSTS"\nexec sh -c "$2"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    hosts = tmp_path / "hosts"
    hosts.write_text("# two machines\nlocalhost slots=1\n127.0.0.1 slots=4\n")
    one = {"generations": None, "epochs": 2, "snapshots": 2, "zero_stage": 1, "ranks_per_run": 2}
    whole = outputs(*trained(prepared, tmp_path / "here", **one))
    monkeypatch.setenv("HOSTS", str(tmp_path / "called"))
    monkeypatch.setenv(launch.HOSTFILE, str(hosts))
    monkeypatch.setenv(launch.REMOTE_SHELL, str(shell))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    assert outputs(*trained(prepared, tmp_path / "there", **one)) == whole
    assert (tmp_path / "called").read_text().split() == ["127.0.0.1"]
