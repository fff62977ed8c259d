"""Atomic writes: a file under its final name is always complete.

Everything is written to a temporary name in the same folder, flushed to disk, and renamed. A run that is killed or runs
out of disk during a write therefore leaves the earlier file untouched. Permissions follow the umask and the folder, as for
files that a person creates, because several people may share a folder of results.
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
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` if the block succeeds, else remove it.

    Raises:
        InputError: if the disk is full or the folder cannot be written.
    """
    temporary = _temporary_path(path, path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
    except OSError as error:
        raise _write_error(path, error) from error
    try:
        yield temporary

        # Contents reach the disk before the name does, else a power cut could leave an empty file under the final name.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        _set_mode(temporary, mode)
        temporary.replace(path)
    except Exception as error:
        if _is_failed_write(error):
            raise _write_error(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder in the folder of ``path``; rename it to ``path`` if the block succeeds.

    Raises:
        InputError: if the disk is full or the parent cannot be written.
    """
    temporary = _temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise _write_error(path, error) from error
    retired = temporary.with_name(temporary.name + ".old")
    try:
        yield temporary

        # A new file shows which mode the umask gives.
        probe = _temporary_path(temporary)
        probe.touch()
        file_mode = probe.stat().st_mode
        probe.unlink()
        folder_mode = temporary.stat().st_mode
        for inside in temporary.rglob("*"):
            _set_mode(inside, folder_mode if inside.is_dir() else file_mode)

        # A folder that is not empty cannot be replaced: the old one is moved away first, and removed only when the new
        # one is in its place.
        if os.path.lexists(path):
            path.replace(retired)
        temporary.replace(path)
    except Exception as error:
        if _is_failed_write(error):
            raise _write_error(path, error) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            remove_path(temporary)
        with contextlib.suppress(OSError):
            remove_path(retired)


def remove_path(path: Path) -> None:
    """Remove a file, a folder with its contents, or a link but not its target; a missing path is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _set_mode(path: Path, mode: int) -> None:
    """Give a file or folder the mode of a new one; libraries that write through ``tempfile`` make it private."""
    if not path.is_symlink() and path.stat().st_mode != mode:
        path.chmod(stat.S_IMODE(mode))


def _temporary_path(path: Path, suffix: str = "") -> Path:
    # Not by ``tempfile``, whose files and folders only their owner may read.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{suffix}")


def link_file(source: Path, path: Path) -> None:
    """Replace ``path`` by a hard link to ``source``; by a copy where linking is impossible.

    A source whose mode differs from that of a new file is copied, since a link would have that mode too.
    """
    with replace_file(path) as temporary:
        _link_or_copy(source, temporary)


def link_folder(source: Path, path: Path) -> None:
    """Replace ``path`` by a folder with the files of ``source``, each linked as by :func:`link_file`."""
    with replace_folder(path) as temporary:
        copy_folder(source, temporary, _link_or_copy)


def copy_folder(
    source: Path, path: Path, copy: Callable[[Path, Path], object] = shutil.copyfile
) -> None:
    """Copy the contents of a folder's files, but no hidden files; modes are those of new files.

    Args:
        source: the folder; links to folders in it are skipped.
        path: the target folder.
        copy: copies one file.
    """
    for file in source.rglob("*"):
        relative = file.relative_to(source)
        # Killed processes may leave hidden temporary folders.
        is_hidden = any(part.startswith(".") for part in relative.parts)
        if file.is_file() and not is_hidden:
            target = path / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            copy(file, target)


def _link_or_copy(source: Path, new: Path) -> None:
    new.touch()
    # Files are never written in place, so two names of one file cannot disturb each other. Symbolic links are copied: the
    # content of a link is a path.
    if source.stat().st_mode == new.stat().st_mode and not source.is_symlink():
        new.unlink()
        with contextlib.suppress(OSError):
            new.hardlink_to(source)
            return
    shutil.copyfile(source, new)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path`` atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys to ``path`` atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str) -> Any:
    """Return the JSON value in a file.

    Args:
        path: the file.
        remedy: the last sentence of the error message.

    Raises:
        InputError: if the file is missing or is not JSON in UTF-8.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    # ValueError covers other encodings, broken JSON, and numbers with more digits than Python converts.
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable as JSON ({error}). {remedy}") from error


def try_lock(path: Path, *, shared: bool = False, wait: bool = True) -> IO[str] | None:
    """Lock the file ``path`` until this process ends; return None if another process holds it.

    Args:
        path: the file, created if missing.
        shared: other processes may hold a shared lock at the same time.
        wait: whether a shared lock waits for an exclusive one.

    Raises:
        InputError: if the file cannot be written or the file system has no locks.
    """
    # ``flock`` and not a file that exists: the system releases it when a process is killed.
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    # An exclusive lock never waits: its caller reports who holds it.
    if not (shared and wait):
        operation |= fcntl.LOCK_NB
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not "w", which would delete what the present holder has written about itself.
        handle = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise _write_error(path, error) from error
    try:
        fcntl.flock(handle, operation)
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
    """Write this process and host into a lock file, for the messages of others; a full disk is ignored."""
    with contextlib.suppress(OSError):
        # Not through the handle: it would keep what does not fit and fail again when it is closed.
        os.truncate(handle.fileno(), 0)
        os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def read_lock_holder(path: Path) -> str:
    """Return what the holder of a lock has written into it."""
    return path.read_bytes().decode(errors="replace").strip() or "unknown"


MAX_EXPANSION_RATIO = 500
"""Bytes that one byte of a compressed file may expand to. Game files, which are very repetitive, reach about 50."""

_ALWAYS_ALLOWED_EXPANSION = 1 << 28
"""Bytes that any compressed file may expand to."""


def open_text(path: Path, errors: str = "strict") -> IO[str]:
    """Open a UTF-8 text that may be compressed (``.xz``).

    Reading raises ``OSError`` where a compressed file expands too far, so that a small file cannot fill the memory.
    """
    if path.suffix != ".xz":
        return path.open(encoding="utf-8", errors=errors)
    return io.TextIOWrapper(open_compressed(path, path.suffix), encoding="utf-8", errors=errors)


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, decompressed if it is an ``.xz`` file (limited as in :func:`open_text`)."""
    if path.suffix != ".xz":
        return path.read_bytes()
    with open_compressed(path, path.suffix) as content:
        return content.read()


def open_compressed(path: Path, suffix: str) -> io.BufferedReader:
    """Open the content of a compressed file; reading raises ``OSError`` where it expands too far.

    Args:
        path: the file, whatever its name.
        suffix: the format, ``.xz`` or ``.gz``.
    """
    return io.BufferedReader(_LimitedDecompression(path, suffix))


_DECOMPRESSORS: dict[str, Callable[[Path], lzma.LZMAFile | gzip.GzipFile]] = {
    ".xz": lzma.LZMAFile,
    ".gz": gzip.GzipFile,
}


class _LimitedDecompression(io.RawIOBase):
    """The content of a compressed file, up to a limit on its size."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._file = _DECOMPRESSORS[suffix](path)
        self._bytes_left = max(_ALWAYS_ALLOWED_EXPANSION, MAX_EXPANSION_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        chunk = self._file.read(len(view))
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise OSError("it expands to more than any honest file of its size")
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._file.close()
        super().close()


def _is_failed_write(error: Exception) -> bool:
    """Return whether an error means that a file could not be written."""
    # torch and safetensors report a full disk by errors of their own.
    if isinstance(error, RuntimeError):
        return "inline_container" in str(error) or "PytorchStreamWriter" in str(error)
    return isinstance(error, OSError) or type(error).__name__ == "SafetensorError"


def _write_error(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return InputError(
        f"{path}: cannot be written ({reason}). Earlier results are untouched; free disk space or "
        "choose another folder, then run again."
    )
