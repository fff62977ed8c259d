"""Checkpoints of the learner: DeepSpeed's files, and a manifest that tells whole from truncated, own from foreign."""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from torch import distributed, nn

from threespo.errors import InputError
from threespo.files import replace_folder, write_json
from threespo.learner import backend
from threespo.learner.optim import CHECKPOINT_BYTES, OptimSettings

MANIFEST_FILE = "learner.json"
DEEPSPEED_TAG = "state"

BLOCK_BYTES = 1 << 28
"""Bytes that are hashed as one block; larger files are hashed block by block, several at a time."""

READ_BYTES = 1 << 20


class FileBlock(NamedTuple):
    """``BLOCK_BYTES`` of a file from ``start`` on, or what is left of it."""

    file: Path
    start: int


def save_engine(engine: Any, folder: Path, identity: dict[str, Any], steps: int) -> None:
    """Write the engine's whole state into a folder, whole or not at all, by all ranks together.

    Args:
        engine: DeepSpeed's.
        folder: where to; what is there is replaced.
        identity: what must be equal where the checkpoint is loaded, as JSON values.
        steps: optimizer steps taken so far.

    Raises:
        InputError: if the folder cannot be written.
    """
    if backend.get_rank() == 0:
        with replace_folder(folder) as temporary:
            # All ranks write their parts into the temporary folder, whose name only rank 0 knows.
            backend.broadcast_object(str(temporary))
            _write_state(engine, temporary)
            files = [file for file in temporary.rglob("*") if file.is_file()]
            names = sorted(str(file.relative_to(temporary)) for file in files)
            digests = _digest_files([temporary / name for name in names])
            manifest = {
                "identity": identity,
                "steps": steps,
                "files": dict(zip(names, digests, strict=True)),
            }
            write_json(temporary / MANIFEST_FILE, manifest)
    else:
        _write_state(engine, Path(backend.broadcast_object("")))
    _wait_for_all_ranks()


def checkpoint_bytes(module: nn.Module, settings: OptimSettings) -> int:
    """Return the computed size of a module's checkpoint in bytes; the files' own headers come on top."""
    # At ZeRO 3 a parameter is empty between passes and keeps its size in ``ds_numel``.
    sizes = (getattr(parameter, "ds_numel", parameter.numel()) for parameter in module.parameters())
    return sum(sizes) * CHECKPOINT_BYTES[settings.dtype, settings.zero_stage]


def load_engine(engine: Any, folder: Path, identity: dict[str, Any]) -> int:
    """Put the engine into the saved state; return the number of steps taken until then.

    Args:
        engine: DeepSpeed's, of the same model and settings.
        folder: what ``save_engine`` wrote.
        identity: as it was given to ``save_engine``.

    Raises:
        InputError: if the checkpoint is missing, broken, or does not fit ``identity``.
    """
    # Rank 0 checks for all ranks, so that they go on or refuse together.
    steps = 0
    refusal: str | None = None
    if backend.get_rank() == 0:
        try:
            steps = int(_verify(folder, identity)["steps"])
        except InputError as error:
            refusal = str(error)
    steps, refusal = backend.broadcast_object((steps, refusal))
    if refusal:
        raise InputError(refusal)

    engine.load_checkpoint(str(folder), tag=DEEPSPEED_TAG)
    return steps


def _verify(folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of a checkpoint that is whole and fits ``identity``."""
    manifest = _read_manifest(folder)
    for field, expected in identity.items():
        found = manifest["identity"].get(field)
        # As JSON values, in which tuples are lists.
        if found != json.loads(json.dumps(expected)):
            # A list has all parameters' shapes: too long for a message.
            values = "" if isinstance(expected, list) else f" (found {found!r}, expected {expected!r})"
            raise InputError(
                f"{folder}: this checkpoint is of another training: {field} differs{values}. "
                "Use the checkpoint of this run, or remove the folder to start anew."
            )

    present = {name: folder / name for name in manifest["files"] if (folder / name).is_file()}
    digests = dict(zip(present, _digest_files(list(present.values())), strict=True))
    for name, digest in manifest["files"].items():
        if digests.get(name) != digest:
            state = "is truncated or changed" if name in present else "is missing"
            raise InputError(
                f"{folder / name}: {state}, so the checkpoint {folder} cannot be used. Use an earlier one or start anew."
            )
    return manifest


def _write_state(engine: Any, folder: Path) -> None:
    engine.save_checkpoint(str(folder), tag=DEEPSPEED_TAG)
    _wait_for_all_ranks()


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST_FILE
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


def _digest_files(files: Sequence[Path]) -> list[str]:
    """Return the digest of each file: of its bytes, or of its blocks' digests where it has several blocks."""
    blocks: list[FileBlock] = []
    for file in files:
        starts = range(0, max(1, file.stat().st_size), BLOCK_BYTES)
        blocks += [FileBlock(file, start) for start in starts]
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        block_digests = list(pool.map(_digest_block, blocks))

    digests_of_file: dict[Path, list[bytes]] = {file: [] for file in files}
    for block, digest in zip(blocks, block_digests, strict=True):
        digests_of_file[block.file].append(digest)

    file_digests = []
    for file in files:
        own = digests_of_file[file]
        digest = own[0] if len(own) == 1 else hashlib.blake2b(b"".join(own)).digest()
        file_digests.append(digest.hex())
    return file_digests


def _digest_block(block: FileBlock) -> bytes:
    digest = hashlib.blake2b()
    left = BLOCK_BYTES
    with block.file.open("rb") as handle:
        handle.seek(block.start)
        while left and (piece := handle.read(min(left, READ_BYTES))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


def _wait_for_all_ranks() -> None:
    if backend.get_world_size() > 1:
        distributed.barrier()
