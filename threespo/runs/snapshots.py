"""Snapshots of a run's policy at the ends of equal parts of its budget: which there are, and where they lie.

Which epochs leave one follows from the run's metrics alone, so a killed run that resumes leaves the same
ones. A run that spends several parts in one epoch has fewer snapshots than parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import read_json, write_json
from threespo.paths import RunFolder
from threespo.runs.training_settings import TrainingSettings

_REMEDY = "Delete the run's folder and run the study again."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run's policy after an epoch, with the run's totals then."""

    number: int
    """Of the part of the budget that it ends, from 1; the last one is the end of the run, whatever it has spent."""
    epoch: int
    generations: int
    optimizer_steps: int
    final: bool
    """Its weights are the run's own."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.number:02d}"

    def weights(self, run: RunFolder) -> Path:
        """Return the folder of its weights."""
        return run.weights if self.final else run.snapshots / self.name / "weights"

    def memory(self, run: RunFolder) -> Any:
        """Return what the method's ``dump`` returned; only methods that search have left it.

        Raises:
            InputError: if the file is missing or broken.
        """
        return read_json(run.snapshots / self.name / "memory.json", _REMEDY)


UNTRAINED = Snapshot(number=0, epoch=0, generations=0, optimizer_steps=0, final=False)
"""Where every curve begins. It has no folder: its weights are the base policy's."""


def due_snapshot(parts: int, budget: int, before: int, after: int) -> int:
    """Return the number of the snapshot that is due after an epoch, or 0.

    The end of the last part is the end of the run, and so never due before it.

    Args:
        parts: equal parts of the budget.
        budget: of the run.
        before: spent before the epoch.
        after: spent after it.
    """
    # Parts that have ended, without the last one.
    ended_before = min(parts - 1, parts * before // budget)
    ended_after = min(parts - 1, parts * after // budget)
    return ended_after if ended_before < ended_after else 0


def list_snapshots(metrics: Sequence[Mapping[str, Any]], training: TrainingSettings) -> list[Snapshot]:
    """Return the snapshots of a finished run, in their order.

    Args:
        metrics: a row per epoch, with running totals.
        training: says the budget, and in how many parts it is cut.
    """
    parts = training.snapshots
    if not parts or not metrics:
        return []

    snapshots = []
    before = 0
    # Without the last epoch: its policy is the run's own.
    for row in metrics[:-1]:
        after = training.spent_budget(epochs=row["epoch"], generations=row["generations"])
        number = due_snapshot(parts, training.budget, before, after)
        if number:
            snapshots.append(_make_snapshot(number, row, final=False))
        before = after
    return [*snapshots, _make_snapshot(parts, metrics[-1], final=True)]


def _make_snapshot(number: int, row: Mapping[str, Any], *, final: bool) -> Snapshot:
    return Snapshot(number, row["epoch"], row["generations"], row["optimizer_steps"], final)


def write_snapshot_index(folder: Path, snapshots: Sequence[Snapshot]) -> None:
    """Write which snapshots lie in ``folder``."""
    write_json(folder / "snapshots.json", {"taken": [asdict(snapshot) for snapshot in snapshots]})


def read_snapshot_index(run: RunFolder) -> list[Snapshot]:
    """Return the snapshots of a run, in their order.

    Raises:
        InputError: if their index is missing or broken.
    """
    file = run.snapshots / "snapshots.json"
    index = read_json(file, _REMEDY)
    try:
        return [Snapshot(**row) for row in index["taken"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{file}: no list of snapshots ({error}). {_REMEDY}") from error
