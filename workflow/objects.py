"""The objects of a study's results, in DVC's cache and at the remote, compared byte for byte with their names.

An object's name is the digest of its bytes. DVC takes an object that is there for whole, and all of a folder's for present
where the folder's own is; so what a remote has lost or damaged would stay so.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from threespo.errors import InputError, listed

_AT_ONCE = 8
_LIST = "the list of files"
_CHUNK = 1 << 20


class Stores:
    """DVC's cache of this clone, and its remote."""

    def __init__(self, url: str) -> None:
        """Open both; ``url`` is the remote's, for messages."""
        from dvc.repo import Repo

        repository = Repo()
        self.url = url
        self.cache: Any = repository.cache.local
        self.remote: Any = repository.cloud.get_remote_odb()

    def drop_damaged_lists(self, folder: str) -> bool:
        """Remove the list of a folder's files where it is damaged: DVC would fail; return whether the cache lacks it."""
        with _told(self.url):
            _remove(self.remote, _damaged(self.remote, [folder]))
        damaged = _damaged(self.cache, [folder])
        _remove(self.cache, damaged)
        return bool(damaged)

    def complete_cache(self, folder: str, study: Path) -> dict[str, str]:
        """Put what the cache has damaged of a study's results there again, from the results, and return their names.

        Args:
            folder: digest of the study's folder, as dvc.lock has it.
            study: the folder, in which the results are as described.

        Raises:
            InputError: if they are not.
        """
        names = self._names(folder)
        damaged = _damaged(self.cache, names)
        _put(self.cache, {one: (str((study / names[one]).absolute()), self.cache.fs) for one in damaged})
        if still := _damaged(self.cache, damaged):
            raise InputError(f"{study / names[still[0]]}: was changed while it was pushed; push again")
        return names

    def mend_remote(self, names: Mapping[str, str]) -> list[str]:
        """Store what the remote lacks or has damaged, from the cache, and return the names of these files.

        Raises:
            InputError: if it does not keep what is stored, or fails.
        """
        with _told(self.url):
            damaged = _damaged(self.remote, names)
            _put(self.remote, {one: (self.cache.oid_to_path(one), self.cache.fs) for one in damaged})
            if still := _damaged(self.remote, damaged):
                raise InputError(f"{self.url}: does not keep what is stored there ({names[still[0]]}); look after its disk")
        return [names[one] for one in damaged]

    def fetch_list(self, folder: str) -> None:
        """Make sure that the list of a study's files is in the cache, as :meth:`fetch` does it of all."""
        self._fetch({folder: _LIST})

    def fetch(self, folder: str) -> None:
        """Make sure that all of a study's results are in the cache, with the bytes that were pushed.

        Args:
            folder: digest of the study's folder, as dvc.lock has it; its list is there (:meth:`fetch_list`).

        Raises:
            InputError: if the remote lacks one, has it damaged, or fails; what is in the cache is then whole or absent.
        """
        self._fetch(self._names(folder))

    def _fetch(self, names: Mapping[str, str]) -> None:
        wanted = _damaged(self.cache, names)
        _remove(self.cache, wanted)
        with _told(self.url):
            damaged = _damaged(self.remote, wanted)
            if damaged:
                raise InputError(
                    f"{self.url}: lacks, or has damaged, {len(damaged)} of {len(names)} files that this commit describes "
                    f"({listed(names[one] for one in damaged[:3])}). Results here are untouched; whoever shared them can "
                    "repeat `make push`, which mends it."
                )
            _put(self.cache, {one: (self.remote.oid_to_path(one), self.remote.fs) for one in wanted})

    def _names(self, folder: str) -> dict[str, str]:
        """Return the names of a study's files by digest, in its folder; the folder's own last."""
        file = Path(self.cache.oid_to_path(folder))
        try:
            files = {str(entry["md5"]): str(entry["relpath"]) for entry in json.loads(file.read_text(encoding="utf-8"))}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{file}: not the list of a folder's files ({error}); remove it, and push again") from error
        return {**files, folder: _LIST}


def _damaged(store: Any, digests: Collection[str]) -> list[str]:
    """Return the objects that a store lacks, or has with other bytes than their names say, in the order given."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        whole = list(pool.map(partial(_is_whole, store), digests))
    return [digest for digest, well in zip(digests, whole, strict=True) if not well]


def _is_whole(store: Any, digest: str) -> bool:
    found = hashlib.md5(usedforsecurity=False)
    try:
        with store.fs.open(store.oid_to_path(digest), "rb") as stream:
            while chunk := stream.read(_CHUNK):
                found.update(chunk)
    except (FileNotFoundError, IsADirectoryError):
        return False
    # A folder's own object has the ending .dir.
    return found.hexdigest() == digest.partition(".")[0]


def _put(store: Any, sources: Mapping[str, tuple[str, Any]]) -> None:
    """Store objects from paths in file systems, one after the other."""
    _remove(store, sources)
    for digest, (path, files) in sources.items():
        store.add(path, files, digest, check_exists=False)


def _remove(store: Any, digests: Collection[str]) -> None:
    for digest in digests:
        path = store.oid_to_path(digest)
        if store.fs.exists(path):
            store.fs.remove(path)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Say in one line what fails at the remote: its libraries have exceptions of their own."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{url}: results there could not be looked at ({what})") from error
