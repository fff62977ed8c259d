"""What a run leaves besides weights and metrics: counts by task type, search trees, snapshots.

During the run the artifacts lie with the checkpoints, in one file per epoch. A killed run that resumes
writes the files of the epochs after its last checkpoint again, to the same bytes. The rows of metrics
and times lie there too, for monitoring commands (``threespo track``, ``threespo status``); training
itself never reads them.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from threespo.files import link_folder, replace_folder, write_json
from threespo.methods.tree_table import COLUMNS
from threespo.paths import RunFolder
from threespo.protocol import EpochResult
from threespo.runs.snapshots import Snapshot, write_snapshot_index
from threespo.tables import read_table, write_table

TYPE_COLUMNS = ("epoch", "task_type")

ArtifactKind = Literal["metrics", "timing", "task_types", "trees"]


class WeightExporter(Protocol):
    """A learner, as far as snapshots are concerned."""

    def export(self, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The artifacts of one run; ``folder`` is that of its checkpoints."""

    folder: Path

    def remove_earlier(self) -> None:
        """Remove the artifacts of an earlier run: a run begins."""
        # Not the checkpoints, which are replaced one by one.
        for name in ("artifacts", "snapshots"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def write_epoch(self, number: int, result: EpochResult) -> None:
        """Write the counts by task type and the search trees of epoch ``number``."""
        type_rows = [
            {"epoch": number, "task_type": task_type, **counts}
            for task_type, counts in result.by_type.items()
        ]
        # Without rows the columns have to be named.
        columns = None if type_rows else TYPE_COLUMNS
        write_table(self._epoch_file("task_types", number), type_rows, columns)
        if result.trees:
            tree_rows = [{"epoch": number, **row} for row in result.trees]
            write_table(self._epoch_file("trees", number), tree_rows)

    def write_progress(self, number: int, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Write the rows of epoch ``number`` for monitoring; ``metrics`` last, which says that the epoch is complete."""
        write_table(self._epoch_file("timing", number), [timing])
        write_table(self._epoch_file("metrics", number), [metrics])

    def written_epochs(self) -> list[int]:
        """Return the epochs whose rows are there, in order."""
        files = (self.folder / "artifacts").glob("metrics-[0-9]*.parquet")
        return sorted(int(file.stem.removeprefix("metrics-")) for file in files)

    def read_rows(self, kind: ArtifactKind, number: int) -> pd.DataFrame:
        """Return the rows of one kind of epoch ``number`` while the run is going on."""
        return read_table(self._epoch_file(kind, number))

    def epoch_end_time(self, number: int) -> float:
        """Return when epoch ``number`` ended, in seconds since 1970."""
        return self._epoch_file("metrics", number).stat().st_mtime

    def write_snapshot(
        self, number: int, learner: WeightExporter | None, memory: Mapping[str, Any] | None
    ) -> None:
        """Write a snapshot of the run as it is now.

        Args:
            number: of the snapshot, from 1.
            learner: exports the weights; ``None`` for the last snapshot, whose weights are the run's.
            memory: what the method's ``dump`` returns, if it is a search: ``probe`` scores states with it.
        """
        with replace_folder(self.folder / "snapshots" / f"{number:02d}") as temporary:
            if learner:
                learner.export(temporary / "weights")
            if memory is not None:
                write_json(temporary / "memory.json", memory)

    def deliver(self, run: RunFolder, epochs: int, snapshots: Sequence[Snapshot]) -> None:
        """Put everything of the first ``epochs`` epochs into the run's folder, one table for all epochs.

        Of the snapshots that were written only those in ``snapshots`` are delivered.
        """
        write_table(run.task_types, self._concatenate_epochs("task_types", epochs, TYPE_COLUMNS))
        write_table(run.trees, self._concatenate_epochs("trees", epochs, COLUMNS))
        with replace_folder(run.snapshots) as temporary:
            for snapshot in snapshots:
                written = self.folder / "snapshots" / snapshot.name
                # Tools that move results forget empty folders.
                if any(written.iterdir()):
                    link_folder(written, temporary / snapshot.name)
            write_snapshot_index(temporary, snapshots)

    def _epoch_file(self, kind: ArtifactKind, number: int) -> Path:
        return self.folder / "artifacts" / f"{kind}-{number:06d}.parquet"

    def _concatenate_epochs(
        self, kind: ArtifactKind, epochs: int, columns: tuple[str, ...]
    ) -> pd.DataFrame:
        files = [self._epoch_file(kind, number) for number in range(1, epochs + 1)]
        frames = [read_table(file) for file in files if file.exists()]
        # Without empty frames: their columns have no type, and would change that of the others.
        filled = [frame for frame in frames if len(frame)]
        return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(columns))
