"""Checksums of folders: what a later stage depends on, instead of modification times.

A workflow can compare one small file by content cheaply; a folder of weights it can only compare by time. So the
stage that writes such a folder also writes ``FOLDER.checksums.json`` beside it, which changes only if a byte in the
folder does.
"""

import hashlib
from pathlib import Path

from threespo.files import atomic_json

SUFFIX = ".checksums.json"


def checksums_path(folder: Path) -> Path:
    """Return where the checksums of ``folder`` lie: outside of it, so that they never list themselves."""
    return folder.with_name(folder.name + SUFFIX)


def write_checksums(folder: Path) -> None:
    """Write the checksums of ``folder``: SHA-256 by relative path, sorted."""
    atomic_json(checksums_path(folder), checksums(folder))


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` by POSIX path; hidden files (markers of tools) are left out."""
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {name.as_posix(): file_digest(folder / name) for name in names if not name.name.startswith(".")}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
