"""From groups of jobs and rates to hours, bytes, energy and money. Each number has a formula in docs/scaling.md."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
from threespo.scaling.workload import NOTHING_GIVEN, GivenLengths
from threespo.study.config import Study
from threespo.study.matrix import local_policies

START_SECONDS = {"cpu": 3.5, "gpu": 120.0}
"""Before a job's work: imports, tasks, weights, on a GPU the sampler's graphs. Measured on a CPU core for forked jobs (2.5
to 4; others take 8), assumed on a GPU."""

HOST_SECONDS = 0.25e-3
"""Of a generation: environment, method, tables (0.1 to 0.3 ms measured in `smoke`)."""

WATTS_OF_CORE = 8.0
"""Assumed."""

DEPENDENT_STAGES = (
    ("policy",),
    ("trial",),
    ("train",),
    ("evaluate", "agent", "learning", "probe", "credit"),
)
"""Stages that wait for each other."""

SUGGESTED_GPUS = ("h200-141", "h100-80")


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices that a study would run on."""

    name: str
    gpu: GpuDataSheet | None
    count: int
    """GPUs, or CPU cores where there is none."""
    measured: Mapping[str, Rates]
    """Rates that were measured on this kind of device (``threespo.scaling.rates.rates_key``)."""


class RunTime(NamedTuple):
    """Seconds of a run."""

    idle: float
    """Its device waits for the host."""
    busy: float

    @property
    def total(self) -> float:
        """From the beginning to the end, alone on the device."""
        return self.idle + self.busy


@dataclass(frozen=True, slots=True)
class JobCost:
    """Costs of the jobs of one group."""

    group: JobGroup
    origin: str
    """Where its rates are from."""
    run_flops: float
    hours: float
    """From the beginning to the end of one run alone on its devices."""
    device_hours: float
    """GPU-hours of one run, or hours of a CPU core; of a device that several runs share, its share."""
    memory: RankMemory | None
    runs_per_device: int
    """Runs that fit on a device at the same time; 0 where not even one does."""


