"""Do a job, if it has to be done: a result that stands is left alone, one that another study has is taken."""

import resource
import sys
import time
from collections.abc import Callable

from threespo.errors import InputError
from threespo.study import records
from threespo.study.config import Study
from threespo.study.digests import Digests
from threespo.study.paths import Paths
from threespo.study.reuse import find, take
from threespo.study.stages import Job


def perform(study: Study, paths: Paths, job: Job, work: Callable[[], None]) -> None:
    """Make sure of what the job reads, then do its ``work`` and write its record.

    Nothing is done where the record shows that it would come out the same: the workflow also calls jobs whose inputs were
    made anew and may be unchanged.

    Raises:
        InputError: if an input is not what the job that makes it has written.
    """
    inputs = [path for files in job.inputs(study, paths).values() for path in files]
    digests = Digests()
    records.check_made(study, paths, inputs, digests)

    # Before the work: an input or module that is edited meanwhile must show as changed afterwards.
    made_of = records.ingredients(study, paths, job, records.named(paths, inputs, digests))
    if _stands(paths, job, made_of):
        print(f"{job}: as before, nothing to do (to have it done again, delete its results)", file=sys.stderr)
    elif source := find(paths, job, made_of):
        take(source, paths, job)
        print(f"{job}: taken from {source.root}", file=sys.stderr)
    else:
        start = time.perf_counter()
        work()
        took = {
            "seconds": time.perf_counter() - start,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "processor_seconds": time.process_time(),
        }
        written = records.outputs(paths, job, Digests())
        records.write(
            paths,
            records.Record(
                job.stage, job.name, made_of.code, made_of.field, made_of.input, written, took, records.origin()
            ),
        )


def _stands(paths: Paths, job: Job, made_of: records.Ingredients) -> bool:
    try:
        record = records.read(paths, job)
    except InputError:
        return False
    return record is not None and record.made_of(made_of) and not records.damage(paths, job, record, Digests())
