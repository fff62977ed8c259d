"""Which GPUs a run may use: the scheduler counts GPUs, but does not say which, so runs side by side claim theirs here.

A claim is a locked file per device, in a folder of this machine and user. The system releases the lock when the process
ends, however it ends.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from threespo.errors import InputError
from threespo.files import try_lock

VISIBLE = "CUDA_VISIBLE_DEVICES"

POLL_SECONDS = 0.5


@contextlib.contextmanager
def claim(count: int, patience: float = 60.0, folder: Path | None = None) -> Iterator[None]:
    """Hold ``count`` GPUs and show only these to CUDA; with ``count`` 0 do nothing.

    Args:
        count: how many GPUs the run needs.
        patience: seconds to wait for GPUs that other runs hold.
        folder: holds the lock files; by default one in the system's temporary folder, for each user.

    Raises:
        InputError: if this machine has too few, or none came free within ``patience`` seconds.
    """
    if not count:
        yield
        return

    devices = available()
    if len(devices) < count:
        raise InputError(
            f"the run needs {count} GPU(s), this machine offers {len(devices)} ({VISIBLE} or nvidia-smi). "
            "Choose a study without GPUs, set gpus_per_rank: 0, or lower ranks_per_run."
        )

    before = os.environ.get(VISIBLE)
    held = _hold(devices, count, patience, folder or Path(tempfile.gettempdir()) / f"threespo-gpus-{os.getuid()}")
    os.environ[VISIBLE] = ",".join(held)
    try:
        yield
    finally:
        for handle in held.values():
            handle.close()
        if before is None:
            os.environ.pop(VISIBLE)
        else:
            os.environ[VISIBLE] = before


def available() -> list[str]:
    """Return the GPUs that this process was given: those of ``CUDA_VISIBLE_DEVICES``, or all of the machine."""
    given = os.environ.get(VISIBLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(index) for index, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def _hold(devices: list[str], count: int, patience: float, folder: Path) -> dict[str, IO[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + patience
    while True:
        held: dict[str, IO[str]] = {}
        for device in devices:
            handle = try_lock(folder / f"{device.replace('/', '_')}.lock")
            if handle:
                held[device] = handle
            if len(held) == count:
                return held

        # All or none: two runs that each hold half of what they need would wait for each other for ever.
        for handle in held.values():
            handle.close()
        if time.monotonic() >= end:
            raise InputError(
                f"{count} GPU(s) were asked for, but only {len(held)} of {len(devices)} are free: other runs hold "
                "them. Pass --resources gpu=N with the number of GPUs that are really free."
            )
        time.sleep(POLL_SECONDS)
