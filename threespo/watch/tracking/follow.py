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
    """Copy what a target lacks of a run or of all runs of a study; return how many rows were copied.

    Args:
        path: a run's folder or a study's folder of results.
        target: ``tensorboard``, ``wandb``, ``mlflow`` or ``trackio``.
        folder: where the target keeps its files; None for the target's own place.
        project: project or experiment that runs are filed under.
        follow: go on until every run has been trained and evaluated.
        wait: called between two looks.

    Raises:
        InputError: if there is nothing to copy, a table cannot be read, or the target refuses.
    """
    left, opened = find_tracked_runs(path), dict[Run, TrackedCopy]()
    copied = there = seen = 0
    try:
        while True:
            for tracked in tuple(left):
                # Asked before the look: rows that come during it are seen by the next one.
                last = not follow or tracked.complete
                copied += _copy(tracked, opened, target, folder, project)
                if last:
                    left.remove(tracked)
                    copy = opened.pop(tracked.run, None)
                    if copy:
                        copy.close()
                        there, seen = there + copy.rows, seen + 1
            if not left:
                break
            wait()
    finally:
        for copy in opened.values():
            copy.close()

    if not seen:
        raise InputError(f"{path}: no run has ended an epoch yet; try again later, or add --follow")
    print(f"{target}: {copied} rows copied; {there} rows of {seen} runs are there", file=sys.stderr)
    return copied


def _copy(
    tracked: TrackedRun, opened: dict[Run, TrackedCopy], target: str, folder: Path | None, project: str
) -> int:
    live = tracked.live
    try:
        if tracked.run not in opened:
            first = next(read_rows(tracked), None)
            if first is None:
                return 0
            identity = tracked.identity(first)
            opened[tracked.run] = open_target(
                target, tracked.name, identity, tracked.settings(), folder, project
            )
        new = list(read_rows(tracked, opened[tracked.run].rows))
    except (InputError, FileNotFoundError):
        # A run that ends puts its tables in the place of what it left while it went on: the next look sees them.
        if live and not tracked.live:
            return 0
        raise
    for row in new:
        opened[tracked.run].add(row)
    return len(new)
