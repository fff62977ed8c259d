"""Results that another study has already: taken by link if their records agree in everything, never by hope.

``smoke`` with a fourth seed, under another name, has 126 jobs and takes 82 of them from ``smoke``.
"""

from collections.abc import Iterator
from pathlib import Path

from threespo.errors import InputError
from threespo.files import link_file, link_folder
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.stages import STAGES, Job
from threespo.provenance import records
from threespo.provenance.digests import DigestCache


def find_reusable(
    paths: Paths, job: Job, made_of: records.Dependencies, known: dict[Path, DigestCache]
) -> Paths | None:
    """Return the study beside this one that has the job's results, made of the same, and undamaged; None if none has.

    Args:
        paths: of this study.
        job: the job.
        made_of: what it is made of.
        known: digests of the neighbours' results, by their folders; added to.
    """
    if not STAGES[job.stage].reusable:
        return None
    for other in _others(paths):
        try:
            record = records.read_record(other, job)
        except InputError:
            continue
        if record and record.matches(made_of):
            digests = known.setdefault(other.root, DigestCache(other.digests))
            if not integrity.find_damage(other, job, record, digests):
                return other
    return None


def link_results(source: Paths, paths: Paths, job: Job) -> None:
    """Take the job's results, and then its record, from another study; whether they fit each other is to be looked at then.

    Raises:
        InputError: if the disk is full or the folder cannot be written.
    """
    record = records.read_record(source, job)
    assert record is not None, "found by its record"
    made = job.outputs(paths)
    for theirs, ours in zip(job.outputs(source).paths(), made.paths(), strict=True):
        (link_folder if ours in made.folders else link_file)(theirs, ours)
    records.write_record(paths, record)


def _others(paths: Paths) -> Iterator[Paths]:
    for folder in sorted(paths.root.parent.glob("*")):
        if folder != paths.root and Paths(folder).study.is_file():
            yield Paths(folder)