@dataclass(frozen=True, slots=True)
class StudyEstimate:
    """Costs of a study."""

    study: Study
    machine: Machine
    costs: Sequence[JobCost]

    @property
    def device_hours(self) -> float:
        """Hours of all devices together."""
        return sum(cost.group.runs * cost.device_hours for cost in self.costs)

    @property
    def wall_hours(self) -> float:
        """Least hours until the last job ends (formula ``wall``): the devices' share, or training and what follows it."""
        longest_chain = 0.0
        for stages in DEPENDENT_STAGES:
            # A stage waits for the longest run of the stages before it.
            hours = [cost.hours for cost in self.costs if cost.group.stage in stages]
            longest_chain += max(hours, default=0.0)
        return max(self.device_hours / max(1, self.machine.count), longest_chain)

    @property
    def kilowatt_hours(self) -> float:
        """Energy of the devices (formula ``energy``), without the rest of the machine and its cooling."""
        watts = self.machine.gpu.power if self.machine.gpu else WATTS_OF_CORE
        return self.device_hours * watts / 1000

    @property
    def disk(self) -> float:
        """Bytes at most (formula ``disk``): files of all runs, and three checkpoints of each run that is training."""
        # Two checkpoints are kept while a third is written.
        groups = [cost.group for cost in self.costs]
        largest = max((group.checkpoint for group in groups), default=0.0)
        ranks = max((group.ranks for group in groups if group.checkpoint == largest), default=1)
        runs_per_device = self.study.runs_per_gpu if self.machine.gpu else 1
        concurrent_runs = max(1, self.machine.count // ranks) * runs_per_device
        results = sum(group.runs * group.kept for group in groups)
        return results + 3 * largest * concurrent_runs

    @property
    def closed_model_cost(self) -> float:
        """US dollars that closed models may cost at most, by the study's own limits."""
        endpoints = [policy.endpoint for policy in self.study.policies.values() if policy.endpoint]
        return sum(endpoint.max_cost or 0.0 for endpoint in endpoints)


def estimate_study(study: Study, machine: Machine, given: GivenLengths = NOTHING_GIVEN) -> StudyEstimate:
    """Return what a study costs on a machine.

    Args:
        study: the study.
        machine: what it would run on.
        given: a user's own mean lengths of texts, in the place of the known ones.
    """
    costs = [_estimate_group(study, machine, group) for group in group_jobs(study, given)]
    return StudyEstimate(study, machine, costs)


def _estimate_group(study: Study, machine: Machine, group: JobGroup) -> JobCost:
    gpu = machine.gpu
    if group.shape is None:
        hours = group.fixed_seconds / 3600
        # No such job needs a GPU, and a GPU machine's cores are not counted.
        return JobCost(group, "measured once", 0.0, hours, 0.0 if gpu else hours, None, 1)

    rates = machine.measured.get(rates_key(machine.name, group.shape))
    if rates is None:
        rates = _assume_rates(group.shape, gpu, group)
    memory = _estimate_rank_memory(study, group, group.shape, gpu)
    flops = run_flops(group, group.shape)
    time = run_seconds(group, group.shape, rates, gpu)
    hours = time.total / 3600
    if gpu is None:
        # Processor time: ranks on cores do the same work in parallel.
        return JobCost(group, rates.origin, flops, hours, hours, memory, 1)

    runs_per_device = study.runs_per_gpu
    if memory:
        fits = memory.fits(gpu.memory)
        runs_per_device = int(gpu.memory // memory.total) if fits else 0

    # Runs that share a device slow each other down only where they need more than all of its time.
    sharing_runs = study.runs_per_gpu
    hours *= max(1.0, sharing_runs * time.busy / time.total)
    device_hours = hours * group.ranks / sharing_runs
    return JobCost(group, rates.origin, flops, hours, device_hours, memory, runs_per_device)


def _assume_rates(shape: ModelShape, gpu: GpuDataSheet | None, group: JobGroup) -> Rates:
    context = group.work.context
    if gpu is None:
        return processor_rates(shape, context)
    return data_sheet_rates(shape, gpu, group.sampler, context)


def _estimate_rank_memory(
    study: Study, group: JobGroup, shape: ModelShape, gpu: GpuDataSheet | None
) -> RankMemory | None:
    """Return the memory of a rank; ``None`` where nothing is learned."""
    settings = group.settings
    if settings is None:
        return None

    # With ``memory_share`` vLLM takes a share of the device, whatever the cache needs.
    engine_share = study.policies[group.policy].vllm.memory_share
    if settings.colocated and engine_share and gpu:
        # The engine's share of the device includes its weights.
        weights = shape.parameters * settings.size
        settings = replace(settings, cache=engine_share * gpu.memory - weights)
    return estimate_memory(shape, settings, gpu=gpu is not None)


def run_seconds(group: JobGroup, shape: ModelShape, rates: Rates, gpu: GpuDataSheet | None) -> RunTime:
    """Return the seconds of a run (formula ``run``)."""
    work = group.work
    ranks = group.ranks
    # Ranks share reading and drawing, but each waits for its own longest response.
    shared_seconds = work.read * rates.read + work.drawn * rates.draw
    sampling = shared_seconds / ranks + work.longest * rates.step

    # Gradient checkpointing computes the forward pass a second time.
    checkpointing = group.settings is not None and group.settings.checkpointing
    passes = work.passes + checkpointing
    # Every rank reads the one prompt of a search's step; packs of many prompts are divided among ranks.
    prompt_tokens = work.packed - work.scored if work.one_prompt else 0.0
    packed = prompt_tokens + (work.packed - prompt_tokens) / ranks
    scored = work.scored / ranks
    pass_seconds = packed * rates.learn + scored * rates.head
    learning = passes * pass_seconds + work.steps * rates.update
    if work.critic:
        # The critic's values and its update: one forward pass, then both, without a head.
        learning += 4 * packed * rates.learn + work.steps * rates.update

    communication = exchange_seconds(group, shape, gpu) if gpu else 0.0
    start = START_SECONDS["gpu" if gpu else "cpu"]
    return RunTime(
        idle=work.generations * HOST_SECONDS + start,
        busy=sampling + learning + communication,
    )


def exchange_seconds(group: JobGroup, shape: ModelShape, gpu: GpuDataSheet) -> float:
    """Return the seconds in which weights and gradients are copied (formulas ``sync`` and ``exchange``)."""
    work = group.work
    model_bytes = 2 * shape.parameters
    # Once a tick the sampler takes the learner's weights: a copy within the device reads and writes
    # all of them in bfloat16.
    sync = 0.0
    if group.sampler == "vllm" and work.steps:
        sync = work.ticks * 2 * model_bytes / gpu.bandwidth
    if group.ranks == 1 or group.settings is None:
        return sync

    # Once a step ranks exchange gradients and updated weights.
    exchanged = 2 * model_bytes * work.steps
    if group.settings.stage == 3:
        # ZeRO 3 gathers all weights for every pass over a pack, and for every tick.
        micro_batches = work.packed / group.ranks / group.settings.micro_batch_tokens
        packs = max(work.steps, micro_batches)
        exchanged += (packs * work.passes + work.ticks) * model_bytes
    # In a ring each of n ranks sends (n - 1) / n of the data.
    return sync + exchanged * (1 - 1 / group.ranks) / gpu.link


def run_flops(group: JobGroup, shape: ModelShape) -> float:
    """Return the floating-point operations of a run (formula ``flops``)."""
    work = group.work
    # Logits are computed of drawn tokens, not of prompts.
    sampling = shape.forward_flops(work.read + work.drawn, work.drawn, work.context)
    learning_pass = shape.forward_flops(work.packed, work.scored, work.context)
    critic = 4 * shape.forward_flops(work.packed, 0, work.context) if work.critic else 0.0
    return sampling + work.passes * learning_pass + critic


def does_not_fit(estimate: StudyEstimate) -> Iterator[str]:
    """Yield a sentence for every policy that does not fit on its devices, with a remedy."""
    gpu = estimate.machine.gpu
    if gpu is None:
        return
    runs_per_gpu = estimate.study.runs_per_gpu
    explained: set[tuple[str, bool]] = set()
    for cost in estimate.costs:
        group = cost.group
        if group.settings is None or group.shape is None or cost.memory is None:
            continue
        if cost.runs_per_device >= runs_per_gpu:
            continue
        # Methods with a critic need more than those without: one sentence for each.
        kind = (group.policy, group.settings.critic)
        if kind in explained:
            continue
        explained.add(kind)

        needs = f"{group.name}: a rank needs {cost.memory.total / 1e9:.0f} GB"
        capacity = f"{gpu.memory / 1e9:.0f}"
        if cost.runs_per_device:
            yield (
                f"{needs}, so {runs_per_gpu} runs do not share a GPU of {capacity} GB; "
                f"set runs_per_gpu: {cost.runs_per_device}"
            )
        else:
            suggestions = list(suggest_configs(group.shape, group.settings))
            remedy = "; ".join(suggestions) or "nothing that is known here would"
            yield f"{needs}, a GPU of {estimate.machine.name} has {capacity}. What fits: {remedy}"


def suggest_configs(shape: ModelShape, settings: MemorySettings) -> Iterator[str]:
    """Yield for GPUs of 141 and 80 GB the fewest ranks on which a run fits, at the lowest ZeRO stage that does."""
    for name in SUGGESTED_GPUS:
        capacity = GPUS[name].memory
        fitting = _find_fitting(shape, settings, capacity)
        if fitting is None:
            continue
        changes = [f"zero_stage: {fitting.zero_stage}"]
        if fitting.checkpointing and not settings.checkpointing:
            changes.append("gradient_checkpointing: true")
        if fitting.micro_batch_tokens < settings.micro_batch_tokens:
            changes.append(f"micro_batch_tokens: {fitting.micro_batch_tokens}")
        yield f"{fitting.ranks} x {capacity / 1e9:.0f} GB with {', '.join(changes)}"


def _find_fitting(shape: ModelShape, settings: MemorySettings, capacity: float) -> MemorySettings | None:
    """Return settings that fit: fewest ranks first, then the lowest stage, then what costs the least time."""
    candidates = itertools.product((1, 2, 4, 8, 16), (1, 2, 3), (False, True), (1, 2, 4))
    for ranks, stage, checkpointing, divisor in candidates:
        # Only settings that save at least as much memory as the study's own.
        if checkpointing < settings.checkpointing or stage < settings.zero_stage:
            continue
        candidate = replace(
            settings,
            ranks=ranks,
            zero_stage=stage,
            checkpointing=checkpointing,
            offload=False,
            micro_batch_tokens=settings.micro_batch_tokens // divisor,
            scored=settings.scored // divisor,
        )
        if estimate_memory(shape, candidate).fits(capacity):
            return candidate
    return None


def choose_machine(
    name: str | None,
    count: int | None,
    study: Study,
    measured: Mapping[str, Rates],
    gpus_here: Sequence[str],
) -> Machine:
    """Return the machine that an estimate is for.

    Args:
        name: a name in ``GPUS``, ``cpu``, or ``None`` for the kind that the study needs.
        count: devices; ``None`` for the study's own number, or this machine's cores.
        study: the study.
        measured: rates that were measured on this machine.
        gpus_here: models of this machine's GPUs.

    Raises:
        InputError: if there is no such device, or a study that needs GPUs is planned for cores.
    """
    # Policies of a closed model need no device.
    gpus_of_run = max((study.gpus_of_run(policy) for policy in local_policies(study)), default=0)
    known = ", ".join(GPUS)
    if name is None:
        name = _known_gpu(gpus_here) if gpus_of_run else "cpu"
    if name != "cpu" and name not in GPUS:
        raise InputError(f"--gpu {name}: no such device; there are {known} and cpu")
    if name == "cpu" and gpus_of_run:
        raise InputError(
            f"--gpu cpu: the study has gpus_per_rank: {study.gpus_per_rank}; plan it for one of {known}"
        )
    if name != "cpu" and not gpus_of_run:
        raise InputError(
            f"--gpu {name}: the study has gpus_per_rank: 0, so it would leave GPUs idle; leave --gpu out"
        )
    default_count = max(study.gpus, gpus_of_run) if gpus_of_run else os.cpu_count() or 1
    return Machine(name, GPUS.get(name), count or default_count, measured)


def _known_gpu(models: Sequence[str]) -> str:
    """Return the first name in ``GPUS`` all of whose parts are in one of the models' names; an H100 if there is none."""
    # Drivers write a100-80 as "NVIDIA A100-SXM4-80GB", h100-80 as "NVIDIA H100 80GB HBM3".
    for name in GPUS:
        parts = name.split("-")
        for model in models:
            if all(part in model.lower() for part in parts):
                return name
    return "h100-80"
