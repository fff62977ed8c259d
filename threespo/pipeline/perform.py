"""Do a job, if it has to be done: a result that stands is left alone, one that another study has is taken."""

import resource
import sys
import time
from collections.abc import Callable, Mapping

from threespo.errors import InputError
from threespo.files import remove_path
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.plan import check_upstream
from threespo.pipeline.reuse import find_reusable, link_results
from threespo.pipeline.stages import Job
from threespo.provenance import energy, records
from threespo.provenance.code import clear_caches
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study


def perform(study: Study, paths: Paths, job: Job, work: Callable[[], None]) -> None:
    """Make sure of what the job reads, then do its ``work`` and write its record.

    Nothing is done where the record shows that it would come out the same: the workflow also calls jobs whose inputs were
    made anew and may be unchanged.

    Raises:
        InputError: if an input is not what the job that makes it has written, or that job would run again.
        RuntimeError: if the work has left out a result.
    """
    inputs = job.input_paths(study, paths)
    digests = DigestCache()
    integrity.check_results(study, paths, inputs, digests)
    check_upstream(study, paths, job)

    made_of = integrity.collect_dependencies(
        study, paths, job, records.digest_files(paths, inputs, digests)
    )
    if _stands(paths, job, made_of):
        print(
            f"{job}: as before, nothing to do (to have it done again, delete its results)",
            file=sys.stderr,
        )
        return
    if source := find_reusable(paths, job, made_of, {}):
        link_results(source, paths, job)
        # The other study may have gone on meanwhile.
        if _stands(paths, job, made_of):
            print(f"{job}: taken from {source.root}", file=sys.stderr)
            return

    _clear_way(paths, job)
    # Of a shared GPU nobody knows which run has used what.
    shared = study.runs_per_gpu > 1
    start, joules = time.perf_counter(), None if shared else energy.read_energy_counters()
    work()
    # The ranks of a run are children. Of memory the largest process counts.
    own, children = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    took = {
        "seconds": time.perf_counter() - start,
        "peak_memory_mb": max(own.ru_maxrss, children.ru_maxrss) / 1024,
        "processor_seconds": time.process_time() + children.ru_utime + children.ru_stime,
        **energy.energy_between(joules, None if shared else energy.read_energy_counters()),
    }

    # Nobody knows which of the two an edited module or input was when it was read: the result stands for neither.
    clear_caches()
    digests = DigestCache()
    now = integrity.collect_dependencies(study, paths, job, records.digest_files(paths, inputs, digests))
    code, read = _settled(made_of.code, now.code), _settled(made_of.input, now.input)
    written = integrity.digest_outputs(paths, job, digests)
    record = records.Record(
        job.stage, job.name, code, made_of.field, read, written, took, records.describe_environment()
    )
    if missing := integrity.find_damage(paths, job, record, digests):
        raise RuntimeError(f"{job} has ended, but {missing[0]}")
    records.write_record(paths, record)


def _settled(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return digests as they were before the work, and a remark in the place of those that are others after it."""
    return {
        name: digest if after.get(name) == digest else records.EDITED_DURING_JOB
        for name, digest in before.items()
    }


def _clear_way(paths: Paths, job: Job) -> None:
    """Remove folders that somebody has put in the place of the job's files, files in that of its folders, and links.

    What a link leads to stays: it is somebody else's.
    """
    made = job.outputs(paths)
    for path in (*made.paths(), paths.record(job.stage, job.name)):
        folder = path.is_dir() and not path.is_symlink()
        if path.is_symlink() or (path.exists() and folder != (path in made.folders)):
            remove_path(path)


def _stands(paths: Paths, job: Job, made_of: records.Dependencies) -> bool:
    try:
        record = records.read_record(paths, job)
    except InputError:
        return False
    return (
        record is not None
        and record.matches(made_of)
        and not integrity.find_damage(paths, job, record, DigestCache())
    )
