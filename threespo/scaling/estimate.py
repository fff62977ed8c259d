"""From cells and rates to hours, bytes, energy and money. Each number has a formula of its name in docs/scaling.md."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from threespo.errors import InputError
from threespo.scaling.job_groups import JobGroup, group_jobs
from threespo.scaling.memory import MemorySettings, RankMemory, estimate_memory
from threespo.scaling.rates import (
    GPUS,
    GpuDataSheet,
    Rates,
    data_sheet_rates,
    processor_rates,
    rates_key,
)
from threespo.scaling.shapes import ModelShape
from threespo.study.config import Study
from threespo.study.matrix import local_policies

START_SECONDS = {"cpu": 3.5, "gpu": 120.0}
"""Of a job: imports, tasks, weights, on a GPU the sampler's graphs. Measured on a CPU core for forked jobs (2.5 to 4; others
take 8), assumed on a GPU."""

HOST_SECONDS = 0.25e-3
"""Of a generation: environment, method, tables (0.1 to 0.3 ms in `smoke`)."""

WATTS_OF_CORE = 8.0
"""Assumed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a study would run on."""

    name: str
    gpu: GpuDataSheet | None
    count: int
    """GPUs, or CPU cores where there is none."""
    measured: Mapping[str, Rates]
    """Rates that were measured on this kind of device (``threespo.scaling.rates.rates_key``)."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """What one cell costs."""

    cell: JobGroup
    origin: str
    """Where its rates are from."""
    run_flops: float
    """Of one run."""
    hours: float
    """From the beginning to the end of one run alone on its devices."""
    device_hours: float
    """GPU-hours of one run, or hours of a CPU core, with its share of devices that several runs share."""
    estimate_memory: RankMemory | None
    runs_per_device: int
    """Runs that fit on a device side by side; 0 where not even one does."""


@dataclass(frozen=True, slots=True)
class StudyEstimate:
    """What a study costs."""

    study: Study
    machine: Machine
    lines: Sequence[JobCost]

    @property
    def device_hours(self) -> float:
        """Hours of all devices together."""
        return sum(line.cell.runs * line.device_hours for line in self.lines)

    @property
    def wall_hours(self) -> float:
        """Least hours until the last job ends (formula ``wall``): the devices' share, or training and what follows it."""
        longest = [
            max((line.hours for line in self.lines if line.cell.stage in stages), default=0.0)
            for stages in _CHAIN
        ]
        return max(self.device_hours / max(1, self.machine.count), sum(longest))

    @property
    def kilowatt_hours(self) -> float:
        """Energy of the devices (formula ``energy``), without the rest of the machine and its cooling."""
        watts = self.machine.gpu.power if self.machine.gpu else WATTS_OF_CORE
        return self.device_hours * watts / 1000

    @property
    def disk(self) -> float:
        """Bytes at most (formula ``disk``): what runs leave, and three checkpoints of each run that is under way."""
        held = max((line.cell.checkpoint for line in self.lines), default=0.0)
        most = max((line.cell.ranks for line in self.lines if line.cell.checkpoint == held), default=1)
        at_once = max(1, self.machine.count // most) * (
            self.study.runs_per_gpu if self.machine.gpu else 1
        )
        return sum(line.cell.runs * line.cell.kept for line in self.lines) + 3 * held * at_once

    @property
    def closed(self) -> float:
        """US dollars that closed models may cost at most, by the study's own limits."""
        policies = [policy.endpoint for policy in self.study.policies.values() if policy.endpoint]
        return sum(endpoint.max_cost or 0.0 for endpoint in policies)


_CHAIN = (("policy",), ("trial",), ("train",), ("evaluate", "agent", "learning", "probe"))
"""Stages that wait for each other."""


def estimate_study(
    study: Study, machine: Machine, given: tuple[float | None, float | None] = (None, None)
) -> StudyEstimate:
    """Return what a study costs on a machine.

    Args:
        study: the study.
        machine: what it would run on.
        given: a user's own mean tokens of prompts and of responses, in the place of the known ones.
    """
    return StudyEstimate(
        study, machine, [_line(study, machine, cell) for cell in group_jobs(study, given)]
    )


