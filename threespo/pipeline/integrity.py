"""Whether results are what their jobs have written: everything is checked before it is used."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline.stages import Job, map_outputs_to_jobs
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.provenance.records import Dependencies, Record
from threespo.study.config import Study
from threespo.study.load import load_study


def collect_dependencies(
    study: Study, paths: Paths, job: Job, inputs: Mapping[str, str]
) -> Dependencies:
    """Return what the job depends on, with its inputs as given (``records.named``)."""
    return Dependencies(
        job.code(study), dict(records.flatten_fields(job.settings(study, paths).key())), inputs
    )


def digest_outputs(paths: Paths, job: Job, digests: DigestCache) -> dict[str, str]:
    """Return the digests of what the job has written, as it is now."""
    return records.digest_files(paths, job.outputs(paths).paths(), digests)


def find_damage(paths: Paths, job: Job, record: Record, digests: DigestCache) -> list[str]:
    """Say what of the job's results is not as its record has it, one line for each file."""
    now = digest_outputs(paths, job, digests)
    # By the record and by what the job is to write: a record may lack something, and a folder without files is in none.
    made = job.outputs(paths)
    linked = [path for path in made.paths() if path.is_symlink() and path.is_dir()]
    absent = [
        path for path in made.paths() if not (path.is_dir() if path in made.folders else path.is_file())
    ]
    lines = [
        f"{path.relative_to(paths.root)}: a link to a folder, which is not followed" for path in linked
    ]
    lines += [f"{path.relative_to(paths.root)}: missing" for path in absent if path not in linked]
    for name in sorted(record.output.keys() | now.keys()):
        if name not in now:
            lines.append(f"{name}: missing")
        elif name not in record.output:
            lines.append(f"{name}: not written by this job")
        elif now[name] != record.output[name]:
            lines.append(f"{name}: damaged or edited, its content is not what the job has written")
    return list(dict.fromkeys(lines))


def check_results(
    study: Study, paths: Paths, files: Iterable[Path], digests: DigestCache | None = None
) -> None:
    """Make sure that results are what their jobs have written, before they are used; every byte of them is read.

    Args:
        study: the study.
        paths: where its results lie.
        files: outputs of the study's jobs; other files are passed over.
        digests: computes digests; must have no memory of earlier processes.

    Raises:
        InputError: if one is missing, has no record, or is not as its record has it.
    """
    made_by = map_outputs_to_jobs(study, paths)
    digests = digests or DigestCache()
    for file in files:
        job = made_by.get(file)
        if job is None:
            continue
        record = records.read_record(paths, job)
        if record is None:
            raise InputError(
                f"{file}: no record of '{job}' says how it was made; run the workflow, which makes it"
            )

        name = file.relative_to(paths.root).as_posix()
        meant, now = (
            records.select_inside(name, record.output),
            records.digest_files(paths, [file], digests),
        )
        wrong = sorted(key for key in meant.keys() | now.keys() if meant.get(key) != now.get(key))
        if wrong or not file.exists():
            what = (
                "is missing" if not file.exists() or wrong[0] not in now else "is damaged or was edited"
            )
            raise InputError(
                f"{paths.root / (wrong[0] if wrong else name)}: {what}: it is not what '{job}' has written. "
                "Run the workflow again, it makes it anew."
            )


def check_result_file(file: Path) -> None:
    """Make sure of a result (:func:`check_made`) that is not used by a job; one outside of any study is passed over.

    Raises:
        InputError: if it is missing, has no record, or is not as its record has it.
    """
    file = file.absolute()
    root = next((folder for folder in file.parents if Paths(folder).study.is_file()), None)
    if root:
        check_results(load_study(Paths(root).study), Paths(root), [file])
