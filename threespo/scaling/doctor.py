"""``threespo doctor``: in ten lines, whether this machine can run which study. It looks, and loads and writes nothing."""

import importlib.util
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
from threespo.study.config import Study
from threespo.study.load import load_study
from threespo.study.matrix import local_policies
from threespo.study.resolve import STUDIES, real_data_environments

PACKAGES = ("torch", "transformers", "deepspeed", "snakemake", "vllm", "alfworld")

COMPILERS = ("c++", "g++", "clang++")

LEAST_MEMORY = 3e9
"""Bytes of a run with a tiny policy: 2.2 GB at its peak, measured."""


def report_machine(results: Path) -> list[str]:
    """Return the lines.

    Args:
        results: where results would lie, which says whose disk counts.
    """
    try:
        gpus, fault = visible_devices(), ""
    except InputError as error:
        gpus, fault = [], str(error)
    found = {path.stem: load_study(path) for path in sorted(STUDIES.glob("*.yaml"))}
    compiler = next((name for name in COMPILERS if shutil.which(name)), None)
    installed = {name: installed_version(name) for name in PACKAGES}
    place = next(place for place in (results.absolute(), *results.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(place).free
    able = [name for name, study in found.items() if not list_missing(study, gpus, free, installed)]
    return [
        f"machine   {platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_memory() / 1e9:.0f} GB of memory, "
        f"Python {platform.python_version()}",
        f"GPUs      {fault or _gpus(gpus)}",
        f"disk      {format_bytes(free)} free for {results}",
        f"compiler  {compiler or 'none: the stock ALFWorld engine (extra oracle, tests) is compiled: apt install g++'}; "
        "Java is not needed",
        "packages  " + ", ".join(f"{name} {number or 'missing'}" for name, number in installed.items()),
        "data      " + "; ".join(_data(found)),
        "models    " + "; ".join(_models(found)),
        "keys      " + "; ".join(_keys(found)),
        "can run   " + (", ".join(able) or "nothing"),
        "cannot    " + ("; ".join(_cannot(found, gpus, free, installed)) or "nothing: it can run all"),
    ]


def list_missing(
    study: Study, gpus: list[Device], free: float, installed: dict[str, str | None]
) -> list[str]:
    """Return what this machine lacks for a study, in words; data and models that are fetched by themselves do not count.

    Args:
        study: the study.
        gpus: those that are here.
        free: bytes of disk.
        installed: versions of ``PACKAGES``.
    """
    missing = [
        name for name in ("torch", "transformers", "deepspeed", "snakemake") if not installed[name]
    ]
    found = [f"{', '.join(missing)} (make install)"] if missing else []
    needs = max((study.gpus_of_run(name) for name in local_policies(study)), default=0)
    if needs > len(gpus):
        found.append(f"{needs} GPU(s) a run, here {len(gpus)}")
    if not needs and _memory() < LEAST_MEMORY:
        found.append(f"{LEAST_MEMORY / 1e9:.0f} GB of memory a run")
    plan = estimate_study(
        study, choose_machine(None, None, study, read_rates(), [gpu.model for gpu in gpus])
    )
    if needs and len(gpus) >= needs and (refused := list(does_not_fit(plan))):
        found.append(refused[0])
    if plan.disk > free:
        found.append(f"{plan.disk / 1e9:.0f} GB of disk")
    found += [f"data of {env} ({lack})" for env, lack in _by_hand(study)]
    return found


def installed_version(name: str) -> str | None:
    """Return the version of a package that is installed, without importing it; ``None`` if it is not."""
    try:
        return metadata.version(name) if importlib.util.find_spec(name) else None
    except metadata.PackageNotFoundError:
        return None


def _cannot(
    found: dict[str, Study], gpus: list[Device], free: float, installed: dict[str, str | None]
) -> Iterator[str]:
    """Yield studies that cannot run, those that lack the same together."""
    reasons: dict[str, list[str]] = {}
    for name, study in found.items():
        if lack := list_missing(study, gpus, free, installed):
            reasons.setdefault(" and ".join(lack), []).append(name)
    for reason, names in reasons.items():
        yield f"{', '.join(names)} (needs {reason})"


def _gpus(gpus: list[Device]) -> str:
    if not gpus:
        return "none: studies run on CPU cores"
    models = {gpu.model: [other for other in gpus if other.model == gpu.model] for gpu in gpus}
    named = [f"{len(same)} x {model} ({same[0].memory / 1e9:.0f} GB)" for model, same in models.items()]
    busy = [gpu.name for gpu in gpus if gpu.memory and gpu.used > 0.05 * gpu.memory]
    return (
        ", ".join(named)
        + (f", in use: {', '.join(busy)}" if busy else "")
        + (", MPS is on" if is_mps_running() else "")
    )


def _by_hand(study: Study) -> Iterator[tuple[str, str]]:
    """Yield environments whose data a person must put somewhere first, and what is lacking there."""
    for env, section in study.environments.items():
        real = real_data_environments().get(env)
        if (
            section.source == "path"
            and section.path is not None
            and real
            and (lack := real.explain_missing(section.path))
        ):
            yield env, f"{section.path}: {lack}"


def _data(found: dict[str, Study]) -> Iterator[str]:
    yield "embedded tasks need none"
    for env in ENVIRONMENTS:
        real, folder = environment(env).real, Path("downloads") / env
        sections = [study.environments[env] for study in found.values() if env in study.environments]
        if real and any(section.source == "official" for section in sections):
            lack = "not fetched" if not folder.is_dir() else real.explain_missing(folder)
            yield f"{env} {f'{lack} ({folder})' if lack else f'in {folder}'}"


def _models(found: dict[str, Study]) -> Iterator[str]:
    yield "tiny ones are shipped or built"
    sources = {
        str(policy.source)
        for study in found.values()
        for policy in study.policies.values()
        if policy.source
    }
    for source in sorted(sources):
        found_at = find_model_config(source)
        # The configuration is small and comes first; weights may be missing, or still be on their way.
        whole = found_at is not None and any(found_at.parent.glob("*.safetensors"))
        yield f"{source} {'here' if whole else 'begun to be fetched' if found_at else 'not fetched'}"


def _keys(found: dict[str, Study]) -> Iterator[str]:
    named = {
        policy.endpoint.key_env
        for study in found.values()
        for policy in study.policies.values()
        if policy.endpoint
    }
    for name in sorted(named):
        yield f"{name} {'set' if os.environ.get(name) else 'not set (its rows read not run)'}"


def _memory() -> float:
    """Return the bytes of this machine's memory, or of the container's if that has less."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        text = file.read_text().strip() if file.is_file() else ""
        total = min(total, float(text)) if text.isdigit() else total
    return total
