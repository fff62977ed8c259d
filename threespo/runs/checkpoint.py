"""Checkpoints of unfinished runs: taken at epoch boundaries, whole or absent, the last two kept."""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from threespo.errors import InputError, format_bytes
from threespo.files import read_lock_holder, replace_folder, try_lock, write_json, write_lock_holder

KEPT_CHECKPOINTS = 2
"""Two, so that a damaged one has another before it."""


class Checkpointable(Protocol):
    """A learner or critic, as far as checkpoints are concerned."""

    def save(self, folder: Path) -> None: ...

    def size(self) -> int: ...

    def load(self, folder: Path) -> None: ...


@dataclass(slots=True)
class Progress:
    """How far a run is; everything but the weights. ``progress.json`` of a checkpoint has these fields."""

    identity: str
    """Hash of what decides the run; a checkpoint of another run or study is refused."""
    ranks: int = 1
    """Processes that train it: each has its part of the optimizer's state."""
    epoch: int = 0
    """Completed epochs."""
    generations: int = 0
    env_steps: int = 0
    completed_paths: int = 0
    optimizer_steps: int = 0
    metrics: list[dict[str, Any]] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    """What the method remembers."""


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock the run whose checkpoints lie in ``folder``: two processes would overwrite each other's.

    Raises:
        InputError: if another process holds it.
    """
    # Not in the folder, since a finished run removes the folder.
    lock = folder.with_name(folder.name + ".lock")
    handle = try_lock(lock)
    if handle is None:
        raise InputError(
            f"{folder}: another process ({read_lock_holder(lock)}) is training this run. "
            "Wait for it or stop it; the lock ends with the process."
        )

    with handle:
        # For the message that a second process shows.
        write_lock_holder(handle)
        yield


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a checkpoint below ``folder``."""
    return bool(_list_checkpoints(folder))


def newest_checkpoint_bytes(folder: Path) -> int:
    """Return the bytes of the newest checkpoint below ``folder``."""
    newest = _list_checkpoints(folder)[-1]
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())


def save_checkpoint(folder: Path, progress: Progress, trained: Mapping[str, Checkpointable]) -> None:
    """Write checkpoint ``epoch-N`` below ``folder`` and remove all but the last two.

    Args:
        folder: holds the run's checkpoints.
        progress: how far the run is, after epoch N.
        trained: learner and critic by name; each saves itself into a folder of its name.
    """
    check_disk_space(folder, trained, 1)
    with replace_folder(folder / f"epoch-{progress.epoch:06d}") as temporary:
        for name, model in trained.items():
            model.save(temporary / name)
        write_json(temporary / "progress.json", asdict(progress))

    # Only now, when the new one is complete.
    for old in _list_checkpoints(folder)[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old)


def check_disk_space(folder: Path, trained: Mapping[str, Checkpointable], count: int) -> None:
    """Make sure that there is room for ``count`` more checkpoints below ``folder``.

    Raises:
        InputError: if there is not.
    """
    # The folder is made with the first checkpoint; its disk is that of the nearest parent that is there.
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    checkpoint_bytes = sum(model.size() for model in trained.values())
    if count * checkpoint_bytes > free:
        raise InputError(
            f"{folder}: {count} checkpoint(s) of {format_bytes(checkpoint_bytes)} each have to be written "
            f"(two are kept while one is written), and {format_bytes(free)} are free. "
            "Free disk space, or put the results elsewhere (results: FOLDER)."
        )


def load_checkpoint(
    folder: Path, identity: str, trained: Mapping[str, Checkpointable], ranks: int = 1
) -> Progress:
    """Restore the newest readable checkpoint below ``folder``; without one, return the beginning of a run.

    A damaged checkpoint is named and the one before it used.

    Args:
        folder: holds the run's checkpoints.
        identity: hash of what decides the run, which the checkpoint must have.
        trained: learner and critic by name, as given to ``save_checkpoint``; each loads its part.
        ranks: processes of the run.

    Raises:
        InputError: if the checkpoint belongs to another run or to other settings, or if a damaged one was read in part and
            there is no whole one to use instead.
    """
    # A checkpoint of which at least one part has been loaded: what is trained no longer has its first
    # weights.
    partly_loaded: Path | None = None
    for checkpoint in reversed(_list_checkpoints(folder)):
        try:
            progress = Progress(**json.loads((checkpoint / "progress.json").read_text()))
        except (OSError, ValueError, RecursionError, TypeError) as error:
            print(f"{checkpoint}: damaged ({error}); the one before it is used", file=sys.stderr)
            continue

        # Not skipped like a damaged one: only a person can say that another run's work may be thrown
        # away.
        _check_same_run(checkpoint, progress, identity, ranks)

        try:
            for name, model in trained.items():
                model.load(checkpoint / name)
                partly_loaded = checkpoint
        except InputError as error:
            print(f"{checkpoint}: {error}; the one before it is used", file=sys.stderr)
            continue

        print(f"resumed after epoch {progress.epoch} from {checkpoint}", file=sys.stderr)
        return progress

    # A run that began with half-loaded weights would not be the run that the settings describe.
    if partly_loaded:
        raise InputError(
            f"{partly_loaded}: only a part of it could be read, and there is no other checkpoint. Delete {folder} to train "
            "this run from the beginning."
        )
    return Progress(identity, ranks)


def _check_same_run(checkpoint: Path, progress: Progress, identity: str, ranks: int) -> None:
    folder = checkpoint.parent
    if progress.ranks != ranks:
        raise InputError(
            f"{checkpoint}: made by {progress.ranks} rank(s), and this run has {ranks}: each rank has its part of the "
            f"optimizer's state. Set ranks_per_run: {progress.ranks} to go on, or delete {folder} to train this run "
            "from the beginning."
        )
    if progress.identity != identity:
        raise InputError(
            f"{checkpoint}: made by a run with other settings, games, base policy or code. "
            f"Delete {folder} to train this run from the beginning."
        )


def _list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints below ``folder``, oldest first."""
    return sorted(folder.glob("epoch-[0-9]*")) if folder.exists() else []
