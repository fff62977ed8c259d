"""Results that another study has already: linked if the records agree in code, settings and inputs.

``smoke`` with a fourth seed, under another name, has 126 jobs and takes 82 of them from ``smoke``.
"""

from pathlib import Path

from threespo.files import link_file, link_folder
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.stages import STAGES, Job
from threespo.provenance import records
from threespo.provenance.digests import DigestCache


def find_reusable(
    paths: Paths, job: Job, now: records.Dependencies, caches: dict[Path, DigestCache]
) -> Paths | None:
    """Return the first study in the same folder of results that has undamaged results of the job, made from the same.

    Args:
        paths: of this study.
        job: the job.
        now: code, settings and inputs of the job.
        caches: digests of the other studies' results, by their folders; added to, so that no file is read twice.
    """
    if not STAGES[job.stage].reusable:
        return None
    for folder in sorted(paths.root.parent.glob("*")):
        other = Paths(folder)
        if folder == paths.root or not other.study.is_file():
            continue
        record = records.try_read_record(other, job)
        if record is None or not record.matches(now):
            continue
        digests = caches.setdefault(other.root, DigestCache(other.digests))
        if not integrity.find_damage(other, job, record, digests):
            return other
    return None


def link_results(source: Paths, paths: Paths, job: Job) -> None:
    """Link the job's results from another study, then copy its record; the caller checks that they fit each other.

    Raises:
        InputError: if the disk is full or the folder cannot be written.
    """
    record = records.read_record(source, job)
    assert record is not None, "found by its record"
    outputs = job.outputs(paths)
    for theirs, ours in zip(job.outputs(source).paths(), outputs.paths(), strict=True):
        link = link_folder if ours in outputs.folders else link_file
        link(theirs, ours)
    records.write_record(paths, record)
