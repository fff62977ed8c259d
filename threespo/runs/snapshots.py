"""Snapshots of a run's policy at the ends of equal parts of its budget: which there are, and where they lie.

Which epochs leave one follows from the run's metrics alone, so a killed run that resumes leaves the same. A run that spends
several parts in one epoch has fewer snapshots than parts.
"""

import itertools
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
    """Return the number of the snapshot that an epoch has made due, going from ``before`` to ``after`` of the budget, or 0.

    The end of the last part is the end of the run, and so never due before it.
    """
    was, now = (min(parts - 1, parts * at // budget) for at in (before, after))
    return now if was < now else 0


def list_snapshots(metrics: Sequence[Mapping[str, Any]], training: TrainingSettings) -> list[Snapshot]:
    """Return the snapshots of a finished run, in their order.

    Args:
        metrics: a row per epoch, with running totals.
        training: says the budget, and in how many parts it is cut.
    """
    parts = training.snapshots
    if not parts or not metrics:
        return []
    totals = [(row["epoch"], row["generations"], row["optimizer_steps"]) for row in metrics]
    spent = [
        0,
        *(
            training.spent_budget(epochs=epoch, generations=generations)
            for epoch, generations, _ in totals
        ),
    ]
    numbers = [
        due_snapshot(parts, training.budget, before, after)
        for before, after in itertools.pairwise(spent)
    ]
    # Not that of the last epoch: it is the same policy as the run's.
    within = [
        Snapshot(number, *total, False)
        for number, total in zip(numbers[:-1], totals, strict=False)
        if number
    ]
    return [*within, Snapshot(parts, *totals[-1], True)]


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
