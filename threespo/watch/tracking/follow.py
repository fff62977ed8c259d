"""``threespo track``: copy the rows of runs, once or for as long as they go on."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import Run
from threespo.watch.tracking.rows import TrackedRun, find_tracked_runs, read_rows
from threespo.watch.tracking.targets import TrackedCopy, open_target


def copy_runs(
    path: Path,
    target: str,
    folder: Path | None = None,
    *,
    project: str = "threespo",
    follow: bool = False,
    wait: Callable[[], None] = lambda: time.sleep(10),
) -> int:
    """Copy the rows that a target lacks, of a run or of all runs of a study; return how many were copied.

    Args:
        path: a run's folder or a study's folder of results.
        target: ``tensorboard``, ``wandb``, ``mlflow`` or ``trackio``.
        folder: where the target keeps its files; None for the target's own default.
        project: project or experiment that runs are filed under.
        follow: continue until every run has been trained and evaluated.
        wait: called between two rounds.

    Raises:
        InputError: if there is nothing to copy, a table cannot be read, or the target refuses.
    """
    pending = find_tracked_runs(path)
    copies: dict[Run, TrackedCopy] = {}
    copied = finished_rows = finished_runs = 0
    try:
        while True:
            for tracked in tuple(pending):
                # Asked before copying: rows that arrive in between are copied in the next round.
                is_last_round = not follow or tracked.complete
                copied += _copy_new_rows(tracked, copies, target, folder, project)
                if not is_last_round:
                    continue
                pending.remove(tracked)
                copy = copies.pop(tracked.run, None)
                if copy:
                    copy.close()
                    finished_rows += copy.rows
                    finished_runs += 1
            if not pending:
                break
            wait()
    finally:
        for copy in copies.values():
            copy.close()

    if not finished_runs:
        raise InputError(f"{path}: no run has ended an epoch yet; try again later, or add --follow")
    print(
        f"{target}: {copied} rows copied; {finished_rows} rows of {finished_runs} runs are there",
        file=sys.stderr,
    )
    return copied


def _copy_new_rows(
    tracked: TrackedRun,
    copies: dict[Run, TrackedCopy],
    target: str,
    folder: Path | None,
    project: str,
) -> int:
    was_live = tracked.live
    try:
        if tracked.run not in copies:
            first = next(read_rows(tracked), None)
            if first is None:
                return 0
            identity = tracked.identity(first)
            copies[tracked.run] = open_target(
                target, tracked.name, identity, tracked.settings(), folder, project
            )
        copy = copies[tracked.run]
        new_rows = list(read_rows(tracked, copy.rows))
    except (InputError, FileNotFoundError):
        # A run that ends replaces its checkpoints by its results; the next round reads those.
        if was_live and not tracked.live:
            return 0
        raise
    for row in new_rows:
        copy.add(row)
    return len(new_rows)
