"""Resources to request from a cluster for each job: host memory, time, machines. From the estimate, with a margin."""

import math
from dataclasses import dataclass

from threespo.paths import JobId
from threespo.scaling.estimate import Machine, estimate_study
from threespo.scaling.job_groups import JobGroup
from threespo.scaling.rates import GPUS
from threespo.study.config import Study

TIME_MARGIN = 3.0
"""Factor on the time estimated for the slowest GPU with 80 GB, since rates are assumed. A job that is stopped resumes."""

MIN_MINUTES = 120
"""Of any job: slow file systems and first downloads are not in the estimate."""

MAX_MINUTES = 60 * 24 * 30

MIN_MEGABYTES = 8_000
"""Of any job: 2.2 GB was measured at the peak of a run with a tiny policy; its tables come on top."""

PROCESS_BYTES = 8e9
"""Of a rank's process besides weights: libraries, CUDA on the host, tasks, the state table of a long run."""

STAGE_OF_GROUP = {"trial": "train", "agent": "evaluate"}
"""Stage of the workflow for stages that only the estimate distinguishes."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one job."""

    mem_mb: int
    runtime: int
    """Minutes."""
    nodes: int
    """Machines; 0 where one is enough."""


class JobResources:
    """Resources of all jobs of a study."""

    def __init__(self, study: Study) -> None:
        """Estimate the study, once for all jobs."""
        self._study = study
        self._largest: dict[tuple[str, str], Resources] = {}

        uses_gpus = any(study.gpus_of_run(name) for name in study.policies)
        name = "a100-80" if uses_gpus else "cpu"
        machine = Machine(name, GPUS.get(name), 1, {})
        for cost in estimate_study(study, machine).costs:
            group = cost.group
            minutes = MIN_MINUTES + math.ceil(TIME_MARGIN * cost.hours * 60)
            offloaded = cost.memory.host * group.ranks if cost.memory else 0.0
            memory = _host_megabytes(group, offloaded)
            runtime = min(MAX_MINUTES, minutes)

            # Trials and runs of one name: the larger of both.
            key = (STAGE_OF_GROUP.get(group.stage, group.stage), group.name)
            known = self._largest.get(key)
            if known:
                memory = max(memory, known.mem_mb)
                runtime = max(runtime, known.runtime)
            self._largest[key] = Resources(memory, runtime, self._count_nodes(group.ranks))

    def of(self, job: JobId) -> Resources:
        """Return the resources of a job; the least ones for a job without a model."""
        parts = job.name.split("/")
        stage = job.stage
        # Rates beyond the grid are tried by the job that chooses.
        if stage == "tune" and self._study.tuning and self._study.tuning.max_extensions:
            stage = "train"
        # Groups are named ENV/POLICY/METHOD or ENV/POLICY.
        for length in (3, 2):
            found = self._largest.get((stage, "/".join(parts[:length])))
            if found:
                return found
        return Resources(MIN_MEGABYTES, MIN_MINUTES, 0)

    def _count_nodes(self, ranks: int) -> int:
        # Rounded up.
        needed = -(-ranks * self._study.gpus_per_rank // self._study.gpus_per_node)
        return needed if needed > 1 else 0


def _host_megabytes(group: JobGroup, offloaded: float) -> int:
    """Return the host's memory: every rank reads whole weights before it passes them on, policy, reference and critic."""
    shape = group.shape
    if shape is None:
        return max(MIN_MEGABYTES, math.ceil(offloaded / 1e6))
    copies = 1.0
    size = 4
    if group.settings:
        copies += group.settings.reference + group.settings.critic
        size = group.settings.size
    weights = copies * size * shape.parameters
    # Tiny policies run on processors, within the least.
    process = PROCESS_BYTES if shape.parameters > 1e8 else 0.0
    return max(MIN_MEGABYTES, math.ceil((group.ranks * (weights + process) + offloaded) / 1e6))
