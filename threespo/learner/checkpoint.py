"""Checkpoints of the learner: DeepSpeed's files, and a manifest that tells whole from truncated, own from foreign."""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import distributed, nn

from threespo.errors import InputError
from threespo.files import replace_folder, write_json
from threespo.learner import backend
from threespo.learner.optim import CHECKPOINT_BYTES, OptimSettings

_MANIFEST = "learner.json"
_TAG = "state"

_BLOCK = 1 << 28
"""Bytes that are hashed as one piece; larger files are hashed piece by piece, several at a time."""


def save_engine(engine: Any, folder: Path, identity: dict[str, Any], steps: int) -> None:
    """Write the engine's whole state into a folder, whole or not at all, by all ranks together.

    Args:
        engine: DeepSpeed's.
        folder: where to; what is there is replaced.
        identity: what whoever loads the checkpoint must agree on, as JSON values.
        steps: optimizer steps taken so far.

    Raises:
        InputError: if the folder cannot be written.
    """
    if backend.get_rank() == 0:
        with replace_folder(folder) as temporary:
            # All ranks write their parts into the temporary folder, whose name only rank 0 knows.
            backend.broadcast_object(str(temporary))
            _write(engine, temporary)
            names = _files(temporary)
            files = dict(zip(names, _digests([temporary / name for name in names]), strict=True))
            write_json(temporary / _MANIFEST, {"identity": identity, "steps": steps, "files": files})
    else:
        _write(engine, Path(backend.broadcast_object("")))
    _wait()


def checkpoint_bytes(module: nn.Module, settings: OptimSettings) -> int:
    """Return the bytes that a checkpoint of a module takes, computed; the files' own headers come on top."""
    # At ZeRO 3 a parameter is empty between passes and keeps its size beside it.
    numbers = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in module.parameters())
    return numbers * CHECKPOINT_BYTES[settings.dtype, settings.zero_stage]


def load_engine(engine: Any, folder: Path, identity: dict[str, Any]) -> int:
    """Put the engine into the saved state; return the number of steps taken until then.

    Args:
        engine: DeepSpeed's, of the same model and settings.
        folder: what ``save_engine`` wrote.
        identity: as it was given to ``save_engine``.

    Raises:
        InputError: if the checkpoint is missing, broken, or does not fit ``identity``.
    """
    # Looked at once, for all ranks: they go on or refuse together.
    steps, refused = _steps(folder, identity) if backend.get_rank() == 0 else (0, None)
    steps, refused = backend.broadcast_object((steps, refused))
    if refused:
        raise InputError(refused)

    engine.load_checkpoint(str(folder), tag=_TAG)
    return steps


def _steps(folder: Path, identity: dict[str, Any]) -> tuple[int, str | None]:
    """Return the number of steps before a checkpoint, or why it cannot be used."""
    try:
        manifest = _verified(folder, identity)
    except InputError as error:
        return 0, str(error)
    return int(manifest["steps"]), None


def _verified(folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    manifest = _manifest(folder)
    for field, expected in identity.items():
        found = manifest["identity"].get(field)
        # As JSON values, in which tuples are lists.
        if found != json.loads(json.dumps(expected)):
            raise InputError(
                f"{folder}: this checkpoint is of another training: {field} differs{_shown(found, expected)}. "
                "Use the checkpoint of this run, or remove the folder to start anew."
            )

    there = {name: folder / name for name in manifest["files"] if (folder / name).is_file()}
    found = dict(zip(there, _digests(list(there.values())), strict=True))
    for name, digest in manifest["files"].items():
        if found.get(name) != digest:
            state = "is truncated or changed" if name in there else "is missing"
            raise InputError(
                f"{folder / name}: {state}, so the checkpoint {folder} cannot be used. Use an earlier one or start anew."
            )
    return manifest


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
        raise InputError(
            f"{file}: not found, so {folder} is no checkpoint of a learner. Give the right folder."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{file}: cannot be read ({error}); the checkpoint is broken. Use an earlier one."
        ) from error
    return dict(manifest)


def _files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _digests(files: Sequence[Path]) -> list[str]:
    """Return the digest of each file: of its bytes, or of its blocks' digests where it has several."""
    blocks = [(file, start) for file in files for start in range(0, max(1, file.stat().st_size), _BLOCK)]
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        hashed = list(pool.map(_digest, blocks))
    result = []
    for file in files:
        own = [digest for (one, _), digest in zip(blocks, hashed, strict=True) if one == file]
        result.append((own[0] if len(own) == 1 else hashlib.blake2b(b"".join(own)).digest()).hex())
    return result


def _digest(block: tuple[Path, int]) -> bytes:
    file, start = block
    digest, left = hashlib.blake2b(), _BLOCK
    with file.open("rb") as handle:
        handle.seek(start)
        while left and (piece := handle.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


def _shown(found: Any, expected: Any) -> str:
    return "" if isinstance(expected, list) else f" (found {found!r}, expected {expected!r})"


def _wait() -> None:
    if backend.get_world_size() > 1:
        distributed.barrier()
