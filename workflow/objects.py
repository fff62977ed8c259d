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

from threespo.errors import InputError, format_names

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

    def drop_damaged_list(self, folder: str) -> bool:
        """Remove the list of a folder's files from the cache if it is damaged; return whether it was."""
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
        _put(self.cache, self.cache.fs, {one: str((study / names[one]).absolute()) for one in damaged})
        if still := _damaged(self.cache, damaged):
            raise InputError(f"{study / names[still[0]]}: was changed while it was pushed; push again")
        return names

    def push(self, folder: str, names: Mapping[str, str]) -> list[str]:
        """Store what the remote lacks or has damaged.

        Args:
            folder: digest of the study's folder, as dvc.lock has it.
            names: of all its files by digest, as :meth:`complete_cache` returns them.

        Returns:
            The names of those that were at the remote once, and were lost or damaged there.

        Raises:
            InputError: if it does not keep what is stored, or fails.
        """
        with _told(self.url):
            pushed_before = self.remote.fs.exists(self.remote.oid_to_path(folder))
            damaged = _damaged(self.remote, names)
            _put(self.remote, self.cache.fs, {one: self.cache.oid_to_path(one) for one in damaged})
            if still := _damaged(self.remote, damaged):
                raise InputError(
                    f"{self.url}: does not keep what is stored there ({names[still[0]]}); look after its disk"
                )
        return [names[one] for one in damaged] if pushed_before else []

    def fetch(self, folder: str) -> None:
        """Make sure that all of a study's results are in the cache, with the bytes that were pushed.

        Args:
            folder: digest of the study's folder, as dvc.lock has it.

        Raises:
            InputError: if the remote lacks one, has it damaged, or fails; what is in the cache is then whole or absent.
        """
        self._fetch({folder: _LIST})
        self._fetch(self._names(folder))

    def _fetch(self, names: Mapping[str, str]) -> None:
        wanted = _damaged(self.cache, names)
        _remove(self.cache, wanted)
        with _told(self.url):
            _put(
                self.cache,
                self.remote.fs,
                {one: self.remote.oid_to_path(one) for one in self._there(wanted)},
            )
        damaged = _damaged(self.cache, wanted)
        _remove(self.cache, damaged)
        if damaged:
            raise InputError(
                f"{self.url}: lacks, or has damaged, {len(damaged)} of {len(names)} files that this commit describes "
                f"({format_names(names[one] for one in damaged[:3])}). Results here are untouched; whoever shared them can "
                "repeat `make push`, which mends it."
            )

    def _there(self, digests: Collection[str]) -> list[str]:
        """Return those objects that the remote has, in whatever state."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(
                pool.map(lambda digest: self.remote.fs.exists(self.remote.oid_to_path(digest)), digests)
            )
        return [digest for digest, there in zip(digests, found, strict=True) if there]

    def _names(self, folder: str) -> dict[str, str]:
        """Return the names of a study's files by digest, in its folder; the folder's own last."""
        file = Path(self.cache.oid_to_path(folder))
        try:
            files = {
                str(entry["md5"]): str(entry["relpath"])
                for entry in json.loads(file.read_text(encoding="utf-8"))
            }
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{file}: not the list of a folder's files ({error}); remove it, and push again"
            ) from error
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


def _put(store: Any, files: Any, sources: Mapping[str, str]) -> None:
    """Store objects, each from a path in the file system ``files``; lists of files last: they say that all is there."""
    _remove(store, sources)
    for ending in (False, True):
        some = {digest: path for digest, path in sources.items() if digest.endswith(".dir") == ending}
        if some:
            store.add(list(some.values()), files, list(some), check_exists=False)


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
