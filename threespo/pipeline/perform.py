"""Do a job, if it has to be done: up-to-date results are kept, those that another study has are linked."""

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from threespo.files import remove_path, try_lock
from threespo.job_settings import JobSettings
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.plan import check_upstream
from threespo.pipeline.reuse import find_reusable, link_results
from threespo.pipeline.stages import Job
from threespo.provenance import energy, records
from threespo.provenance.code import clear_caches
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study


@contextlib.contextmanager
def reserve_devices(lock: Path, settings: JobSettings) -> Iterator[None]:
    """Reserve the GPUs of a job, and lock its study together with the study's other jobs, while a job works.

    By the lock a new call of the workflow sees that jobs of a killed one are still at work.
    """
    from threespo.runs.gpus import claim_gpus
    from threespo.runs.launch import gpus_on_first_machine

    shared_lock = try_lock(lock, shared=True) or contextlib.nullcontext()
    with shared_lock, claim_gpus(gpus_on_first_machine(settings), settings.runs_per_gpu):
        yield


def perform(study: Study, paths: Paths, job: Job, work: Callable[[], None]) -> None:
    """Make sure of what the job reads, then do its ``work`` and write its record.

    Nothing is done where the record shows that the results would be the same: the workflow also starts jobs whose inputs
    were made again and may be unchanged.

    Raises:
        InputError: if an input is not what the job that makes it has written, or that job would run again.
        RuntimeError: if the work has left out a result.
    """
    inputs = job.input_paths(study, paths)
    digests = DigestCache()
    integrity.check_results(study, paths, inputs, digests)
    check_upstream(study, paths, job)

    read = records.digest_files(paths, inputs, digests)
    before = integrity.collect_dependencies(study, paths, job, read)
    if _is_up_to_date(paths, job, before):
        print(f"{job}: up to date (to have it done again, delete its results)", file=sys.stderr)
        return
    source = find_reusable(paths, job, before, {})
    if source:
        link_results(source, paths, job)
        # The other study may have been changed meanwhile.
        if _is_up_to_date(paths, job, before):
            print(f"{job}: taken from {source.root}", file=sys.stderr)
            return

    _remove_obstacles(paths, job)
    cost = _measure(work, counts_energy=study.runs_per_gpu == 1)

    # Of a module or input that was edited meanwhile it is unknown which version the job has read.
    clear_caches()
    digests = DigestCache()
    read = records.digest_files(paths, inputs, digests)
    after = integrity.collect_dependencies(study, paths, job, read)
    record = records.Record(
        job.stage,
        job.name,
        code=_mark_edited(before.code, after.code),
        field=before.field,
        input=_mark_edited(before.input, after.input),
        output=integrity.digest_outputs(paths, job, digests),
        cost=cost,
        environment=records.describe_environment(),
    )
    damage = integrity.find_damage(paths, job, record, digests)
    if damage:
        raise RuntimeError(f"{job} has ended, but {damage[0]}")
    records.write_record(paths, record)


def _is_up_to_date(paths: Paths, job: Job, now: records.Dependencies) -> bool:
    record = records.try_read_record(paths, job)
    if record is None or not record.matches(now):
        return False
    return not integrity.find_damage(paths, job, record, DigestCache())


def _remove_obstacles(paths: Paths, job: Job) -> None:
    """Remove folders in the place of the job's files, files in that of its folders, and links.

    What a link leads to stays: it belongs to somebody else.
    """
    outputs = job.outputs(paths)
    for path in (*outputs.paths(), paths.record(job.stage, job.name)):
        is_folder = path.is_dir() and not path.is_symlink()
        is_wrong_kind = path.exists() and is_folder != (path in outputs.folders)
        if path.is_symlink() or is_wrong_kind:
            remove_path(path)


def _measure(work: Callable[[], None], *, counts_energy: bool) -> dict[str, float]:
    """Do the work and return what it cost, as records have it; without energy where other runs share the GPU."""
    start = time.perf_counter()
    joules = energy.read_energy_counters() if counts_energy else None
    work()

    # The ranks of a run are children. Of memory the largest process counts.
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - start,
        "peak_memory_mb": max(own.ru_maxrss, children.ru_maxrss) / 1024,
        "processor_seconds": time.process_time() + children.ru_utime + children.ru_stime,
        **energy.energy_between(joules, energy.read_energy_counters() if counts_energy else None),
    }


def _mark_edited(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the digests from before the work, with a remark in the place of those that are others after it."""
    return {
        name: digest if after.get(name) == digest else records.EDITED_DURING_JOB
        for name, digest in before.items()
    }
