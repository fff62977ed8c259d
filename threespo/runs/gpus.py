"""Which GPUs a run may use: the scheduler counts GPUs, but does not say which, so runs side by side claim theirs here.

A claim is a locked file per device, in a folder of this machine and user. The system releases the lock when the process
ends, however it ends. Devices are told apart by their UUIDs: what one process calls 0 may be another's 3, or hidden from it.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from threespo.errors import InputError, format_names
from threespo.files import try_lock

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

DEVICE_ORDER = "CUDA_DEVICE_ORDER"
"""CUDA numbers the fastest device first unless told to number as nvidia-smi does."""

SCHEDULER_VARIABLES = (
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "PBS_GPUFILE",
    "LSB_GPU_ALLOC",
    "SGE_HGR_gpu",
)
"""Variables that a cluster's scheduler sets in a job that it has given GPUs to."""

MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"

POLL_SECONDS = 0.5

SMI_SECONDS = 60
"""nvidia-smi answers in seconds, unless a driver hangs."""

SMI_WORDS = 400
"""Characters that are shown of what it says when it fails."""

_SMI_REMEDY = f"Mend the driver, or set {VISIBLE_DEVICES}= (empty) to compute without GPUs."

FOREIGN_SHARE = 0.05
"""Of a device's memory: what a display or the MPS daemon may take of a device that counts as free."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG slice of one, that this process may use."""

    name: str
    """What ``CUDA_VISIBLE_DEVICES`` calls it here."""
    uuid: str
    model: str = ""
    """What its maker calls it; the memory of a slice is not told."""
    memory: int = 0
    """Bytes in all; 0 where nvidia-smi does not say."""
    used: int = 0
    """Bytes that somebody holds at the moment."""


@contextlib.contextmanager
def claim_gpus(
    count: int, runs_per_gpu: int = 1, patience: float = 60.0, folder: Path | None = None
) -> Iterator[None]:
    """Hold ``count`` GPUs and show only these to CUDA; with ``count`` 0 do nothing.

    In a job to which a cluster's scheduler has given as many GPUs as the run needs, these are the run's and nothing is
    locked. Where it has given more (an interactive allocation, a whole node), runs claim theirs among them.

    Args:
        count: how many GPUs the run needs on this machine.
        runs_per_gpu: runs that may share a device; 1 keeps all others away.
        patience: seconds to wait for GPUs that other runs hold.
        folder: holds the lock files; by default one in the system's temporary folder, for each user.

    Raises:
        InputError: if this machine has too few, or none came free within ``patience`` seconds.
    """
    if not count:
        yield
        return

    there = visible_devices()
    check_device_count(count, there)
    if len(there) == count and given_by_scheduler():
        yield
        return

    before = {name: os.environ.get(name) for name in (VISIBLE_DEVICES, DEVICE_ORDER)}
    folder = folder or Path(tempfile.gettempdir()) / f"threespo-gpus-{os.getuid()}"
    held = _hold(there, count, runs_per_gpu, patience, folder)
    os.environ[VISIBLE_DEVICES] = ",".join(device.name for device in held)
    os.environ.setdefault(DEVICE_ORDER, "PCI_BUS_ID")
    try:
        yield
    finally:
        for handles in held.values():
            _close(handles)
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def check_device_count(count: int, there: Sequence[Device]) -> None:
    """Check that there are as many devices as a run needs.

    Raises:
        InputError: if there are fewer.
    """
    if len(there) < count:
        raise InputError(
            f"a run needs {count} GPU(s), this machine offers {len(there)} ({VISIBLE_DEVICES} or nvidia-smi). "
            "Choose a study without GPUs, or set gpus_per_rank: 0."
        )


def check_granted_gpus(granted: int, runs_per_gpu: int = 1) -> str:
    """Check, before anything runs, that this machine has the GPUs that it was told to use.

    Args:
        granted: N of ``--resources gpu=N``.
        runs_per_gpu: runs that share a device.

    Returns:
        A sentence on the devices and on how runs share them.

    Raises:
        InputError: if it has fewer.
    """
    there = visible_devices()
    if granted > len(there):
        raise InputError(
            f"--resources gpu={granted}: this machine offers {len(there)} GPU(s) ({VISIBLE_DEVICES} or nvidia-smi). "
            f"Pass --resources gpu={len(there)}, or submit to a cluster (--workflow-profile workflow/profiles/slurm)."
        )
    models = format_names(dict.fromkeys(device.model or "unknown" for device in there))
    shared = "each run has a GPU of its own"
    if runs_per_gpu > 1:
        ways = (
            "MPS is on"
            if is_mps_running()
            else "no MPS, so they take turns: `nvidia-cuda-mps-control -d` lets them compute at once"
        )
        shared = f"{runs_per_gpu} runs share a GPU ({ways})"
    return f"{granted} of {len(there)} GPUs ({models}); {shared}"


