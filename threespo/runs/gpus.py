"""Which GPUs a run may use: the scheduler counts GPUs, but does not say which, so concurrent runs claim theirs here.

A claim is a locked file per device, in a folder of this machine and user. The system releases the lock
when the process ends, however it ends. Devices are identified by their UUIDs: what one process calls 0
may be another's 3, or hidden from it.
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
"""CUDA numbers the fastest device first unless this makes it number as nvidia-smi does."""

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

MAX_SMI_WORDS = 400
"""Characters that are shown of what it says when it fails."""

SMI_REMEDY = f"Mend the driver, or set {VISIBLE_DEVICES}= (empty) to compute without GPUs."

MAX_FOREIGN_SHARE = 0.05
"""Of a device's memory: what a display or the MPS daemon may take of a device that counts as free."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG slice of one, that this process may use."""

    name: str
    """What ``CUDA_VISIBLE_DEVICES`` calls it here."""
    uuid: str
    model: str = ""
    """Its maker's name for it."""
    memory: int = 0
    """Bytes in all; 0 where nvidia-smi does not say, as for a slice."""
    used: int = 0
    """Bytes in use at the moment."""

    @property
    def is_in_use(self) -> bool:
        """Whether other processes hold more of its memory than a display or daemon takes."""
        return self.used > MAX_FOREIGN_SHARE * self.memory


@contextlib.contextmanager
def claim_gpus(
    count: int, runs_per_gpu: int = 1, patience: float = 60.0, folder: Path | None = None
) -> Iterator[None]:
    """Hold ``count`` GPUs and show only these to CUDA; with ``count`` 0 do nothing.

    In a job to which a cluster's scheduler has given as many GPUs as the run needs, these are the run's
    and nothing is locked. Where it has given more (an interactive allocation, a whole node), runs claim
    theirs among them.

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

    offered = visible_devices()
    check_device_count(count, offered)
    if len(offered) == count and given_by_scheduler():
        yield
        return

    before = {name: os.environ.get(name) for name in (VISIBLE_DEVICES, DEVICE_ORDER)}
    folder = folder or Path(tempfile.gettempdir()) / f"threespo-gpus-{os.getuid()}"
    claimed = _wait_for_devices(offered, count, runs_per_gpu, patience, folder)
    os.environ[VISIBLE_DEVICES] = ",".join(device.name for device in claimed)
    os.environ.setdefault(DEVICE_ORDER, "PCI_BUS_ID")
    try:
        yield
    finally:
        for locks in claimed.values():
            _release(locks)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def check_device_count(count: int, offered: Sequence[Device]) -> None:
    """Check that there are as many devices as a run needs.

    Raises:
        InputError: if there are fewer.
    """
    if len(offered) < count:
        raise InputError(
            f"a run needs {count} GPU(s), this machine offers {len(offered)} ({VISIBLE_DEVICES} or nvidia-smi). "
            "Choose a study without GPUs, or set gpus_per_rank: 0."
        )


def check_granted_gpus(granted: int, runs_per_gpu: int = 1) -> str:
    """Check, before anything runs, that this machine has the GPUs that it is to use.

    Args:
        granted: N of ``--resources gpu=N``.
        runs_per_gpu: runs that share a device.

    Returns:
        A sentence on the devices and on how runs share them.

    Raises:
        InputError: if it has fewer.
    """
    offered = visible_devices()
    if granted > len(offered):
        raise InputError(
            f"--resources gpu={granted}: this machine offers {len(offered)} GPU(s) ({VISIBLE_DEVICES} or nvidia-smi). "
            f"Pass --resources gpu={len(offered)}, or submit to a cluster (--workflow-profile workflow/profiles/slurm)."
        )

    models = format_names(dict.fromkeys(device.model or "unknown" for device in offered))
    if runs_per_gpu == 1:
        sharing = "each run has a GPU of its own"
    elif is_mps_running():
        sharing = f"{runs_per_gpu} runs share a GPU (MPS is on)"
    else:
        sharing = (
            f"{runs_per_gpu} runs share a GPU (no MPS, so they take turns: "
            "`nvidia-cuda-mps-control -d` lets them compute at once)"
        )
    return f"{granted} of {len(offered)} GPUs ({models}); {sharing}"


def given_by_scheduler(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a cluster's scheduler has given this process its GPUs."""
    return any(environment.get(name) for name in SCHEDULER_VARIABLES)


