"""Checkpoints: whole, two of them, and never of another run."""

import json
import shutil

import pytest

from threespo.errors import InputError
from threespo.runs import checkpoint
from threespo.runs.checkpoint import Progress


class Weights:
    """A learner, as far as checkpoints are concerned."""

    def __init__(self, value=""):
        self.value = value

    def save(self, folder):
        folder.mkdir(parents=True)
        (folder / "value").write_text(self.value)

    def size(self):
        return len(self.value)

    def load(self, folder):
        try:
            self.value = (folder / "value").read_text()
        except OSError as error:
            raise InputError(f"{folder}: no value") from error


def fill(folder, epochs):
    for epoch in range(1, epochs + 1):
        progress = Progress(
            "run a", epoch=epoch, generations=epoch * 10, metrics=[{"loss": float("nan")}]
        )
        checkpoint.save_checkpoint(folder, progress, {"learner": Weights(f"w{epoch}")})


def test_the_last_two_are_kept_and_the_newest_is_used(tmp_path):
    fill(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000003", "epoch-000004"]
    weights = Weights()
    assert checkpoint.load_checkpoint(tmp_path, "run a", {"learner": weights}).generations == 40
    assert weights.value == "w4"


def test_a_new_run_begins_at_the_beginning(tmp_path):
    weights = Weights("fresh")
    assert checkpoint.load_checkpoint(tmp_path / "none", "run a", {"learner": weights}) == Progress(
        "run a"
    )
    assert weights.value == "fresh"


@pytest.mark.parametrize("damage", ["truncate", "no weights"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path, capsys, damage):
    fill(tmp_path, 3)
    newest = tmp_path / "epoch-000003"
    if damage == "truncate":
        (newest / "progress.json").write_text((newest / "progress.json").read_text()[:50])
    else:
        (newest / "learner" / "value").unlink()
    weights = Weights()
    assert checkpoint.load_checkpoint(tmp_path, "run a", {"learner": weights}).epoch == 2
    assert weights.value == "w2"
    assert str(newest) in capsys.readouterr().err


def test_a_checkpoint_of_another_study_is_refused(tmp_path):
    fill(tmp_path, 1)
    with pytest.raises(InputError, match="other settings, games, base policy or code"):
        checkpoint.load_checkpoint(tmp_path, "run b", {"learner": Weights()})
    assert json.loads((tmp_path / "epoch-000001" / "progress.json").read_text())["identity"] == "run a"


def test_a_half_read_checkpoint_is_never_the_start_of_a_run(tmp_path):
    """Its critic is broken: with an older one both are read from there; without one the run must not go on."""

    def parts():
        return {"learner": Weights("base"), "critic": Weights("base")}

    for epoch in (1, 2):
        progress = Progress("run a", epoch=epoch, generations=epoch * 10)
        checkpoint.save_checkpoint(
            tmp_path, progress, {name: Weights(f"{name} {epoch}") for name in parts()}
        )
    (tmp_path / "epoch-000002" / "critic" / "value").unlink()
    trained = parts()
    assert checkpoint.load_checkpoint(tmp_path, "run a", trained).epoch == 1
    assert {name: one.value for name, one in trained.items()} == {
        "learner": "learner 1",
        "critic": "critic 1",
    }
    shutil.rmtree(tmp_path / "epoch-000001")
    with pytest.raises(InputError, match=r"epoch-000002: only a part of it could be read.*Delete"):
        checkpoint.load_checkpoint(tmp_path, "run a", parts())
