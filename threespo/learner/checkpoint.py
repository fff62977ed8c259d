"""Checkpoints of the learner: DeepSpeed's files, and a manifest that tells whole from truncated, own from foreign."""

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import distributed

from threespo.errors import InputError
from threespo.files import atomic_folder, atomic_json
from threespo.learner import backend

_MANIFEST = "learner.json"
_TAG = "state"


def save(engine: Any, folder: Path, identity: dict[str, Any], steps: int) -> None:
    """Write the engine's whole state into a folder, whole or not at all, by all ranks together.

    Args:
        engine: DeepSpeed's.
        folder: where to; what is there is replaced.
        identity: what whoever loads the checkpoint must agree on, as JSON values.
        steps: optimizer steps taken so far.

    Raises:
        InputError: if the folder cannot be written.
    """
    if backend.rank() == 0:
        with atomic_folder(folder) as temporary:
            # All ranks write their parts into the temporary folder, whose name only rank 0 knows.
            _broadcast(str(temporary))
            _write(engine, temporary)
            files = {name: _digest(temporary / name) for name in _files(temporary)}
            atomic_json(temporary / _MANIFEST, {"identity": identity, "steps": steps, "files": files})
    else:
        _write(engine, Path(_broadcast("")))
    _wait()


def load(engine: Any, folder: Path, identity: dict[str, Any]) -> int:
    """Put the engine into the saved state; return the number of steps taken until then.

    Args:
        engine: DeepSpeed's, of the same model and settings.
        folder: what ``save`` wrote.
        identity: as it was given to ``save``.

    Raises:
        InputError: if the checkpoint is missing, broken, or does not fit ``identity``.
    """
    manifest = _manifest(folder)
    for field, expected in identity.items():
        found = manifest["identity"].get(field)
        # As JSON values, in which tuples are lists.
        if found != json.loads(json.dumps(expected)):
            raise InputError(
                f"{folder}: this checkpoint is of another training: {field} differs{_shown(found, expected)}. "
                "Use the checkpoint of this run, or remove the folder to start anew."
            )

    for name, digest in manifest["files"].items():
        file = folder / name
        if not file.is_file() or _digest(file) != digest:
            state = "is missing" if not file.is_file() else "is truncated or changed"
            raise InputError(
                f"{file}: {state}, so the checkpoint {folder} cannot be used. Use an earlier one or start anew."
            )

    engine.load_checkpoint(str(folder), tag=_TAG)
    return int(manifest["steps"])


def _write(engine: Any, folder: Path) -> None:
    engine.save_checkpoint(str(folder), tag=_TAG)
    _wait()


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / _MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if not (isinstance(manifest["identity"], dict) and isinstance(manifest["files"], dict)):
            raise TypeError("a field is of another type")
        int(manifest["steps"])
    except FileNotFoundError as error:
        raise InputError(f"{file}: not found, so {folder} is no checkpoint of a learner. Give the right folder.") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{file}: cannot be read ({error}); the checkpoint is broken. Use an earlier one.") from error
    return dict(manifest)


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _digest(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "blake2b").hexdigest()


def _shown(found: Any, expected: Any) -> str:
    return "" if isinstance(expected, list) else f" (found {found!r}, expected {expected!r})"


def _broadcast(text: str) -> str:
    if backend.world_size() == 1:
        return text
    box = [text]
    distributed.broadcast_object_list(box)
    return box[0]


def _wait() -> None:
    if backend.world_size() > 1:
        distributed.barrier()
