"""What a machine, or another program on it, has put around this process, and what must not matter here."""

import codecs
import contextlib
import getpass
import io
import os
import sys
import tempfile
from pathlib import Path

_FOREIGN = (
    *("MPLBACKEND", "SOURCE_DATE_EPOCH"),
    *(
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ),
)
"""Variables that are meant for others.

Figures are written to files, and without dates; the processes of a run are started by ``threespo.runs.launch``, and a
command is never one of them, whatever launcher it is called under.
"""

_CACHES = {
    "XDG_CACHE_HOME": "cache",
    "MPLCONFIGDIR": "matplotlib",
    "IPYTHONDIR": "ipython",
    "JUPYTER_RUNTIME_DIR": "jupyter",
}
"""Variables of libraries that write caches, and the folder of each where the home folder cannot be written."""


def isolate_process() -> None:
    """Make a command independent of its surroundings: to be called before anything else is imported."""
    for name in _FOREIGN:
        os.environ.pop(name, None)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Characters that the terminal's encoding lacks are escaped instead of raising an error. A new object, since in a
        # forked job the stream may be a pipe where its object was made for a terminal.
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.flush()
            again = open(stream.fileno(), "w", 1, stream.encoding, "backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, again)
    ensure_user_folders()


def ensure_user_folders() -> None:
    """Give a user without a name, or without a home that can be written, what libraries ask for."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        # Containers are often run by a number that no file of the system knows.
        os.environ["LOGNAME"] = str(os.getuid())

    home = _home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or (home or Path("/")) / ".cache")
    if home is not None and _is_writable(cache):
        return
    own = _own_folder()
    if home is None:
        os.environ["HOME"] = str(own)
    # Models that are there may still be read.
    if (cache / "huggingface").is_dir():
        os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ["XDG_CACHE_HOME"] = str(own / _CACHES["XDG_CACHE_HOME"])
    for name, folder in _CACHES.items():
        os.environ.setdefault(name, str(own / folder))


def _home() -> Path | None:
    try:
        return Path.home()
    except (RuntimeError, KeyError):
        return None


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _own_folder() -> Path:
    """Return a folder of this user for temporary files, the same for all commands, that nobody else can write."""
    folder = Path(tempfile.gettempdir()) / f"threespo-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid == os.getuid() and not folder.is_symlink() and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="threespo-"))
