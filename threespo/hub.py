"""Files of the model hub: fetched once, resumed where a download has stopped, verified before they get their name.

``huggingface_hub`` finds and transfers them, so its environment variables hold here: ``HF_HOME`` (where models are kept),
``HF_ENDPOINT`` (a mirror), ``HF_HUB_OFFLINE``, ``HF_TOKEN``. Its own downloads begin anew in every process; here what has
arrived stays in a file that ends with ``.part`` until the rest has come. A file whose digest is not the hub's (or the pinned
one) never gets its name.
"""

import contextlib
import errno
import fnmatch
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast
from urllib.parse import urlparse

from threespo.errors import InputError
from threespo.network import make_http_client

Kind = Literal["model", "dataset"]

MODEL_FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.txt", "*.jinja")
"""Patterns of a model's files that are fetched; there are others for other libraries."""

COMMIT = re.compile("[0-9a-f]{40}")


class CachedModel(NamedTuple):
    """A model in the hub's cache."""

    folder: Path
    revision: str
    """The commit that a name such as ``main`` has meant."""
    files: dict[str, int]
    """Bytes by name."""


class _Remote(NamedTuple):
    """A file at the hub."""

    location: str
    size: int
    digest: str
    """SHA-256 of a large file; of a small one SHA-1 as git has it."""
    headers: dict[str, str]


def fetch_file(
    repository: str,
    name: str,
    target: Path,
    *,
    revision: str,
    kind: Kind = "dataset",
    sha256: str | None = None,
) -> Path:
    """Fetch a file of a repository unless it is there.

    Args:
        repository: OWNER/NAME.
        name: the file's name there.
        target: what it is here; it appears when it is whole and verified.
        revision: a commit, a tag or a branch.
        kind: of the repository.
        sha256: what its content must be; ``None`` trusts the digest that the hub states.

    Raises:
        InputError: if the network, the hub or the disk fails (what has arrived is kept), or the content is another one.
    """
    if not target.is_file():
        with _explained(f"{repository}, {name}", f"put the file at {target} by hand"):
            _fetch(_find(repository, name, kind, revision), target, sha256)
    return target