def _line(study: Study, machine: Machine, cell: JobGroup) -> JobCost:
    gpu = machine.gpu
    if cell.shape is None:
        hours = cell.fixed_seconds / 3600
        # Nothing here needs a GPU, and its cores are not what is counted there.
        return JobCost(cell, "measured once", 0.0, hours, 0.0 if gpu else hours, None, 1)

    rates = machine.measured.get(rates_key(machine.name, cell.shape))
    if rates is None:
        context = cell.work.context
        rates = (
            data_sheet_rates(cell.shape, gpu, cell.sampler, context)
            if gpu
            else processor_rates(cell.shape, context)
        )
    settings, share = cell.settings, study.policies[cell.policy].vllm.memory_share
    if settings and settings.colocated and share and gpu:
        # The engine's share of the device is for its weights as well.
        settings = replace(settings, cache=share * gpu.memory - cell.shape.parameters * settings.size)
    needs = estimate_memory(cell.shape, settings, gpu=gpu is not None) if settings else None

    idle, busy = run_seconds(cell, cell.shape, rates, gpu)
    alone = (idle + busy) / 3600
    if gpu is None:
        # Processor time: ranks on cores do the same work side by side.
        return JobCost(cell, rates.origin, run_flops(cell, cell.shape), alone, alone, needs, 1)
    beside = int(gpu.memory // needs.total) if needs else study.runs_per_gpu
    if needs and not needs.fits(gpu.memory):
        beside = 0
    # Runs that share a device wait for each other only as far as together they ask for more than all of its time.
    shared = study.runs_per_gpu
    hours = alone * max(1.0, shared * busy / (idle + busy))
    return JobCost(
        cell,
        rates.origin,
        run_flops(cell, cell.shape),
        hours,
        hours * cell.ranks / shared,
        needs,
        beside,
    )


def run_seconds(
    cell: JobGroup, shape: ModelShape, rates: Rates, gpu: GpuDataSheet | None
) -> tuple[float, float]:
    """Return the seconds of a run in which its device waits for the host, and those in which it works (formula ``run``)."""
    work, ranks = cell.work, cell.ranks
    sampling = (work.read * rates.read + work.drawn * rates.draw) / ranks + work.longest * rates.step

    passes = work.passes + (cell.settings is not None and cell.settings.checkpointing)
    # Every rank reads the one prompt of a search's step; packs of many prompts are dealt out.
    shared = work.packed - work.scored if work.one_prompt else 0.0
    packed, scored = shared + (work.packed - shared) / ranks, work.scored / ranks
    learning = passes * (packed * rates.learn + scored * rates.head) + work.steps * rates.update
    # The critic's values and its update: one forward pass, then both, without a head.
    learning += 4 * packed * rates.learn + work.steps * rates.update if work.critic else 0.0

    moved = exchange_seconds(cell, shape, gpu) if gpu else 0.0
    host = work.generations * HOST_SECONDS + START_SECONDS["gpu" if gpu else "cpu"]
    return host, sampling + learning + moved


def exchange_seconds(cell: JobGroup, shape: ModelShape, gpu: GpuDataSheet) -> float:
    """Return the seconds in which weights and gradients travel (formulas ``sync`` and ``exchange_seconds``).

    Once a tick the sampler takes the learner's weights, a copy within the device. Once a step ranks exchange gradients and
    updated weights; at ZeRO 3 every pass over a pack and every tick gathers all weights as well.
    """
    copy = 2 * shape.parameters
    sync = (
        cell.work.ticks * 2 * copy / gpu.bandwidth if cell.sampler == "vllm" and cell.work.steps else 0.0
    )
    if cell.ranks == 1 or cell.settings is None:
        return sync
    travels = 2 * copy * cell.work.steps
    if cell.settings.stage == 3:
        packs = max(cell.work.steps, cell.work.packed / cell.ranks / cell.settings.micro_batch_tokens)
        travels += (packs * cell.work.passes + cell.work.ticks) * copy
    return sync + travels * (1 - 1 / cell.ranks) / gpu.link


def run_flops(cell: JobGroup, shape: ModelShape) -> float:
    """Return the floating-point operations of a run (formula ``run_flops``)."""
    work = cell.work
    once = shape.forward_flops(work.packed, work.scored, work.context)
    critic = 4 * shape.forward_flops(work.packed, 0, work.context) if work.critic else 0.0
    return (
        shape.forward_flops(work.read + work.drawn, work.drawn, work.context)
        + work.passes * once
        + critic
    )


def does_not_fit(found: StudyEstimate) -> Iterator[str]:
    """Yield a sentence for every policy that does not fit on its devices, with what would."""
    gpu = found.machine.gpu
    if gpu is None:
        return
    told: set[tuple[str, bool]] = set()
    for line in found.lines:
        cell = line.cell
        if cell.settings is None or cell.shape is None or line.memory is None:
            continue
        if line.runs_per_device >= found.study.runs_per_gpu:
            continue
        if (cell.policy, cell.settings.critic) in told:
            continue
        told.add((cell.policy, cell.settings.critic))
        needs = f"{cell.name}: a rank needs {line.memory.total / 1e9:.0f} GB"
        if line.runs_per_device:
            size = f"a GPU of {gpu.memory / 1e9:.0f} GB"
            yield f"{needs}, so {found.study.runs_per_gpu} runs do not share {size}; set runs_per_gpu: {line.runs_per_device}"
            continue
        how = "; ".join(suggest_configs(cell.shape, cell.settings)) or "nothing that is known here would"
        yield f"{needs}, a GPU of {found.machine.name} has {gpu.memory / 1e9:.0f}. What fits: {how}"


def suggest_configs(shape: ModelShape, settings: MemorySettings) -> Iterator[str]:
    """Yield for GPUs of 141 and 80 GB the fewest ranks on which a run fits, at the lowest ZeRO stage that does."""
    for name in ("h200-141", "h100-80"):
        if found := _way(shape, settings, GPUS[name].memory):
            changed = [f"zero_stage: {found.zero_stage}"]
            changed += (
                ["gradient_checkpointing: true"]
                if found.checkpointing and not settings.checkpointing
                else []
            )
            less = found.micro_batch_tokens < settings.micro_batch_tokens
            changed += [f"micro_batch_tokens: {found.micro_batch_tokens}"] if less else []
            yield f"{found.ranks} x {GPUS[name].memory / 1e9:.0f} GB with {', '.join(changed)}"


def _way(shape: ModelShape, settings: MemorySettings, capacity: float) -> MemorySettings | None:
    """Return what fits: fewest ranks first, then the lowest stage, then what costs the least time."""
    for ranks, stage, checkpointing, part in itertools.product(
        (1, 2, 4, 8, 16), (1, 2, 3), (False, True), (1, 2, 4)
    ):
        if checkpointing < settings.checkpointing or stage < settings.zero_stage:
            continue
        other = replace(
            settings,
            ranks=ranks,
            zero_stage=stage,
            checkpointing=checkpointing,
            offload=False,
            micro_batch_tokens=settings.micro_batch_tokens // part,
            scored=settings.scored // part,
        )
        if estimate_memory(shape, other).fits(capacity):
            return other
    return None


def choose_machine(
    name: str | None, count: int | None, study: Study, measured: Mapping[str, Rates], here: Sequence[str]
) -> Machine:
    """Return the machine that a plan is for.

    Args:
        name: a name in ``GPUS``, ``cpu``, or ``None`` for what the study asks for.
        count: devices; ``None`` for the study's own number, or the cores here.
        study: the study.
        measured: rates that were measured here.
        here: what the GPUs of this machine are called.

    Raises:
        InputError: if there is no such device, or a study that needs GPUs is planned for cores.
    """
    needs = max((study.gpus_of_run(policy) for policy in local_policies(study)), default=0)
    if name is None:
        name = (next((gpu for gpu in GPUS if _is(gpu, here)), "h100-80")) if needs else "cpu"
    if name != "cpu" and name not in GPUS:
        raise InputError(f"--gpu {name}: no such device; there are {', '.join(GPUS)} and cpu")
    if name == "cpu" and needs:
        known = ", ".join(GPUS)
        raise InputError(
            f"--gpu cpu: the study has gpus_per_rank: {study.gpus_per_rank}; plan it for one of {known}"
        )
    if name != "cpu" and not needs:
        raise InputError(
            f"--gpu {name}: the study has gpus_per_rank: 0, so it would leave GPUs idle; leave --gpu out"
        )
    return Machine(
        name,
        GPUS.get(name),
        count or (max(study.gpus, needs) if needs else os.cpu_count() or 1),
        measured,
    )


def _is(gpu: str, here: Sequence[str]) -> bool:
    return any(all(part in model.lower() for part in gpu.split("-")) for model in here)
