"""Copies of runs in TensorBoard, read back with TensorBoard's own reader; what their rows mean, and when there are which."""

import shutil

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.followed import GRPO, SEARCH, going_on, judged, metrics, study_in, timing, trained
from threespo.errors import InputError
from threespo.study.load import dump_study
from threespo.watch.tracking.follow import copy_runs
from threespo.watch.tracking.rows import find_tracked_runs, read_rows

BASE = "alfworld/tiny-s/base/seed-0"


@pytest.fixture
def study(tmp_path):
    """A study whose runs have not begun, and its paths."""
    return study_in(tmp_path / "results" / "ci")


def curves(folder):
    """Return {tag: [(step, value), ...]} of a run's event files."""
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]
    }


def values_of(paths, run):
    (tracked,) = find_tracked_runs(paths.run(run).folder)
    return [(row.step, row.values) for row in read_rows(tracked)]


def test_a_finished_run_has_the_curves_of_verl_agent(study, tmp_path):
    _, paths = study
    trained(paths, GRPO, 3)
    judged(paths, BASE, [0])
    judged(paths, GRPO, [2, 3])
    assert copy_runs(paths.root, "tensorboard", tmp_path / "tb") == 3 + 3 + 1
    found = curves(tmp_path / "tb" / "ci" / GRPO)
    assert found["episode/success_rate"] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert found["episode/pick_and_place_success_rate"] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    # Four paths of five steps, and a reward of 10 for success.
    assert found["episode/length/mean"] == [(1, 5.0), (2, 5.0), (3, 5.0)]
    assert found["episode/reward/mean"] == [(1, 2.5), (2, 5.0), (3, 7.5)]
    assert found["episode/valid_action_ratio"] == [(1, 0.75), (2, 0.75), (3, 0.75)]
    assert found["actor/pg_loss"][0] == (1, -0.5)
    assert found["timing_s/gen"][0] == (1, 6.0)
    assert found["timing_s/step"][2] == (3, 10.0)
    assert found["val/success_rate"] == [(0, 0.5), (2, 0.5), (3, 0.5)]
    assert found["val/length/mean"][0] == (0, 9.5)
    assert found["test/valid_unseen/success_rate"] == [(3, 0.5)]
    assert found["threespo/n_1"] == [(1, 3.0), (2, 3.0), (3, 3.0)]
    # What is not a number, and paths of which there were none, have no point.
    assert "actor/grad_norm" not in found
    assert "episode/look_at_obj_in_light_success_rate" not in found


def test_steps_of_a_search_are_no_lengths_of_episodes(study):
    _, paths = study
    trained(paths, SEARCH, 1)
    ((_, values),) = values_of(paths, SEARCH)
    assert "episode/length/mean" not in values
    assert values["threespo/env_steps"] == 20


def test_a_second_call_writes_nothing_and_a_later_one_only_what_is_new(study, tmp_path):
    _, paths = study
    place, run = tmp_path / "tb", tmp_path / "tb" / "ci" / GRPO
    going_on(paths, GRPO, [1, 2])
    assert copy_runs(paths.root, "tensorboard", place) == 2
    files = sorted(run.iterdir())
    assert copy_runs(paths.root, "tensorboard", place) == 0
    assert sorted(run.iterdir()) == files

    # The run ends: its rows are the same, whatever its last look had been.
    trained(paths, GRPO, 3)
    shutil.rmtree(paths.root / "checkpoints")
    assert copy_runs(paths.root, "tensorboard", place) == 1
    assert curves(run)["episode/success_rate"] == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_evaluations_wait_for_those_before_them(study):
    """So that more rows only add to what is there, in whatever order the workflow makes them."""
    _, paths = study
    trained(paths, GRPO, 2)
    assert len(values_of(paths, GRPO)) == 2
    judged(paths, GRPO, [1, 2])
    assert len(values_of(paths, GRPO)) == 2
    judged(paths, BASE, [0])
    assert [step for step, _ in values_of(paths, GRPO)] == [1, 2, 0, 1, 2, 2]


def test_another_training_takes_the_place_of_the_one_before(study, tmp_path):
    study_, paths = study
    trained(paths, GRPO, 3)
    copy_runs(paths.root, "tensorboard", tmp_path / "tb")
    grpo = study_.methods["grpo"].model_copy(update={"learning_rate": 1.0})
    faster = study_.model_copy(update={"methods": {**study_.methods, "grpo": grpo}})
    paths.study.write_text(dump_study(faster))
    trained(paths, GRPO, 2)
    assert copy_runs(paths.root, "tensorboard", tmp_path / "tb") == 2
    assert curves(tmp_path / "tb" / "ci" / GRPO)["episode/success_rate"] == [(1, 0.25), (2, 0.5)]


def test_times_of_the_machine_make_no_other_training(study, tmp_path):
    """An epoch that is played again after a kill takes another time."""
    _, paths = study
    (tracked,) = find_tracked_runs(paths.run(GRPO).folder)
    going_on(paths, GRPO, [1])
    before = tracked.identity(next(read_rows(tracked)))
    artifacts = tracked.live
    assert artifacts is not None
    artifacts.write_progress(1, metrics(1), {**timing(1), "seconds": 99.0, "peak_memory_mb": 1.0})
    assert tracked.identity(next(read_rows(tracked))) == before


def test_a_run_is_followed_to_its_end(study, tmp_path):
    _, paths = study
    looks = iter(
        [
            lambda: going_on(paths, GRPO, [1]),
            lambda: going_on(paths, GRPO, [2]),
            lambda: trained(paths, GRPO, 3),
            lambda: judged(paths, BASE, [0]),
            lambda: judged(paths, GRPO, [3]),
        ]
    )
    run = paths.run(GRPO).folder
    assert (
        copy_runs(run, "tensorboard", tmp_path / "tb", follow=True, wait=lambda: next(looks)())
        == 3 + 2 + 1
    )
    assert next(looks, None) is None, "it waits until all has been evaluated"
    assert curves(tmp_path / "tb" / "ci" / GRPO)["val/success_rate"] == [(0, 0.5), (3, 0.5)]


def test_nothing_is_written_into_the_results(study, tmp_path):
    _, paths = study
    trained(paths, GRPO, 1)
    before = {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")}
    copy_runs(paths.root, "tensorboard", tmp_path / "tb")
    assert {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")} == before


def test_what_cannot_be_copied_is_said(study, tmp_path):
    _, paths = study
    with pytest.raises(InputError, match="no run has ended an epoch yet"):
        copy_runs(paths.root, "tensorboard", tmp_path / "tb")
    with pytest.raises(InputError, match=r"trains no such run; it trains: alfworld/tiny-s/grpo/seed-0"):
        copy_runs(paths.run("alfworld/tiny-s/grpo/seed-7").folder, "tensorboard", tmp_path / "tb")
    trained(paths, GRPO, 1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a folder"):
        copy_runs(paths.root, "tensorboard", tmp_path / "file")
    paths.run(GRPO).metrics.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"metrics\.parquet: not a readable table"):
        copy_runs(paths.root, "tensorboard", tmp_path / "tb")
