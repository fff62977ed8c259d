"""What benchmarks share: summaries, memory, and what a result says about the machine and the versions."""

import multiprocessing
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """Return processor, load (running and waiting processes, mean of the last minute), system, and package versions."""
    # Imported late: a benchmark that measures its memory asks at its end.
    from threespo.results.provenance import installed_version, processor_name

    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: installed_version(name) for name in packages},
    }


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return median, mean, 95th percentile and largest of times in seconds, in milliseconds."""
    ordered = sorted(1e3 * one for one in times)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    return {
        "median": statistics.median(ordered),
        "mean": statistics.fmean(ordered),
        "p95": p95,
        "most": ordered[-1],
    }


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own, with nothing loaded before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def resident() -> tuple[float, float]:
    """Return this process's memory, and what of it is not shared with files, MiB."""
    _, pages, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    return pages * page, (pages - shared) * page
