"""Files of the model hub: fetched once, resumed where a download has stopped, verified before they get their name.

``huggingface_hub`` finds and transfers them, so its environment variables apply: ``HF_HOME`` (where models are kept),
``HF_ENDPOINT`` (a mirror), ``HF_HUB_OFFLINE``, ``HF_TOKEN``. A file whose digest is neither the hub's nor the pinned one
never gets its name.
"""

# Why not `snapshot_download` alone: huggingface_hub 2.4 deletes what an interrupted process has received (a file of the shop
# has 5.5 GB), compares no digests, and only warns of a full disk. So partial files, digests and the check of the disk are
# ours; addresses, tokens, cache and transfer are the library's. `http_get` alone is a function that it does not document.

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

RepositoryKind = Literal["model", "dataset"]

MODEL_FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.txt", "*.jinja")
"""Patterns of a model's files that are fetched; there are others for other libraries."""

_COMMIT = re.compile("[0-9a-f]{40}")

_SHA1_LENGTH = 40


class CachedModel(NamedTuple):
    """A model in the hub's cache."""

    folder: Path
    revision: str
    """The commit, also where a name such as ``main`` was asked for."""
    files: dict[str, int]
    """Bytes by name."""


class _RemoteFile(NamedTuple):
    """A file at the hub."""

    url: str
    size: int
    digest: str
    """SHA-256 of a large file; of a small one SHA-1 as git computes it."""
    headers: dict[str, str]


def fetch_file(
    repository: str,
    name: str,
    target: Path,
    *,
    revision: str,
    kind: RepositoryKind = "dataset",
    sha256: str | None = None,
) -> Path:
    """Fetch a file of a repository unless it is there.

    Args:
        repository: OWNER/NAME.
        name: the file's name in the repository.
        target: the local file; it appears when it is complete and verified.
        revision: a commit, a tag or a branch.
        kind: of the repository.
        sha256: what its content must be; ``None`` trusts the digest that the hub states.

    Raises:
        InputError: if the network, the hub or the disk fails (what has arrived is kept), or the content is another one.
    """
    if not target.is_file():
        with _explain_failures(f"{repository}, {name}", f"put the file at {target} by hand"):
            remote = _find_remote_file(repository, name, kind, revision)
            _download(remote, target, sha256, target.name)
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

    cached = _find_cached_model(source, revision)
    if cached is not None:
        return cached

    # The layout of the library's cache is documented: models--OWNER--NAME with blobs, refs and snapshots.
    store = Path(constants.HF_HUB_CACHE) / f"models--{source.replace('/', '--')}"
    with _explain_failures(source, "name a local folder in the policy's 'source'"):
        info = HfApi().model_info(source, revision=revision)
        commit = str(info.sha)
        for name in _select_model_files(source, [file.rfilename for file in info.siblings or ()]):
            # A verified blob is put where the library keeps those that it has fetched; it then only links them.
            remote = _find_remote_file(source, name, "model", commit)
            _download(remote, store / "blobs" / remote.digest, None, name)
            hf_hub_download(source, name, revision=commit)
        if not _is_commit(revision):
            # So that the cache knows which commit the name has meant, for those who are offline later.
            hf_hub_download(source, "config.json", revision=revision)

    model = _describe_snapshot(store / "snapshots" / commit)
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
    cached = _find_cached_model(source, revision)
    if cached is not None and files.items() <= cached.files.items():
        return cached.folder
    return fetch_model(source, revision).folder


