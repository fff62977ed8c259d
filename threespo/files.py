"""Atomic writes: a file under its final name is always complete.

Everything is written to a temporary name in the same folder, flushed to disk, and renamed. A run that is killed or runs
out of disk in mid-write therefore leaves the earlier file untouched. Who may read and write it is left to the umask and the
folder, as for any file that a person makes: several people may share a folder of results.
"""

import contextlib
import fcntl
import gzip
import io
import json
import lzma
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from threespo.errors import InputError


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` if the block succeeds, remove it otherwise.

    Raises:
        InputError: if the disk is full or the folder cannot be written.
    """
    temporary = _temporary(path, path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        yield temporary

        # Contents reach the disk before the name does, else a power cut could leave an empty file under the final name.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        _set_mode(temporary, mode)
        temporary.replace(path)
    except Exception as error:
        if _is_failed_write(error):
            raise _cannot_write(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; put it in the place of ``path`` if the block succeeds.

    Raises:
        InputError: if the disk is full or the parent cannot be written.
    """
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise _cannot_write(path, error) from error
    retired = temporary.with_name(temporary.name + ".old")
    try:
        yield temporary

        example = _temporary(temporary)
        example.touch()
        mode = example.stat().st_mode
        example.unlink()
        for inside in temporary.rglob("*"):
            _set_mode(inside, temporary.stat().st_mode if inside.is_dir() else mode)

        # A folder that is not empty cannot be replaced: the old one steps aside, and is removed only after the new one
        # is there.
        if os.path.lexists(path):
            path.replace(retired)
        temporary.replace(path)
    except Exception as error:
        if _is_failed_write(error):
            raise _cannot_write(path, error) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            remove_path(temporary)
        with contextlib.suppress(OSError):
            remove_path(retired)


def remove_path(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link, of which what it leads to stays; nothing is fine, too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _set_mode(path: Path, mode: int) -> None:
    """Let those use a file or folder who may use a new one; libraries that rename files, too, make them for their user."""
    if not path.is_symlink() and path.stat().st_mode != mode:
        path.chmod(stat.S_IMODE(mode))


def _temporary(path: Path, suffix: str = "") -> Path:
    # Not by ``tempfile``, whose files and folders are for nobody else.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{suffix}")


def link_file(source: Path, path: Path) -> None:
    """Put a file in the place of ``path`` that shares the disk's blocks with ``source``; a copy where that is impossible.

    A file that others may do less or more with than with a new one is copied: a name more of it would be as the first is.
    """
    with replace_file(path) as temporary:
        _link(source, temporary)


def link_folder(source: Path, path: Path) -> None:
    """Put a folder in the place of ``path`` whose files are those of ``source``, as by :func:`link_file`."""
    with replace_folder(path) as temporary:
        copy_folder(source, temporary, _link)


def copy_folder(
    source: Path, path: Path, copy: Callable[[Path, Path], object] = shutil.copyfile
) -> None:
    """Copy the files of a folder, hidden ones left out, by their contents alone: who may write them is as for new files.

    Args:
        source: the folder; links to folders in it are passed over.
        path: the folder that they come into.
        copy: copies a file.
    """
    for file in source.rglob("*"):
        inside = file.relative_to(source)
        # What a killed process leaves behind may be a hidden folder.
        if file.is_file() and not any(part.startswith(".") for part in inside.parts):
            (path / inside).parent.mkdir(parents=True, exist_ok=True)
            copy(file, path / inside)


def _link(source: Path, new: Path) -> None:
    new.touch()
    # Files are never written in place, so two names of one file do not disturb each other. A link's own bytes are a path.
    if source.stat().st_mode == new.stat().st_mode and not source.is_symlink():
        new.unlink()
        with contextlib.suppress(OSError):
            new.hardlink_to(source)
            return
    shutil.copyfile(source, new)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys to ``path``, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str) -> Any:
    """Return the JSON value in a file.

    Args:
        path: the file.
        remedy: a sentence that ends the message.

    Raises:
        InputError: if it is missing, or is no JSON in UTF-8.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    # ValueError: other encodings, broken JSON, and numbers of more digits than Python reads.
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable as JSON ({error}). {remedy}") from error


def try_lock(path: Path, *, shared: bool = False, wait: bool = True) -> IO[str] | None:
    """Lock the file ``path`` for this process; None if another one holds it. The lock ends with the process.

    Args:
        path: the file, made if it is not there.
        shared: others may hold it too, as far as they share it.
        wait: whether a shared lock waits for one that is not.

    Raises:
        InputError: if the file cannot be written or the file system has no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not "w": the holder's note must survive the attempts of others.
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        fcntl.flock(
            handle,
            fcntl.LOCK_EX | fcntl.LOCK_NB
            if not shared
            else fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB),
        )
    except BlockingIOError:
        handle.close()
        return None
    except OSError as error:
        handle.close()
        raise InputError(
            f"{path}: this file system has no locks ({error.strerror}); mount it with locks, or put the results elsewhere."
        ) from error
    return handle


def write_lock_holder(handle: IO[str]) -> None:
    """Write into a lock who holds it, for the messages that others show; on a full disk the lock holds without that."""
    with contextlib.suppress(OSError):
        # Not through the handle, which would keep what does not fit and fail again when it is closed.
        os.truncate(handle.fileno(), 0)
        os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def read_lock_holder(path: Path) -> str:
    """Return what the holder of a lock has written into it."""
    return path.read_bytes().decode(errors="replace").strip() or "unknown"


MAX_EXPANSION_RATIO = 500
"""Bytes that a byte of a compressed file may stand for. Games, which repeat each other most, have about 50."""

_ALWAYS_ALLOWED_EXPANSION = 1 << 28
"""Bytes that any compressed file may expand to."""


def open_text(path: Path, errors: str = "strict") -> IO[str]:
    """Open a UTF-8 text, a compressed one (``.xz``) too, which must not expand beyond all measure.

    Reading raises ``OSError`` where it does: a small file must not fill the memory.
    """
    if path.suffix != ".xz":
        return path.open(encoding="utf-8", errors=errors)
    return io.TextIOWrapper(open_compressed(path, path.suffix), encoding="utf-8", errors=errors)


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, those of a compressed one (``.xz``) expanded as by :func:`open_text`."""
    if path.suffix != ".xz":
        return path.read_bytes()
    with open_compressed(path, path.suffix) as content:
        return content.read()


def open_compressed(path: Path, suffix: str) -> io.BufferedReader:
    """Open the content of a compressed file; reading raises ``OSError`` where it expands beyond all measure.

    Args:
        path: the file, whatever its name.
        suffix: of its kind, ``.xz`` or ``.gz``.
    """
    return io.BufferedReader(_Expanding(path, suffix))


_EXPANDED: dict[str, Callable[[Path], lzma.LZMAFile | gzip.GzipFile]] = {
    ".xz": lzma.LZMAFile,
    ".gz": gzip.GzipFile,
}


class _Expanding(io.RawIOBase):
    """The content of a compressed file, up to a limit."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._file = _EXPANDED[suffix](path)
        self._left = max(_ALWAYS_ALLOWED_EXPANSION, MAX_EXPANSION_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        chunk = self._file.read(len(view))
        self._left -= len(chunk)
        if self._left < 0:
            raise OSError("it expands to more than any honest file of its size")
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()


def _is_failed_write(error: Exception) -> bool:
    """Return whether a file could not be written; torch and safetensors have errors of their own for a full disk."""
    if isinstance(error, RuntimeError):
        return "inline_container" in str(error) or "PytorchStreamWriter" in str(error)
    return isinstance(error, OSError) or type(error).__name__ == "SafetensorError"


def _cannot_write(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return InputError(
        f"{path}: cannot be written ({reason}). Earlier results are untouched; free disk space or "
        "choose another folder, then run again."
    )