def fetch_model(source: str, revision: str | None = None) -> CachedModel:
    """Return a model of the hub from its cache (``HF_HOME``), after fetching what is not there yet.

    Args:
        source: OWNER/NAME.
        revision: a commit, a tag or a branch; ``None``: the default branch.

    Raises:
        InputError: if the network, the hub or the disk fails (what has arrived is kept), or a digest is wrong.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download
    from huggingface_hub.file_download import repo_folder_name

    if (here := _cached(source, revision)) is not None:
        return here
    with _explained(source, "name a local folder in the policy's 'source'"):
        info = HfApi().model_info(source, revision=revision)
        commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
        store = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="model")
        for name in _of_model(source, names):
            # A verified blob is put where the library keeps those that it has fetched; it then only links them.
            remote = _find(source, name, "model", commit)
            _fetch(remote, store / "blobs" / remote.digest, None, shown=name)
            linked = Path(hf_hub_download(source, name, revision=commit))
        if not COMMIT.fullmatch(revision or ""):
            # The cache then knows which commit the name has meant, for those who are offline later.
            hf_hub_download(source, "config.json", revision=revision)
    model = _described(linked.parents[len(Path(name).parents) - 1], commit)
    print(
        f"model {source}: revision {commit}, {sum(model.files.values()):,} bytes in {model.folder}",
        file=sys.stderr,
    )
    return model


def find_model_folder(source: str, revision: str, files: Mapping[str, int]) -> Path:
    """Return the folder of a model that was fetched before; it is fetched again where the cache has lost it.

    Args:
        source: OWNER/NAME.
        revision: its commit.
        files: bytes of its files by name.

    Raises:
        InputError: as ``fetch_model``.
    """
    here = _cached(source, revision)
    return (
        here.folder
        if here and files.items() <= here.files.items()
        else fetch_model(source, revision).folder
    )


def _cached(source: str, revision: str | None) -> CachedModel | None:
    """Return what the cache has of a pinned model, or offline of any, if it is whole."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not constants.is_offline_mode() and not COMMIT.fullmatch(revision or ""):
        return None
    try:
        folder = Path(snapshot_download(source, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return _described(folder, folder.name) if _is_whole(folder) else None


def _described(folder: Path, commit: str) -> CachedModel:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return CachedModel(
        folder, commit, {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    )


def _is_whole(folder: Path) -> bool:
    """Return whether a snapshot has configuration, tokenizer and all its weights: an interrupted one has fewer files."""
    index = folder / "model.safetensors.index.json"
    try:
        weights = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        weights = {path.name for path in folder.glob("*.safetensors")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    tokenizer = any(
        (folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")
    )
    return (
        tokenizer
        and bool(weights)
        and all((folder / name).is_file() for name in ("config.json", *weights))
    )


def _of_model(source: str, names: Sequence[str]) -> list[str]:
    """Return the files that are fetched: small ones first, so that a wrong model is found before its weights have come."""
    wanted = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in MODEL_FILES)]
    if not any(name.endswith(".safetensors") for name in wanted):
        raise InputError(
            f"{source}: no weights in the format safetensors; convert the model, or choose another one"
        )
    return sorted(wanted, key=lambda name: (name.endswith(".safetensors"), name))


def _find(repository: str, name: str, kind: Kind, revision: str) -> _Remote:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # it is public, and not marked so

    url = hf_hub_url(repository, name, repo_type=kind, revision=revision)
    found = get_hf_file_metadata(url)
    if found.size is None or found.etag is None:
        raise OSError(f"{url}: the server states neither size nor digest; is it a model hub?")
    headers = build_hf_headers()
    # A signed address elsewhere must not see the token.
    if urlparse(found.location).netloc != urlparse(url).netloc:
        headers.pop("authorization", None)
    return _Remote(found.location, found.size, found.etag, headers)


def _fetch(remote: _Remote, target: Path, sha256: str | None, shown: str = "") -> None:
    """Put a file in its place unless another process has; ``shown`` is what the progress bar calls it."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    target.parent.mkdir(parents=True, exist_ok=True)
    # Of this very content: what another revision has left is no beginning of it.
    partial = target.with_name(f"{target.name}.{remote.digest[:12]}.part")
    with WeakFileLock(target.with_name(f".{target.name}.lock")):
        if not target.is_file():
            have = partial.stat().st_size if partial.exists() else 0
            if have > remote.size:
                partial.unlink()
                have = 0
            _check_disk(remote.size - have, target)
            with partial.open("ab") as out:
                http_get(
                    remote.location,
                    out,
                    resume_size=have,
                    headers=remote.headers,
                    expected_size=remote.size,
                    displayed_filename=shown or target.name,
                )
            _verify(partial, remote, sha256, target)
            partial.replace(target)


def _check_disk(needed: int, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"{needed:,} bytes are still to come, and {free:,} are free for {target.parent}",
        )


def _verify(file: Path, remote: _Remote, sha256: str | None, target: Path) -> None:
    """Delete a file whose digest is wrong."""
    small = len(remote.digest) == hashlib.sha1(usedforsecurity=False).digest_size * 2
    wanted = [
        (digest, name)
        for digest, name in ((remote.digest, "the hub states"), (sha256, "is pinned here"))
        if digest
    ]
    for digest, whose in wanted:
        as_git = small and digest == remote.digest
        sums = (
            hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
            if as_git
            else hashlib.sha256()
        )
        with file.open("rb") as data:
            while chunk := data.read(1 << 20):
                sums.update(chunk)
        if sums.hexdigest() != digest:
            file.unlink()
            raise InputError(
                f"{target}: what was fetched has the digest {sums.hexdigest()}, but {digest} {whose}. It was deleted; run "
                "again, and if that does not help, choose another mirror or revision"
            )


@contextlib.contextmanager
def _explained(what: str, by_hand: str) -> Iterator[None]:
    """Turn failures of network, hub and disk into one sentence with the remedy."""
    from huggingface_hub import constants, errors, get_session

    if not constants.is_offline_mode():
        # Made here, before anything is fetched: its errors are of the environment, not of the network.
        make_http_client(what, get_session)
    # The HTTP library's errors, whichever that is in this version, and those of the system.
    failures = cast(tuple[type[Exception], ...], errors.HfHubHTTPError.__bases__)
    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise InputError(
            f"{what}: not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it. Unset it, or {by_hand}"
        ) from error
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.EntryNotFoundError,
    ) as error:
        raise InputError(
            f"{what}: {constants.ENDPOINT} has no such repository, revision or file ({type(error).__name__}). Check the "
            f"names in the study, set HF_TOKEN if it is not public, or {by_hand}"
        ) from error
    except failures as error:
        again = "Run again when the network is there, set HF_ENDPOINT to a mirror"
        remedy = "Free some disk space and run again" if _is_full(error) else again
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{what}: not fetched from {constants.ENDPOINT} ({first}). What has arrived is kept. {remedy}, or {by_hand}"
        ) from error


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
