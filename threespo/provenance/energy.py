"""What a job's GPUs have used, by their own counters (NVML)."""

import importlib
import os
from typing import Any


def read_energy_counters() -> dict[str, float] | None:
    """Return the energy counter of each GPU that this process may use, in joules since its driver was loaded.

    Returns:
        Counters by GPU; ``None`` where there is none to read. Processors' counters (RAPL) are not read: they begin again
        after minutes, and count all that runs on the machine.
    """
    visible = [
        name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()
    ]
    if not visible:
        return None
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return None
    try:
        nvml.nvmlInit()
        try:
            # In millijoules.
            return {
                name: nvml.nvmlDeviceGetTotalEnergyConsumption(_device(nvml, name)) / 1000
                for name in visible
            }
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None


def _device(nvml: Any, name: str) -> Any:
    """Return the GPU that is named by its index or its UUID."""
    return (
        nvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.isdecimal()
        else nvml.nvmlDeviceGetHandleByUUID(name)
    )


def energy_between(before: dict[str, float] | None, after: dict[str, float] | None) -> dict[str, float]:
    """Return ``energy_joules`` between two readings, for a job's record; nothing where a counter is missing or ran back."""
    if before is None or after is None or before.keys() != after.keys():
        return {}
    spent = [after[name] - before[name] for name in before]
    return {} if min(spent) < 0 else {"energy_joules": sum(spent)}
