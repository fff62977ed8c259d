"""Digests of files and folders: what results are told apart by, instead of modification times."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from threespo.errors import InputError
from threespo.files import write_json

FileDigests = dict[str, str]
"""SHA-256 by POSIX path: of a folder's files relative to the folder, of a file under the name ``""``."""

_RECENT_SECONDS = 2
"""A file that changed less than this ago may change once more within the resolution of its times."""


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def semantic_digest(path: Path) -> str:
    """Return a digest of what a file of the repository says.

    A YAML file counts without comments and layout, a notebook without outputs; any other by its bytes, as one that cannot be
    parsed does.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".yml"):
            # The order of entries counts: it is that of rows. ``default``: YAML has dates.
            return _text_digest(
                json.dumps(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), default=str)
            )
        if path.suffix == ".ipynb":
            cells = [
                [cell["cell_type"], cell["source"], cell["metadata"].get("tags")]
                for cell in json.loads(text)["cells"]
            ]
            return _text_digest(json.dumps(cells))
    except (ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return file_digest(path)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def list_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of a file or of all files below a folder, sorted; hidden files (markers of tools) are left out.

    A link to a file counts as the file, whose bytes are compared. One to a folder is not followed: it may lead anywhere, and
    what changes there would change a result.
    """
    if path.is_file():
        yield "", path
    elif path.is_dir() and not path.is_symlink():
        try:
            names = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
        except FileNotFoundError:
            # A job has replaced a folder in it while it was listed.
            yield from list_files(path)
            return
        for name in names:
            # Any part: what a killed process leaves behind may be a hidden folder.
            if not any(part.startswith(".") for part in name.parts):
                yield name.as_posix(), path / name


class DigestCache:
    """Digests of results, each computed once; with a memory of files that have not changed since an earlier process.

    A file is taken for unchanged if size, inode and both times are the same. The time of the last change of the inode
    cannot be set by a user, so editing a file and restoring its modification time shows.
    """

    def __init__(self, memory: Path | None = None) -> None:
        """Begin without digests, or with those in the file ``memory``."""
        self._memory = memory
        self._now: dict[Path, FileDigests] = {}
        self._known = _read_memory(memory) if memory else {}
        self._seen: dict[str, list[Any]] = {}

    def digests_of(self, path: Path) -> FileDigests:
        """Return the digests of a file or of all files in a folder; nothing if there is neither."""
        if path not in self._now:
            found = self._now[path] = {}
            for name, file in list_files(path):
                # Who only looks (a dry run, ``threespo why``) may do so while a job replaces its results.
                with contextlib.suppress(FileNotFoundError):
                    found[name] = self._digest(file)
        return self._now[path]

    def save(self) -> None:
        """Write down the digests for later processes, if there is a file for it and anything is new."""
        if self._memory and self._seen != self._known:
            # It only saves time: where it cannot be written, files are read again.
            with contextlib.suppress(InputError):
                write_json(self._memory, self._seen)

    def _digest(self, file: Path) -> str:
        if self._memory is None:
            return file_digest(file)
        found = file.stat()
        state = [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
        name = os.path.relpath(file, self._memory.parent)
        digest = (
            self._known[name][1]
            if name in self._known and self._known[name][0] == state
            else file_digest(file)
        )
        if abs(time.time_ns() - found.st_ctime_ns) > _RECENT_SECONDS * 10**9:
            self._seen[name] = [state, digest]
        return digest


def _read_memory(path: Path) -> dict[str, list[Any]]:
    """Return what an earlier process has noted; nothing if there is no such file or it is damaged: it only saves time."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): [list(state), str(digest)] for name, (state, digest) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
