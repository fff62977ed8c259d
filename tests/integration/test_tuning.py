"""A real study whose grid is too high: its choice goes on below it, is killed and resumed, and tells what it has tried."""

import json
from pathlib import Path

import pytest

from tests.jobs import do, evaluate, train
from threespo.errors import InputError
from threespo.paths import Paths, trials_file
from threespo.runs import checkpoint, trials
from threespo.study.config import Study
from threespo.study.load import load_study
from threespo.study.matrix import base_trials, find_run, trials_of
from threespo.tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[2]
ROW = "alfworld/tiny-s/grpo"
GRID = {"learning_rates": [1e-2, 3e-2], "generations": 120, "seeds": [1000, 1001]}
FILES = ("evaluation.parquet", "metrics.parquet", "weights/model.safetensors")


def study(**tuning) -> Study:
    changes = {
        "alfworld": {"games": {"calibration": 24}},
        "methods": {"grpo": {"learning_rate": None}, "threespo-calibrated": {"learning_rate": None}},
        "tuning": GRID | tuning,
    }
    return load_study(ROOT / "config" / "studies" / "ci.yaml", changes)


EXTENDED = study(max_extensions=2, splits=["calibration", "valid_seen"])


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> Path:
    """The trials of the grid, played."""
    root = tmp_path_factory.mktemp("tried")
    paths = Paths(root)
    do("data", EXTENDED, "alfworld", paths)
    do("policy", EXTENDED, "alfworld/tiny-s", paths)
    for run in trials_of(EXTENDED, *ROW.split("/")):
        train(EXTENDED, run, paths)
        evaluate(EXTENDED, run, paths)
    evaluate(EXTENDED, base_trials(EXTENDED)[0], paths)
    return root


def copy_of(tried: Path, root: Path) -> Paths:
    """Return a folder with links to what the grid's trials have left."""
    for name in ("data", "policy"):
        (root / name).symlink_to(tried / name)
    for run in (*trials_of(EXTENDED, *ROW.split("/")), *base_trials(EXTENDED)):
        folder = Paths(root).run(run).folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(Paths(tried).run(run).folder)
    return Paths(root)


def contents(paths: Paths, run_id: str) -> dict[str, bytes]:
    return {name: (paths.run(run_id).folder / name).read_bytes() for name in FILES}


def chosen(paths: Paths) -> tuple[bytes, bytes]:
    names = ROW.split("/")
    return paths.choice(*names).read_bytes(), trials_file(paths, *names).read_bytes()


@pytest.mark.long
def test_a_grid_that_is_too_high_is_extended_downwards_to_the_bytes_of_ordinary_trials(
    tried, tmp_path, tmp_path_factory, monkeypatch, capsys
):
    paths = copy_of(tried, tmp_path)
    do("tune", EXTENDED, ROW, paths)
    told = capsys.readouterr().err
    found = json.loads(chosen(paths)[1])
    # Both rates of the grid ruin the policy: it wins nothing with either, and the smaller one is the edge.
    means = {each["learning_rate"]: each["mean"] for each in found["rates"]}
    assert means[1e-2] == means[3e-2] == 0.0 < found["base"]
    assert found["extensions"][0] == 3e-3
    assert told.count("is at the lower edge; trying") == len(found["extensions"])
    assert found["learning_rate"] == max(sorted(means), key=means.__getitem__)
    assert json.loads(chosen(paths)[0]) == {"learning_rate": found["learning_rate"]}
    assert [each["seeds"] for each in found["rates"]] == [2] * len(means)

    # Every trial on both splits; the choice counts calibration games alone.
    judged = {(row["learning_rate"], row["training_seed"], row["split"]): row for row in found["trials"]}
    assert len(judged) == 2 * 2 * len(means)
    for each in found["rates"]:
        rate = each["learning_rate"]
        on_calibration = [judged[rate, seed, "calibration"]["success"] for seed in (1000, 1001)]
        assert each["mean"] == pytest.approx(sum(on_calibration) / 2)
        assert list(each["success"].values()) == on_calibration

    # A trial of a study that has the rate in its grid has the same bytes.
    wider = study(learning_rates=[3e-3, 1e-2, 3e-2], splits=["calibration", "valid_seen"])
    ordinary = find_run(wider, f"{ROW}/rate-0.003-seed-1000")
    extended = contents(paths, ordinary.run_id)
    alone = Paths(tmp_path_factory.mktemp("alone"))
    for name in ("data", "policy"):
        (alone.root / name).symlink_to(tried / name)
    train(wider, ordinary, alone)
    evaluate(wider, ordinary, alone)
    assert contents(alone, ordinary.run_id) == extended

    # Done once more, nothing is trained again.
    monkeypatch.setattr(trials, "train", None)
    before = chosen(paths)
    do("tune", EXTENDED, ROW, paths)
    assert chosen(paths) == before
    # An evaluation that somebody has edited is played again, without training.
    edited = paths.run(ordinary).evaluation
    write_table(edited, read_table(edited).assign(success=True))
    do("tune", EXTENDED, ROW, paths)
    assert contents(paths, ordinary.run_id) == extended
    monkeypatch.undo()

    # Killed after the first checkpoint of each of the additional trials, it ends with the same bytes.
    killed = copy_of(tried, tmp_path_factory.mktemp("killed"))
    save = checkpoint.save_checkpoint

    def save_then_die(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    for _ in range(2):
        monkeypatch.setattr(checkpoint, "save_checkpoint", save_then_die)
        with pytest.raises(KeyboardInterrupt):
            do("tune", EXTENDED, ROW, killed)
        assert not killed.choice(*ROW.split("/")).exists()
    monkeypatch.undo()
    do("tune", EXTENDED, ROW, killed)
    assert chosen(killed) == before
    assert contents(killed, ordinary.run_id) == extended


def test_without_extension_the_edge_is_told(tried, tmp_path, capsys):
    paths = copy_of(tried, tmp_path)
    do("tune", study(splits=["calibration", "valid_seen"]), ROW, paths)
    found = json.loads(chosen(paths)[1])
    assert (found["learning_rate"], found["at_edge"], found["extensions"]) == (1e-2, "lower", [])
    assert "at the lower edge of what was tried" in capsys.readouterr().err


def test_trials_that_have_played_other_games_than_the_base_are_refused(tried, tmp_path):
    paths = copy_of(tried, tmp_path)
    base = paths.run(base_trials(EXTENDED)[0])
    played = read_table(base.evaluation)
    base.folder.unlink()
    write_table(base.evaluation, played.iloc[1:])
    with pytest.raises(InputError, match="other calibration games"):
        do("tune", EXTENDED, ROW, paths)
