"""What every job was made of, and why it would run again.

When a job ends, its command writes a record to ``stages/`` of the study's folder: the digest of every module that it depends
on, every field of the study that matters to it, the digest of every input, and what it took. The workflow decides by the
same ingredients (``threespo.study.stages``); ``threespo why`` shows them apart, old and new.
"""

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import atomic_json
from threespo.study.checksums import SUFFIX, file_digest, write_checksums
from threespo.study.config import Study
from threespo.study.load import load_study
from threespo.study.paths import Paths
from threespo.study.stages import Job, jobs

Ingredients = dict[str, dict[str, str]]
"""``code``, ``field`` and ``input``, each by name."""


@contextlib.contextmanager
def recorded(study: Study, paths: Paths, job: Job) -> Iterator[None]:
    """When the block has succeeded, write the job's record and then the checksums of the folders that it has filled."""
    # Before the work: an input or module that is edited meanwhile must show as changed afterwards.
    made_of, start = ingredients(study, paths, job), time.perf_counter()
    yield

    took = {
        "seconds": time.perf_counter() - start,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "processor_seconds": time.process_time(),
    }
    atomic_json(paths.record(job.stage, job.name), {"stage": job.stage, "name": job.name, **made_of, "took": took})
    # Last, since their files tell the workflow that the job is complete.
    for folder in job.outputs(paths).folders:
        write_checksums(folder)


def read(paths: Paths, job: Job) -> dict[str, Any] | None:
    """Return the job's record; None if it never ended in this folder.

    Raises:
        InputError: if the record cannot be read.
    """
    file = paths.record(job.stage, job.name)
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {name: record[name] for name in ("code", "field", "input", "took")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: not a stage's record ({error}); delete it, the next run writes it anew") from error


def ingredients(study: Study, paths: Paths, job: Job) -> Ingredients:
    """Return what the job depends on, as of now."""
    return {
        "code": job.code(study),
        "field": dict(_flat(job.settings(study, paths).key())),
        "input": {name: digest for file in _inputs(study, paths, job) for name, digest in _digests(paths, file)},
    }


def why(target: Path) -> list[str]:
    """Say for every job behind ``target`` (a file or folder of a study's results) what has changed since it ran.

    The record of each job is compared with the present code, inputs and ``study.json``, which every ``snakemake`` call
    writes, ``-n`` included. A job that reads the results of a changed one runs again if these come out differently.

    Returns:
        For each job in the order of the workflow a line ``JOB: STATE`` (``changed``, ``unchanged``, or ``follows OTHER``),
        then an indented line for each change.

    Raises:
        InputError: if the target does not belong to the results of a study.
    """
    # Not ``resolve``: results may be reached through a link, and outputs are compared by path.
    target = Path(os.path.abspath(target))  # noqa: PTH100
    root = next((folder for folder in (target, *target.parents) if Paths(folder).study.is_file()), None)
    if root is None:
        raise InputError(f"{target}: not in a folder of results; name one such as results/smoke/report.html")
    study, paths = load_study(Paths(root).study), Paths(root)

    # A target may also be a folder that holds results of many jobs, or a file inside a folder that is one result.
    everything = jobs(study)
    wanted = {job for job in everything if any(_related(target, output) for output in job.outputs(paths).paths())}
    if not wanted:
        raise InputError(
            f"{target}: no threespo command makes this. Ask for {root} or for data/, policy/, runs/, tables/, figures/, "
            "notebooks/ or report.html in it."
        )

    # A job comes after all that it needs. So one pass from the end finds the needed jobs at any distance: every job that
    # reads a result is decided on before the job that writes it.
    needed = {job: set(_inputs(study, paths, job)) for job in everything}
    for job in reversed(everything):
        if job not in wanted and any(needed[one].intersection(job.outputs(paths).paths()) for one in wanted):
            wanted.add(job)

    lines: list[str] = []
    stale: list[Job] = []
    for job in (job for job in everything if job in wanted):
        changes = _changes(study, paths, job)
        # Unchanged by itself, a job may still run again, because its inputs are about to be written anew.
        follows = [str(other) for other in stale if needed[job].intersection(other.outputs(paths).paths())]
        if changes or follows:
            stale.append(job)

        state = "changed" if changes else f"follows {follows[0]}" if follows else "unchanged"
        lines += [f"{job}: {state}", *changes]
    return lines


def _changes(study: Study, paths: Paths, job: Job) -> list[str]:
    """Return an indented line for each missing result and for each ingredient that differs from the record."""
    outputs = job.outputs(paths).paths()
    missing = [f"  result {path.relative_to(paths.root)}: missing" for path in outputs if not path.exists()]
    record = read(paths, job)
    if record is None:
        return [*missing, "  has not ended yet in this folder"]

    now = ingredients(study, paths, job)
    return missing + [
        f"  {kind:5}  {name}: {_shown(record[kind].get(name))} -> {_shown(now[kind].get(name))}"
        for kind in ("field", "code", "input")
        for name in sorted(record[kind].keys() | now[kind].keys())
        if record[kind].get(name) != now[kind].get(name)
    ]


def _shown(value: str | None) -> str:
    """Shorten a digest; a value that is absent on one side is ``(none)``."""
    if value is None:
        return "(none)"
    return value[:12] if len(value) == 64 else value


def _related(target: Path, output: Path) -> bool:
    """Return whether one path is the other or lies in it."""
    return target == output or target in output.parents or output in target.parents


def _inputs(study: Study, paths: Paths, job: Job) -> list[Path]:
    return [path for files in job.inputs(study, paths).values() for path in files]


def _digests(paths: Paths, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of an input. Checksums of a folder yield its files instead, so that a change names the file."""
    inside = file.relative_to(paths.root) if file.is_relative_to(paths.root) else file
    folder = inside.with_name(inside.name.removesuffix(SUFFIX))
    if not file.is_file():
        yield inside.as_posix(), "missing"
    elif inside.name.endswith(SUFFIX):
        for name, digest in json.loads(file.read_text()).items():
            yield (folder / name).as_posix(), digest
    else:
        yield inside.as_posix(), file_digest(file)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, JSON value) of every field; ``before`` is the prefix of the names."""
    for name, value in values.items():
        # An empty mapping has no fields to name, but is a value.
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", json.dumps(value)
