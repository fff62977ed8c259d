"""Fetching WebShop's released files.

The original's files lie on a drive that only a browser can download from. The same bytes are on mirrors at the model hub;
which one is a setting. SHA-256 of the three files are pinned here: several public mirrors and projects state the same ones.
Files that are already in the folder are used instead.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from threespo.errors import InputError
from threespo.hub import fetch_file

RELEASE = {
    "items_shuffle.json": "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
    "items_ins_v2.json": "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
    "items_human_ins.json": "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
}
"""SHA-256 of the whole shop: 1.18 million products (5.5 GB), their attributes, and what people asked for."""


def fetch(folder: Path, mirror: str, revision: str, release: Mapping[str, str] = RELEASE) -> Path:
    """Fetch the files that are not in the folder, check those that are, and return the folder.

    Args:
        folder: where they lie, or will.
        mirror: OWNER/NAME of a data set at the model hub.
        revision: its commit, tag or branch.
        release: SHA-256 by name.

    Raises:
        InputError: if a file is another one, or cannot be fetched (what has arrived is kept).
    """
    for name, sha256 in release.items():
        file = folder / name
        if file.is_file():
            _check(file, sha256)
        else:
            fetch_file(mirror, name, file, revision=revision, sha256=sha256)
    return folder


def _check(file: Path, sha256: str) -> None:
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != sha256:
        raise InputError(
            f"{file}: its SHA-256 is {found}, that of the release {sha256}. Remove it to have it fetched, or take other "
            "files with source: path"
        )
