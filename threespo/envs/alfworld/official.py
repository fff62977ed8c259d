"""Fetching ALFWorld's released games.

The text games are one archive of a release on GitHub, the one from which ``alfworld-download`` takes ``game.tw-pddl`` files.
Interrupted downloads are resumed.

Checksums: the release states none. The SHA-256 that is pinned here is the one that independent public projects have recorded
for the archive of 36,493,542 bytes. For an archive without one the sum is pinned on first use: size and zip checksums of
the first download are verified, its SHA-256 is recorded in ``checksums.json`` in the download folder, and any later download
into that folder must have the same sum.
"""

import errno
import hashlib
import http.client
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from threespo.envs.alfworld.sources import find_splits
from threespo.errors import InputError
from threespo.files import read_json, replace_folder, write_json

_CHUNK_BYTES = 1 << 18
# Seconds of silence after which a download has failed.
_TIMEOUT = 30.0
# Of an archive, unpacked; the release has a tenth of it.
_MAX_BYTES = 32 << 30
_MAX_MEMBERS = 1_000_000
CHECKSUMS = "checksums.json"
GAMES = "games"


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    url: str
    sha256: str | None = None  # Known checksum; None: pinned on first use.

    @property
    def name(self) -> str:
        """File name."""
        return self.url.rsplit("/", 1)[-1]


RELEASE = (
    Archive(
        "https://github.com/alfworld/alfworld/releases/download/0.4.0/json_2.1.2_tw-pddl.zip",
        sha256="eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
    ),
)


def fetch_release(folder: Path, archives: Sequence[Archive] = RELEASE, progress: bool = True) -> Path:
    """Download and unpack the games into a folder unless they are there; return the folder to load them from.

    Args:
        folder: holds partial archives while downloading, ``checksums.json``, and ``games`` at the end.
        archives: the files to download.
        progress: show a progress bar on standard error.

    Raises:
        InputError: if the network or the server fails (downloaded bytes are kept), a checksum is wrong, or an archive is
            broken or holds no games.
    """
    games = folder / GAMES
    if find_splits(games):
        return games

    files = [_download(archive, folder, progress) for archive in archives]
    with replace_folder(games) as temporary:
        for file in files:
            _unpack(file, temporary)
        if not find_splits(temporary):
            raise InputError(
                f"{files[0]}: no games in it; expected SPLIT/TASK/TRIAL/game.tw-pddl. Delete it and run again"
            )

    for file in files:
        file.unlink()
    return games


def _download(archive: Archive, folder: Path, progress: bool) -> Path:
    """Return the complete and verified archive."""
    file = folder / archive.name
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(file.name + ".part")
        try:
            _transfer(archive, partial, progress)
        except (OSError, http.client.HTTPException) as error:
            kept = _size(partial)
            is_disk_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            when = "there is space on the disk" if is_disk_full else "the server can be reached"
            raise InputError(
                f"{archive.url}: download failed ({error}); {kept} bytes are kept in {partial}. Run again when {when}, "
                f"put the file at {file} by hand, or choose source: embedded or path"
            ) from error
        partial.replace(file)
    # A file that was put there by hand is checked as well.
    _verify(archive, file)
    return file


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _transfer(archive: Archive, partial: Path, progress: bool) -> None:
    """Download the bytes that a partial file lacks."""
    resume_at = _size(partial)
    headers = {"Range": f"bytes={resume_at}-"} if resume_at else {}
    request = urllib.request.Request(archive.url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        # "Range not satisfiable": nothing is missing.
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and resume_at:
            return
        raise

    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            # The server has ignored the range and sends the whole file, so the partial file is overwritten.
            resume_at = 0
        length = response.headers.get("Content-Length")
        total = resume_at + int(length) if length else None
        bar = tqdm(
            total=total,
            initial=resume_at,
            unit="B",
            unit_scale=True,
            desc=archive.name,
            disable=not progress,
        )
        with bar, partial.open("ab" if resume_at else "wb") as out:
            # Not ``read``: it would keep back, and lose, the bytes that came before the connection stalls.
            while chunk := response.read1(_CHUNK_BYTES):
                out.write(chunk)
                bar.update(len(chunk))

    size = _size(partial)
    if total is not None and size != total:
        raise http.client.HTTPException(f"the connection ended after {size} of {total} bytes")


def _read_checksums(file: Path) -> dict[str, dict[str, Any]]:
    """Return what was recorded of earlier downloads, by archive."""
    remedy = "Remove it; the next download records them again."
    checksums = read_json(file, remedy) if file.exists() else {}
    is_valid = isinstance(checksums, dict) and all(
        isinstance(recorded, dict) for recorded in checksums.values()
    )
    if not is_valid:
        raise InputError(f"{file}: not the checksums of archives by name. {remedy}")
    return checksums


def _verify(archive: Archive, file: Path) -> None:
    """Check the archive's checksum and its content's; a wrong file is deleted, so that it is downloaded again."""
    checksum_file = file.with_name(CHECKSUMS)
    checksums = _read_checksums(checksum_file)
    expected = archive.sha256 or checksums.get(archive.name, {}).get("sha256")
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if expected not in (None, found):
        file.unlink()
        raise InputError(
            f"{file}: its SHA-256 is {found}, expected {expected}. The file was deleted; run again, and if that does "
            f"not help, find out whether the release was changed"
        )

    try:
        with zipfile.ZipFile(file) as content:
            _check_members(file, content)
            damaged = content.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        file.unlink()
        raise InputError(
            f"{file}: not a zip archive, or damaged ({error}). It was deleted; run again"
        ) from error
    if damaged is not None:
        file.unlink()
        raise InputError(f"{file}: {damaged} in it is damaged. It was deleted; run again")

    checksums[archive.name] = {"sha256": found, "bytes": file.stat().st_size, "url": archive.url}
    write_json(checksum_file, checksums)


def _check_members(file: Path, content: zipfile.ZipFile) -> None:
    """Refuse names that point out of a folder, links, and sizes that would fill the disk, before anything is unpacked."""
    members = content.infolist()
    for member in members:
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts or not member.filename.isprintable():
            raise InputError(
                f"{file}: it holds the unsafe path {member.filename!r}; do not use this file"
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InputError(f"{file}: it holds the link {member.filename!r}; do not use this file")
    # The declared sizes: ``zipfile`` unpacks no more than these.
    size = sum(member.file_size for member in members)
    if size > _MAX_BYTES or len(members) > _MAX_MEMBERS:
        raise InputError(
            f"{file}: it would unpack to {len(members):,} files of {size:,} bytes together, more than any release of the "
            "games; do not use this file"
        )


def _unpack(file: Path, folder: Path) -> None:
    """Unpack the files of a verified archive."""
    with zipfile.ZipFile(file) as content:
        for member in content.infolist():
            target = folder.joinpath(*PurePosixPath(member.filename).parts)
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with content.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
