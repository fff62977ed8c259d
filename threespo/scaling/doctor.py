"""``threespo doctor``: in ten lines, which studies this machine can run. It loads no model and writes nothing."""

import importlib.util
import itertools
import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.errors import InputError, format_bytes
from threespo.runs.gpus import Device, is_mps_running, visible_devices
from threespo.scaling.estimate import choose_machine, does_not_fit, estimate_study
from threespo.scaling.rates import read_rates
from threespo.scaling.shapes import find_model_config
from threespo.study.config import PolicySettings, Study
from threespo.study.load import load_study
from threespo.study.matrix import local_policies
from threespo.study.resolve import STUDIES, real_data_environments

REQUIRED_PACKAGES = ("torch", "transformers", "deepspeed", "snakemake")

PACKAGES = (*REQUIRED_PACKAGES, "vllm", "alfworld")

COMPILERS = ("c++", "g++", "clang++")

MIN_MEMORY = 3e9
"""Bytes of a run with a tiny policy: 2.2 GB at its peak, measured."""


def report_machine(results: Path) -> list[str]:
    """Return the lines; the free disk is that of the folder ``results``, which need not exist yet."""
    gpus: list[Device] = []
    gpu_fault = ""
    try:
        gpus = visible_devices()
    except InputError as error:
        # Reported in the line of the GPUs, so that a broken driver does not hide the other lines.
        gpu_fault = str(error)
    studies = {path.stem: load_study(path) for path in sorted(STUDIES.glob("*.yaml"))}
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    installed = {name: installed_version(name) for name in PACKAGES}
    # A folder that does not exist yet will be on the disk of its nearest parent.
    absolute = results.absolute()
    existing = next(folder for folder in (absolute, *absolute.parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free

    missing = {name: list_missing(study, gpus, free, installed) for name, study in studies.items()}
    runnable = [name for name, lacks in missing.items() if not lacks]
    packages = [f"{name} {version or 'missing'}" for name, version in installed.items()]
    no_compiler = "none: the stock ALFWorld engine (extra oracle, tests) is compiled: apt install g++"
    system = f"{platform.system()} {platform.machine()}"
    memory = f"{_memory_bytes() / 1e9:.0f} GB of memory"
    return [
        f"machine   {system}, {os.cpu_count()} cores, {memory}, Python {platform.python_version()}",
        f"GPUs      {gpu_fault or _describe_gpus(gpus)}",
        f"disk      {format_bytes(free)} free for {results}",
        f"compiler  {compiler or no_compiler}; Java is not needed",
        f"packages  {', '.join(packages)}",
        f"data      {'; '.join(_describe_data(studies))}",
        f"models    {'; '.join(_describe_models(studies))}",
        f"keys      {'; '.join(_describe_keys(studies))}",
        f"can run   {', '.join(runnable) or 'nothing'}",
        f"cannot    {'; '.join(_describe_missing(missing)) or 'nothing: it can run all'}",
    ]


def list_missing(
    study: Study, gpus: list[Device], free: float, installed: dict[str, str | None]
) -> list[str]:
    """Return what this machine lacks for a study, in words; data and models that the study fetches itself do not count.

    Args:
        study: the study.
        gpus: GPUs of this machine.
        free: bytes of disk.
        installed: versions of ``PACKAGES``.
    """
    missing: list[str] = []
    packages = [name for name in REQUIRED_PACKAGES if not installed[name]]
    if packages:
        missing.append(f"{', '.join(packages)} (make install)")

    gpus_of_run = max((study.gpus_of_run(name) for name in local_policies(study)), default=0)
    if gpus_of_run > len(gpus):
        missing.append(f"{gpus_of_run} GPU(s) a run, here {len(gpus)}")
    if not gpus_of_run and _memory_bytes() < MIN_MEMORY:
        missing.append(f"{MIN_MEMORY / 1e9:.0f} GB of memory a run")

    machine = choose_machine(None, None, study, read_rates(), [gpu.model for gpu in gpus])
    estimate = estimate_study(study, machine)
    if gpus_of_run and len(gpus) >= gpus_of_run:
        # Only the first reason: the others mostly follow from it.
        missing += itertools.islice(does_not_fit(estimate), 1)
    if estimate.disk > free:
        missing.append(f"{estimate.disk / 1e9:.0f} GB of disk")
    missing += _missing_data(study)
    return missing


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, without importing it; ``None`` if it is not installed."""
    try:
        # The metadata of a removed package may be left behind, so the module has to be there too.
        return metadata.version(name) if importlib.util.find_spec(name) else None
    except metadata.PackageNotFoundError:
        return None


def _describe_missing(missing: dict[str, list[str]]) -> Iterator[str]:
    """Yield studies that cannot run, grouped by what they lack."""
    # Most studies lack the same (a GPU), which is reported once.
    studies_of_reason: dict[str, list[str]] = {}
    for name, lacks in missing.items():
        if lacks:
            studies_of_reason.setdefault(" and ".join(lacks), []).append(name)
    for reason, names in studies_of_reason.items():
        yield f"{', '.join(names)} (needs {reason})"


def _describe_gpus(gpus: list[Device]) -> str:
    if not gpus:
        return "none: studies run on CPU cores"
    gpus_of_model: dict[str, list[Device]] = {}
    for gpu in gpus:
        gpus_of_model.setdefault(gpu.model, []).append(gpu)
    parts = []
    for model, devices in gpus_of_model.items():
        parts.append(f"{len(devices)} x {model} ({devices[0].memory / 1e9:.0f} GB)")
    busy = [gpu.name for gpu in gpus if gpu.is_in_use]
    if busy:
        parts.append(f"in use: {', '.join(busy)}")
    if is_mps_running():
        parts.append("MPS is on")
    return ", ".join(parts)


def _missing_data(study: Study) -> Iterator[str]:
    """Yield what is missing of the data that a user must provide."""
    for env, section in study.environments.items():
        real = real_data_environments().get(env)
        # Embedded data are in the package, official data are fetched by the data stage.
        if section.source != "path" or section.path is None or not real:
            continue
        missing = real.explain_missing(section.path)
        if missing:
            yield f"data of {env} ({section.path}: {missing})"


def _describe_data(studies: dict[str, Study]) -> Iterator[str]:
    yield "embedded tasks need none"
    for env in ENVIRONMENTS:
        real = environment(env).real
        sections = [study.environments[env] for study in studies.values() if env in study.environments]
        if not real or not any(section.source == "official" for section in sections):
            continue
        folder = Path("downloads") / env
        missing = real.explain_missing(folder) if folder.is_dir() else "not fetched"
        yield f"{env} {missing} ({folder})" if missing else f"{env} in {folder}"


def _describe_models(studies: dict[str, Study]) -> Iterator[str]:
    yield "tiny ones are shipped or built"
    sources = {str(policy.source) for policy in _all_policies(studies) if policy.source}
    for source in sorted(sources):
        config = find_model_config(source)
        # The configuration is small and is fetched first; the weights may be missing or incomplete.
        state = "not fetched"
        if config is not None:
            has_weights = any(config.parent.glob("*.safetensors"))
            state = "here" if has_weights else "begun to be fetched"
        yield f"{source} {state}"


def _describe_keys(studies: dict[str, Study]) -> Iterator[str]:
    endpoints = [policy.endpoint for policy in _all_policies(studies) if policy.endpoint]
    for name in sorted({endpoint.key_env for endpoint in endpoints}):
        yield f"{name} {'set' if os.environ.get(name) else 'not set (its rows read not run)'}"


def _all_policies(studies: dict[str, Study]) -> list[PolicySettings]:
    return [policy for study in studies.values() for policy in study.policies.values()]


def _memory_bytes() -> float:
    """Return the bytes of this machine's memory, or of the container's if that has less."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # Control groups of version 2 and 1; without a limit the files have "max" or a huge number.
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        file = Path("/sys/fs/cgroup") / name
        text = file.read_text().strip() if file.is_file() else ""
        if text.isdigit():
            total = min(total, float(text))
    return total
