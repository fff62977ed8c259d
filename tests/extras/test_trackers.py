"""Copies of runs in the trackers that the default suite does without: `make test-extras`, in an environment of its own."""

import json
import os
import struct
import subprocess
import sys

import pytest

from tests.followed import GRPO, going_on, judged, study_in, trained
from threespo.watch.tracking.follow import copy_runs
from threespo.watch.tracking.rows import find_tracked_runs, read_rows

SUCCESS = [(1, 0.25), (2, 0.5), (3, 0.75)]


@pytest.fixture
def paths(tmp_path):
    """A run that has been trained and evaluated, in a study of which nothing else is there."""
    _, paths = study_in(tmp_path / "results" / "ci")
    trained(paths, GRPO, 3)
    judged(paths, "alfworld/tiny-s/base/seed-0", [0])
    judged(paths, GRPO, [2, 3])
    return paths


def grown(target, paths, tmp_path, read):
    """Copy a run as it goes on, when it has ended, and once more; ``read`` returns the curve of success."""
    ended = paths.run(GRPO).folder.rename(tmp_path / "ended")
    going_on(paths, GRPO, [1, 2])
    assert copy_runs(paths.root, target, tmp_path / "place") == 2
    assert read() == SUCCESS[:2]

    (paths.root / "checkpoints").rename(tmp_path / "left")
    ended.rename(paths.run(GRPO).folder)
    again = copy_runs(paths.root, target, tmp_path / "place")
    assert read() == SUCCESS
    copied = copy_runs(paths.root, target, tmp_path / "place")
    assert read() == SUCCESS
    return again, copied


def test_mlflow_in_its_own_database(paths, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'place' / 'mlflow.db'}")

    def curve(key="episode/success_rate"):
        (run,) = client.search_runs([client.get_experiment_by_name("threespo").experiment_id])
        assert run.data.params["learning_rate"] == "0.0003"
        assert run.info.run_name == f"ci/{GRPO}"
        return sorted((one.step, one.value) for one in client.get_metric_history(run.info.run_id, key))

    assert grown("mlflow", paths, tmp_path, curve) == (5, 0)
    assert curve("val/success_rate") == [(0, 0.5), (2, 0.5), (3, 0.5)]


def test_trackio_in_its_own_database(paths, tmp_path, monkeypatch):
    # Before it is imported.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "place"))
    from trackio.sqlite_storage import SQLiteStorage

    def curve():
        (name,) = SQLiteStorage.get_runs("threespo")
        found = SQLiteStorage.get_metric_values("threespo", name, "episode/success_rate")
        return [(one["step"], one["value"]) for one in found]

    assert grown("trackio", paths, tmp_path, curve) == (5, 0)


def history(file):
    """Yield the rows of an offline run's file: a header of seven bytes, then records in LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    raw, at, part = file.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", raw[at : at + 7])
        part += raw[at + 7 : at + 7 + size]
        at += 7 + size
        # Full, or the last part.
        if kind in (1, 4):
            record = wandb_internal_pb2.Record.FromString(part)
            part = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {
                    item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
                    for item in items
                }


def test_wandb_offline_has_one_folder_however_often_it_is_called(paths, tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")

    def curve():
        # As at the end of the command: its service writes the last rows.
        wandb.teardown()
        (file,) = (tmp_path / "place").glob("wandb/offline-run-*/run-*.wandb")
        key = "episode/success_rate"
        return [(row["training/global_step"], row[key]) for row in history(file) if key in row]

    # Offline nobody counts the rows, so that all of them are written again.
    assert grown("wandb", paths, tmp_path, curve) == (8 - 1, 8 - 1)
    (tracked,) = find_tracked_runs(paths.run(GRPO).folder)
    assert len(list(read_rows(tracked))) == 7


def test_wandb_without_a_login_is_one_message(paths, tmp_path):
    """In a process of its own: the package remembers how it was first called."""
    hidden = {"WANDB_MODE", "WANDB_API_KEY"}
    surroundings = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "threespo.cli",
            "track",
            paths.root,
            "--to",
            "wandb",
            "--dir",
            tmp_path / "place",
        ],
        env={**surroundings, "NETRC": str(tmp_path / "netrc")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "threespo: wandb: cannot be opened" in done.stderr
    assert "Traceback" not in done.stderr
