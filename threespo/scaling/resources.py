"""What a cluster must give each job: memory of the host, time, machines. From the plan, with a margin."""

import math
from dataclasses import dataclass

from threespo.paths import JobId
from threespo.scaling.estimate import Machine, estimate_study
from threespo.scaling.job_groups import JobGroup
from threespo.scaling.rates import GPUS
from threespo.study.config import Study

MARGIN = 3.0
"""Times as long as planned for the slowest GPU with 80 GB: rates are assumed. A job that is stopped goes on all the same."""

MIN_MINUTES = 120
"""Of any job: queues, file systems and first downloads take their time."""

MIN_MEGABYTES = 8_000
"""Of any job: 2.2 GB at the peak of a run with a tiny policy, and its tables."""

BESIDE_WEIGHTS = 8e9
"""Bytes of a rank's process beside weights: libraries, CUDA's host side, tasks, the state table of a long run."""

LARGEST_MINUTES = 60 * 24 * 30


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one job."""

    mem_mb: int
    runtime: int
    """Minutes."""
    nodes: int
    """Machines; 0 where one is enough."""


class JobResources:
    """Resources of all jobs of a study."""

    def __init__(self, study: Study) -> None:
        """Plan the study once."""
        gpus = any(study.gpus_of_run(name) for name in study.policies)
        machine = Machine("a100-80", GPUS["a100-80"], 1, {}) if gpus else Machine("cpu", None, 1, {})
        self._study = study
        self._most: dict[tuple[str, str], Resources] = {}
        for line in estimate_study(study, machine).lines:
            minutes = min(LARGEST_MINUTES, MIN_MINUTES + math.ceil(MARGIN * line.hours * 60))
            host = line.memory.host * line.cell.ranks if line.memory else 0.0
            found = Resources(_megabytes(line.cell, host), minutes, self._nodes(line.cell.ranks))
            stage = (
                "train"
                if line.cell.stage == "trial"
                else "evaluate"
                if line.cell.stage == "agent"
                else line.cell.stage
            )
            name = (stage, line.cell.name)
            known = self._most.get(name, found)
            self._most[name] = Resources(
                max(known.mem_mb, found.mem_mb), max(known.runtime, found.runtime), found.nodes
            )

    def of(self, job: JobId) -> Resources:
        """Return what a job needs; for what no model computes, the least."""
        parts = job.name.split("/")
        for length in (3, 2):
            found = self._most.get((job.stage, "/".join(parts[:length])))
            if found:
                return found
        return Resources(MIN_MEGABYTES, MIN_MINUTES, 0)

    def _nodes(self, ranks: int) -> int:
        needed = -(-ranks * self._study.gpus_per_rank // self._study.gpus_per_node)
        return needed if needed > 1 else 0


def _megabytes(cell: JobGroup, host: float) -> int:
    """Return the host's memory: every rank reads whole weights before it passes them on, policy, reference and critic."""
    learns = cell.settings
    copies = 1.0 + (learns.reference + learns.critic if learns else 0)
    size = learns.size if learns else 4
    weights = copies * size * cell.shape.parameters if cell.shape else 0.0
    on_gpu = BESIDE_WEIGHTS if cell.shape and cell.shape.parameters > 1e8 else 0.0
    return max(MIN_MEGABYTES, math.ceil((cell.ranks * (weights + on_gpu) + host) / 1e6))
