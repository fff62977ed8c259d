"""What a machine does to a process, done on demand: FAKE_FAULTS is a list of ``FAULT:PATTERN`` parted by spaces.

- ``full:*.parquet``: the disk is full when a file whose path matches reaches it.
- ``killed:*.parquet``: the process is killed at that moment.
- ``readonly:/PATH``: nothing below PATH can be written.
- ``clock-SECONDS:train``: the clock is so much behind in processes that have the argument ``train``; ``*`` means all.
"""

import errno
import fnmatch
import io
import os
import signal
import sys
import time
from pathlib import Path

FAULTS = [fault.partition(":")[::2] for fault in os.environ["FAKE_FAULTS"].split()]


def _path_of(descriptor):
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _failing(function):
    """Return ``function`` of a file's descriptor, which fails or kills where a fault says so."""

    def wrapped(descriptor, *arguments):
        path = _path_of(descriptor)
        for fault, pattern in FAULTS:
            if fault in ("full", "killed") and fnmatch.fnmatch(path, pattern):
                if fault == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return function(descriptor, *arguments)

    return wrapped


def _refusing(function, writes):
    """Return ``function`` of a path, which fails below a read-only one if ``writes`` says so of its other arguments."""

    def wrapped(path, *arguments, **named):
        if isinstance(path, str | os.PathLike) and writes(*arguments, **named):
            absolute = os.path.abspath(path)  # noqa: PTH100
            if any(fault == "readonly" and absolute.startswith(place) for fault, place in FAULTS):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        return function(path, *arguments, **named)

    return wrapped


def _shifted(function, seconds):
    return lambda: function() + seconds


def _always(*_, **__):
    return True


def _opens_to_write(mode="r", *_, **__):
    return any(letter in mode for letter in "wax+")


def _has_flag_to_write(flags, *_, **__):
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


kinds = {fault for fault, _ in FAULTS}
if kinds & {"full", "killed"}:
    os.fsync, os.write = _failing(os.fsync), _failing(os.write)
if "readonly" in kinds:
    import builtins

    for name in (
        "mkdir",
        "rmdir",
        "remove",
        "unlink",
        "rename",
        "replace",
        "utime",
        "truncate",
        "link",
        "symlink",
    ):
        setattr(os, name, _refusing(getattr(os, name), _always))
    os.open = _refusing(os.open, _has_flag_to_write)
    builtins.open = io.open = _refusing(io.open, _opens_to_write)
for fault, process in FAULTS:
    if fault.startswith("clock") and (process == "*" or process in sys.argv):
        behind = -int(fault.removeprefix("clock-"))
        time.time = _shifted(time.time, behind)
        time.time_ns = _shifted(time.time_ns, behind * 10**9)
