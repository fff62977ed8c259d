"""Which epochs of a run leave a snapshot, which of them a probe starts from, and what an index may be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threespo.errors import InputError
from threespo.paths import RunFolder
from threespo.runs.probe import nearest_snapshots
from threespo.runs.snapshots import (
    due_snapshot,
    list_snapshots,
    read_snapshot_index,
    write_snapshot_index,
)
from threespo.runs.training_settings import TrainingSettings


def budget_of(generations, parts=8):
    return TrainingSettings(generations=generations, snapshots=parts)


def metrics(*generations):
    return [
        {"epoch": n, "generations": at, "optimizer_steps": 2 * n} for n, at in enumerate(generations, 1)
    ]


def test_a_snapshot_is_taken_at_the_first_epoch_that_has_spent_its_part():
    found = list_snapshots(metrics(30, 50, 60, 120, 145), budget_of(200, 4))
    # Quarters end at 50, 100 and 150; the run ends below its budget, which ends the last part.
    assert [(one.number, one.epoch, one.generations, one.optimizer_steps, one.final) for one in found] == [
        (1, 2, 50, 4, False), (2, 4, 120, 8, False), (4, 5, 145, 10, True),
    ]  # fmt: skip
    # An epoch that spends several parts ends the last of them, and the last epoch's policy is the run's.
    assert [(one.number, one.final) for one in list_snapshots(metrics(160, 190), budget_of(200, 4))] == [
        (3, False),
        (4, True),
    ]
    assert [(one.number, one.epoch) for one in list_snapshots(metrics(210), budget_of(200, 4))] == [
        (4, 1)
    ]
    assert list_snapshots(metrics(100, 200), budget_of(200, 0)) == []


def test_a_budget_in_epochs_is_cut_into_epochs():
    """Half of ten epochs is the fifth, whatever its generations; the probe's middle is there, too."""
    training = TrainingSettings(epochs=10, snapshots=2)
    found = list_snapshots(metrics(*range(10, 1001, 110)), training)
    assert [(one.number, one.epoch, one.final) for one in found] == [(1, 5, False), (2, 10, True)]
    assert [one.epoch for one in nearest_snapshots(found, 1, training)] == [5]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 12), st.integers(1, 500))
def test_what_is_due_during_a_run_is_what_the_finished_run_has(costs, parts, budget):
    """Training asks epoch by epoch, and a resumed one only for the epochs that it plays itself."""
    totals = [sum(costs[: n + 1]) for n in range(len(costs))]
    asked = {
        n: due_snapshot(parts, budget, before, at)
        for n, (before, at) in enumerate(zip([0, *totals], totals, strict=False), 1)
    }
    found = list_snapshots(metrics(*totals), budget_of(budget, parts))
    within = {n: number for n, number in asked.items() if number and n < len(costs)}
    assert {one.epoch: one.number for one in found[:-1]} == within
    assert [one.number for one in found] == sorted({one.number for one in found})
    assert (found[-1].number, found[-1].epoch, found[-1].final) == (parts, len(costs), True)
    for one in found[:-1]:
        assert one.generations >= one.number * budget / parts > ([0, *totals])[one.epoch - 1]


def test_a_probe_starts_from_the_snapshots_nearest_to_the_middles_of_its_parts():
    snapshots = list_snapshots(metrics(*range(25, 201, 25)), budget_of(200, 8))
    assert [one.generations for one in nearest_snapshots(snapshots, 1, budget_of(200))] == [100]
    assert [one.generations for one in nearest_snapshots(snapshots, 2, budget_of(200))] == [50, 150]
    assert [one.generations for one in nearest_snapshots(snapshots[-1:], 3, budget_of(200))] == [200], (
        "each once"
    )
    assert nearest_snapshots([], 3, budget_of(200)) == []


NONE = (
    "",
    "[]",
    "{}",
    '{"taken": 5}',
    '{"taken": [{}]}',
    '{"taken": [{"number": 1}]}',
    '{"taken": [5]}',
)


@pytest.mark.parametrize("text", NONE)
def test_an_index_comes_back_and_another_file_is_named(tmp_path, text):
    run, found = RunFolder(tmp_path), list_snapshots(metrics(100, 200), budget_of(200, 2))
    write_snapshot_index(run.snapshots, found)
    assert read_snapshot_index(run) == found
    (run.snapshots / "snapshots.json").write_text(text)
    with pytest.raises(InputError, match=r"snapshots\.json: .*run the study again"):
        read_snapshot_index(run)
    (run.snapshots / "snapshots.json").write_text(json.dumps({"taken": []}))
    assert read_snapshot_index(run) == []
