"""Which GPU a job uses. Snakemake limits how many jobs run at a time, but does not say which GPU is whose."""

import fcntl
import tempfile
from pathlib import Path

from threespo.errors import InputError

_held: list[object] = []
"""Open lock files of this process; the locks end with it, however it ends."""


def claim_device(gpus: int, folder: Path | None = None, visible: int | None = None) -> str:
    """Return ``cpu`` for 0 GPUs, otherwise ``cuda:N`` of a GPU that no other job of this machine has claimed.

    Args:
        gpus: the study's ``gpus_per_run``.
        folder: where lock files lie (default: the machine's temporary folder).
        visible: number of GPUs (default: what torch sees).

    Raises:
        InputError: if no GPU is free.
    """
    if gpus == 0:
        return "cpu"
    if visible is None:
        import torch

        visible = torch.cuda.device_count()
    for index in range(visible):
        lock = ((folder or Path(tempfile.gettempdir())) / f"threespo-gpu-{index}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _held.append(lock)
        return f"cuda:{index}"
    raise InputError(
        f"gpus_per_run: 1, but of {visible} visible GPUs none is free. Pass --resources gpu={max(visible, 1)} to the "
        "workflow, or set gpus_per_run: 0 to run on CPU cores."
    )