def is_mps_running(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether CUDA's multi-process service runs, with which processes on one device compute at the same time."""
    folder = Path(environment.get(MPS_FOLDER) or "/tmp/nvidia-mps")
    return (folder / "control").exists()


def visible_devices() -> list[Device]:
    """Return the GPUs that this process was given: those of ``CUDA_VISIBLE_DEVICES``, or all that nvidia-smi lists.

    Raises:
        InputError: if the variable names a device that nvidia-smi does not list here, or nvidia-smi fails.
    """
    given = os.environ.get(VISIBLE_DEVICES)
    if given is None:
        return _list_devices()

    names = [name.strip() for name in given.split(",") if name.strip()]
    # Without GPUs nvidia-smi, which may fail, is not asked.
    if not names:
        return []
    present = _list_devices()
    return [_find_device(name, present) for name in names]


def _find_device(name: str, present: Sequence[Device]) -> Device:
    """Return the device that ``CUDA_VISIBLE_DEVICES`` means: an index, or a UUID or its beginning."""
    for device in present:
        if name == device.name or (not name.isdigit() and device.uuid.startswith(name)):
            return Device(name, device.uuid, device.model, device.memory, device.used)
    known = format_names(device.uuid for device in present)
    raise InputError(
        f"{VISIBLE_DEVICES}: {name!r} is no device that nvidia-smi lists here ({known}); "
        "without its UUID runs of one device could not be told apart. Correct the variable, or make nvidia-smi available."
    )


def _list_devices() -> list[Device]:
    """Return the devices that nvidia-smi lists, of a partitioned GPU its slices; none where there is no nvidia-smi.

    Lines of ``nvidia-smi -L``: ``GPU 0: MODEL (UUID: GPU-…)``, below it ``  MIG 3g.40gb Device 0: (UUID:
    MIG-…)``.
    """
    lines = run_nvidia_smi("-L")
    memory = _query_memory()

    devices: list[Device] = []
    parent: Device | None = None
    for line in lines:
        is_gpu = line.startswith("GPU ")
        name, _, rest = line.strip().partition(":" if is_gpu else " Device ")
        model, _, uuid = rest.rpartition("(UUID: ")
        uuid = uuid.rstrip(")")
        if is_gpu:
            total, used = memory.get(uuid, (0, 0))
            parent = Device(name.removeprefix("GPU "), uuid, model.strip(), total, used)
            devices.append(parent)
        elif uuid.startswith("MIG-"):
            # CUDA cannot use a partitioned GPU as a whole.
            devices = [device for device in devices if device is not parent]
            devices.append(Device(uuid, uuid, name.strip()))
    return devices


def _query_memory() -> dict[str, tuple[int, int]]:
    """Return by UUID the bytes of memory in all and in use; 0 where the device has none of its own."""
    query = "--query-gpu=uuid,memory.total,memory.used"
    memory = {}
    for line in run_nvidia_smi(query, "--format=csv,noheader,nounits"):
        uuid, total, used = (part.strip() for part in line.split(","))
        # An integrated device has no memory of its own: "[N/A]".
        memory[uuid] = (_mebibytes(total), _mebibytes(used))
    return memory


def _mebibytes(text: str) -> int:
    return int(text) * 2**20 if text.isdigit() else 0


def run_nvidia_smi(*arguments: str) -> list[str]:
    """Return what nvidia-smi prints, line by line; nothing where there is none.

    Args:
        arguments: of the command.

    Raises:
        InputError: if it is there and fails, in the driver's own words.
    """
    # Not NVML within the process: a driver that hangs would hang this program too, where a command can
    # be given up; and nvidia-smi comes with every driver, NVML's bindings only with the extra ``gpu``.
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
        raise InputError(f"nvidia-smi does not answer within {SMI_SECONDS} s. {SMI_REMEDY}") from None
    except OSError as error:
        raise InputError(f"nvidia-smi cannot be started ({error.strerror}). {SMI_REMEDY}") from error

    # Some versions say that they found no device and exit with 0.
    if done.returncode == 0 and not done.stdout.startswith("No devices"):
        return done.stdout.splitlines()
    # It reports its failures on its standard output.
    words = " ".join(f"{done.stdout} {done.stderr}".split()) or "without a word"
    raise InputError(
        f"nvidia-smi fails (exit code {done.returncode}): {words[:MAX_SMI_WORDS]} {SMI_REMEDY}"
    )


def _wait_for_devices(
    offered: Sequence[Device], count: int, runs_per_gpu: int, patience: float, folder: Path
) -> dict[Device, list[IO[str]]]:
    """Return ``count`` devices with their locks, as soon as so many are free."""
    end = time.monotonic() + patience
    while True:
        claimed, foreign = _try_to_claim(offered, count, runs_per_gpu, folder)
        if len(claimed) == count:
            return claimed

        # All or none: two runs that each hold half of what they need would wait for each other for ever.
        for locks in claimed.values():
            _release(locks)
        # The system needs a moment to free the memory of a run that was killed; what stays is somebody
        # else's.
        if time.monotonic() >= end:
            raise InputError(_explain_too_few(count, len(claimed), offered, foreign))
        time.sleep(POLL_SECONDS)


def _try_to_claim(
    offered: Sequence[Device], count: int, runs_per_gpu: int, folder: Path
) -> tuple[dict[Device, list[IO[str]]], list[Device]]:
    """Lock up to ``count`` devices; return them with their locks, and those that processes of others use."""
    claimed: dict[Device, list[IO[str]]] = {}
    foreign: list[Device] = []
    # A shared device is in use by other runs anyway; on one for a single run no other process may hold memory.
    current = {device.uuid: device for device in _list_devices()} if runs_per_gpu == 1 else {}

    # Slot by slot: runs that share devices spread over all of them before two meet on one.
    for slot in range(runs_per_gpu):
        for device in offered:
            if len(claimed) == count or device in claimed:
                continue
            locks = _lock_slot(folder, device, slot, runs_per_gpu)
            if not locks:
                continue
            state = current.get(device.uuid)
            if state and state.is_in_use:
                _release(locks)
                foreign.append(state)
            else:
                claimed[device] = locks
    return claimed, foreign


def _explain_too_few(count: int, free: int, offered: Sequence[Device], foreign: Sequence[Device]) -> str:
    if foreign:
        names = ", ".join(f"{device.name} ({device.used / 1e9:.0f} GB)" for device in foreign)
        return (
            f"GPU {names}: in use by processes that are no runs of this program, and {count} GPU(s) were asked for. End "
            f"them (nvidia-smi shows them), or leave the device out of {VISIBLE_DEVICES} and lower --resources gpu=N."
        )
    return (
        f"{count} GPU(s) were asked for, but only {free} of {len(offered)} are free: other runs hold "
        "them. Pass --resources gpu=N with the number of GPUs that are really free."
    )


def _lock_slot(folder: Path, device: Device, slot: int, runs_per_gpu: int) -> list[IO[str]]:
    """Lock one slot of a device; a run that wants it alone waits for all that share it, and they for that run."""
    name = device.uuid.replace("/", "_")
    device_lock = try_lock(folder / f"{name}.lock", shared=runs_per_gpu > 1, wait=False)
    if device_lock is None:
        return []
    if runs_per_gpu == 1:
        return [device_lock]
    slot_lock = try_lock(folder / f"{name}.{slot}.lock")
    if slot_lock is None:
        device_lock.close()
        return []
    return [device_lock, slot_lock]


def _release(locks: Sequence[IO[str]]) -> None:
    for lock in locks:
        lock.close()