def _find_cached_model(source: str, revision: str | None) -> CachedModel | None:
    """Return a complete model from the cache: of a pinned commit, or offline of any revision."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not constants.is_offline_mode() and not _is_commit(revision):
        return None
    try:
        folder = Path(snapshot_download(source, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return _describe_snapshot(folder) if _is_complete(folder) else None


def _is_commit(revision: str | None) -> bool:
    return _COMMIT.fullmatch(revision or "") is not None


def _describe_snapshot(folder: Path) -> CachedModel:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    return CachedModel(folder, revision=folder.name, files=sizes)


def _is_complete(folder: Path) -> bool:
    """Return whether a snapshot has configuration, tokenizer and all weights: an interrupted download has fewer files."""
    index = folder / "model.safetensors.index.json"
    try:
        weights = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        weights = {path.name for path in folder.glob("*.safetensors")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False

    tokenizers = ("tokenizer.json", "tokenizer.model", "vocab.json")
    has_tokenizer = any((folder / name).is_file() for name in tokenizers)
    has_the_rest = all((folder / name).is_file() for name in ("config.json", *weights))
    return bool(weights) and has_tokenizer and has_the_rest


def _select_model_files(source: str, names: Sequence[str]) -> list[str]:
    """Return the files to fetch: small ones first, so that a wrong model is found before its weights have come."""
    selected = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in MODEL_FILES)]
    if not any(name.endswith(".safetensors") for name in selected):
        raise InputError(
            f"{source}: no weights in the format safetensors; convert the model, or choose another one"
        )
    return sorted(selected, key=lambda name: (name.endswith(".safetensors"), name))


def _find_remote_file(repository: str, name: str, kind: RepositoryKind, revision: str) -> _RemoteFile:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # it is public, and not marked so

    url = hf_hub_url(repository, name, repo_type=kind, revision=revision)
    metadata = get_hf_file_metadata(url)
    if metadata.size is None or metadata.etag is None:
        raise OSError(f"{url}: the server states neither size nor digest; is it a model hub?")

    headers = build_hf_headers()
    # A signed address elsewhere must not see the token.
    if urlparse(metadata.location).netloc != urlparse(url).netloc:
        headers.pop("authorization", None)
    return _RemoteFile(metadata.location, metadata.size, metadata.etag, headers)


def _download(remote: _RemoteFile, target: Path, sha256: str | None, label: str) -> None:
    """Fetch a file unless another process has; ``label`` is what the progress bar calls it."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    target.parent.mkdir(parents=True, exist_ok=True)
    # The name has the digest: what was received of another revision must not be continued.
    partial = target.with_name(f"{target.name}.{remote.digest[:12]}.part")
    with WeakFileLock(target.with_name(f".{target.name}.lock")):
        if target.is_file():
            return

        # More than the whole file can only be a remainder of something else.
        received = partial.stat().st_size if partial.exists() else 0
        if received > remote.size:
            partial.unlink()
            received = 0
        _check_free_space(remote.size - received, target.parent)

        with partial.open("ab") as out:
            http_get(
                remote.url,
                out,
                resume_size=received,
                headers=remote.headers,
                expected_size=remote.size,
                displayed_filename=label,
            )
        _verify(partial, remote, sha256, target)
        partial.replace(target)


def _check_free_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            errno.ENOSPC, f"{needed:,} bytes are still to come, and {free:,} are free for {folder}"
        )


def _verify(partial: Path, remote: _RemoteFile, sha256: str | None, target: Path) -> None:
    """Delete a file whose digest is not the hub's or the pinned one, and raise ``InputError``."""
    expected = [(remote.digest, "the hub states")]
    if sha256:
        expected.append((sha256, "is pinned here"))

    for digest, origin in expected:
        found = _hash_file(partial, as_git=len(digest) == _SHA1_LENGTH)
        if found != digest:
            partial.unlink()
            raise InputError(
                f"{target}: what was fetched has the digest {found}, but {digest} {origin}. It was deleted; run "
                "again, and if that does not help, choose another mirror or revision"
            )


def _hash_file(file: Path, *, as_git: bool) -> str:
    """Return the SHA-256 of a file, or the SHA-1 of the object that git makes of it."""
    with file.open("rb") as data:
        if not as_git:
            return hashlib.file_digest(data, "sha256").hexdigest()
        header = b"blob %d\0" % file.stat().st_size
        return hashlib.file_digest(data, lambda: hashlib.sha1(header, usedforsecurity=False)).hexdigest()


@contextlib.contextmanager
def _explain_failures(subject: str, by_hand: str) -> Iterator[None]:
    """Turn failures of network, hub and disk into one sentence with the remedy."""
    from huggingface_hub import constants, errors, get_session

    if not constants.is_offline_mode():
        # Made before anything is fetched: its errors are of the environment, not of the network.
        make_http_client(subject, get_session)

    # The library's error derives from OSError and from that of its HTTP library, which differs between versions.
    transfer_errors = cast(tuple[type[Exception], ...], errors.HfHubHTTPError.__bases__)
    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise InputError(
            f"{subject}: not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids to fetch it. Unset it, or {by_hand}"
        ) from error
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.EntryNotFoundError,
    ) as error:
        raise InputError(
            f"{subject}: {constants.ENDPOINT} has no such repository, revision or file ({type(error).__name__}). Check the "
            f"names in the study, set HF_TOKEN if it is not public, or {by_hand}"
        ) from error
    except transfer_errors as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Free some disk space and run again"
        else:
            remedy = "Run again when the network is there, set HF_ENDPOINT to a mirror"
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{subject}: not fetched from {constants.ENDPOINT} ({reason}). What has arrived is kept. {remedy}, or {by_hand}"
        ) from error