def given_by_scheduler(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a cluster's scheduler has given this process its GPUs."""
    return any(environment.get(name) for name in SCHEDULER_VARIABLES)


def is_mps_running(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether CUDA's multi-process service runs, with which processes on one device compute at the same time."""
    return (Path(environment.get(MPS_FOLDER) or "/tmp/nvidia-mps") / "control").exists()


def visible_devices() -> list[Device]:
    """Return the GPUs that this process was given: those of ``CUDA_VISIBLE_DEVICES``, or all that nvidia-smi lists.

    Raises:
        InputError: if the variable names a device that nvidia-smi does not list here, or nvidia-smi fails.
    """
    given = os.environ.get(VISIBLE_DEVICES)
    names = None if given is None else [name.strip() for name in given.split(",") if name.strip()]
    if names == []:
        return []

    present = _listed()
    return present if names is None else [_named(name, present) for name in names]


def _named(name: str, present: Sequence[Device]) -> Device:
    """Return the device that ``CUDA_VISIBLE_DEVICES`` means: an index, or a UUID or its beginning."""
    for device in present:
        if name == device.name or (not name.isdigit() and device.uuid.startswith(name)):
            return Device(name, device.uuid, device.model, device.memory, device.used)
    raise InputError(
        f"{VISIBLE_DEVICES}: {name!r} is no device that nvidia-smi lists here ({format_names(device.uuid for device in present)}); "
        "without its UUID runs of one device could not be told apart. Correct the variable, or make nvidia-smi available."
    )


def _listed() -> list[Device]:
    """Return the devices that nvidia-smi lists, of a GPU that is cut up its slices; none where there is no nvidia-smi."""
    lines = run_nvidia_smi("-L")
    memory = {}
    for line in run_nvidia_smi(
        "--query-gpu=uuid,memory.total,memory.used", "--format=csv,noheader,nounits"
    ):
        uuid, *amounts = (part.strip() for part in line.split(","))
        # An integrated device has no memory of its own: "[N/A]".
        memory[uuid] = [int(amount) * 2**20 if amount.isdigit() else 0 for amount in amounts]

    found: list[Device] = []
    parent: Device | None = None
    for line in lines:
        name, _, rest = line.strip().partition(":" if line.startswith("GPU ") else " Device ")
        model, _, uuid = rest.rpartition("(UUID: ")
        uuid = uuid.rstrip(")")
        if line.startswith("GPU "):
            parent = Device(name.removeprefix("GPU "), uuid, model.strip(), *memory.get(uuid, (0, 0)))
            found.append(parent)
        elif uuid.startswith("MIG-"):
            found = [device for device in found if device is not parent]
            found.append(Device(uuid, uuid, name.strip()))
    return found


def run_nvidia_smi(*arguments: str) -> list[str]:
    """Return what nvidia-smi prints, line by line; nothing where there is none.

    Args:
        arguments: of the command.

    Raises:
        InputError: if it is there and fails, in the driver's own words.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SMI_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return []
    except subprocess.TimeoutExpired:
        raise InputError(f"nvidia-smi does not answer within {SMI_SECONDS} s. {_SMI_REMEDY}") from None
    except OSError as error:
        raise InputError(f"nvidia-smi cannot be started ({error.strerror}). {_SMI_REMEDY}") from error

    # Some versions say that they found no device and exit with 0.
    if done.returncode == 0 and not done.stdout.startswith("No devices"):
        return done.stdout.splitlines()
    # It speaks of its failures on its standard output.
    words = " ".join(f"{done.stdout} {done.stderr}".split()) or "without a word"
    raise InputError(
        f"nvidia-smi fails (exit code {done.returncode}): {words[:SMI_WORDS]} {_SMI_REMEDY}"
    )


def _hold(
    there: Sequence[Device], count: int, runs_per_gpu: int, patience: float, folder: Path
) -> dict[Device, list[IO[str]]]:
    end = time.monotonic() + patience
    while True:
        held: dict[Device, list[IO[str]]] = {}
        strange: list[Device] = []
        # What a run shares is in use by others; of a device for one run alone nobody else may hold memory.
        now = {} if runs_per_gpu > 1 else {device.uuid: device for device in _listed()}
        # Slot by slot: runs that share devices spread over all of them before two meet on one.
        for device, slot in ((device, slot) for slot in range(runs_per_gpu) for device in there):
            if (
                len(held) == count
                or device in held
                or not (handles := _lock(folder, device, slot, runs_per_gpu))
            ):
                continue
            if (seen := now.get(device.uuid)) and seen.used > FOREIGN_SHARE * seen.memory:
                _close(handles)
                strange.append(seen)
            else:
                held[device] = handles
        if len(held) == count:
            return held

        # All or none: two runs that each hold half of what they need would wait for each other for ever.
        for handles in held.values():
            _close(handles)
        # The system needs a moment to free the memory of a run that was killed; what stays is somebody else's.
        if time.monotonic() >= end:
            raise InputError(_busy(count, len(held), there, strange))
        time.sleep(POLL_SECONDS)


def _busy(count: int, free: int, there: Sequence[Device], strange: Sequence[Device]) -> str:
    if strange:
        held = ", ".join(f"{device.name} ({device.used / 1e9:.0f} GB)" for device in strange)
        return (
            f"GPU {held}: in use by processes that are no runs of this program, and {count} GPU(s) were asked for. End them "
            f"(nvidia-smi shows them), or leave the device out of {VISIBLE_DEVICES} and lower --resources gpu=N."
        )
    return (
        f"{count} GPU(s) were asked for, but only {free} of {len(there)} are free: other runs hold "
        "them. Pass --resources gpu=N with the number of GPUs that are really free."
    )


def _lock(folder: Path, device: Device, slot: int, runs_per_gpu: int) -> list[IO[str]]:
    """Take one slot of a device; a run that wants it alone waits for all that share it, and they for that run."""
    name = device.uuid.replace("/", "_")
    whole = try_lock(folder / f"{name}.lock", shared=runs_per_gpu > 1, wait=False)
    if whole is None or runs_per_gpu == 1:
        return [whole] if whole else []
    own = try_lock(folder / f"{name}.{slot}.lock")
    if own is None:
        whole.close()
        return []
    return [whole, own]


def _close(handles: Sequence[IO[str]]) -> None:
    for handle in handles:
        handle.close()
