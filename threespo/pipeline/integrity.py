"""Whether results are what their jobs have written: everything is checked before it is used."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline.stages import Job, ResultContext, map_outputs_to_jobs
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.provenance.records import Dependencies, Record
from threespo.study.config import Study
from threespo.study.load import load_study


def collect_dependencies(
    study: Study,
    paths: Paths,
    job: Job,
    inputs: Mapping[str, str],
    context: ResultContext | None = None,
) -> Dependencies:
    """Return what the job depends on, with its inputs as given (``records.digest_files``); ``context`` saves time."""
    settings = job.settings(study, paths, context)
    return Dependencies(job.code(study), dict(records.flatten_fields(settings.key())), inputs)


def digest_outputs(paths: Paths, job: Job, digests: DigestCache) -> dict[str, str]:
    """Return the digests of what the job has written, as it is now."""
    return records.digest_files(paths, job.outputs(paths).paths(), digests)


def find_damage(paths: Paths, job: Job, record: Record, digests: DigestCache) -> list[str]:
    """Say what of the job's results is not as its record has it, one line for each file."""
    lines: list[str] = []
    # By what the job is to write, too: a record may lack something, and names no folder without files.
    outputs = job.outputs(paths)
    for path in outputs.paths():
        name = path.relative_to(paths.root)
        if path.is_symlink() and path.is_dir():
            lines.append(f"{name}: a link to a folder, which is not followed")
            continue
        exists = path.is_dir() if path in outputs.folders else path.is_file()
        if not exists:
            lines.append(f"{name}: missing")

    now = digest_outputs(paths, job, digests)
    for changed in records.changed_names(record.output, now):
        if changed not in now:
            lines.append(f"{changed}: missing")
        elif changed not in record.output:
            lines.append(f"{changed}: not written by this job")
        else:
            lines.append(f"{changed}: damaged or edited, its content is not what the job has written")
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
    makers = map_outputs_to_jobs(study, paths)
    digests = digests or DigestCache()
    for file in files:
        job = makers.get(file)
        if job is None:
            continue
        record = records.read_record(paths, job)
        if record is None:
            raise InputError(
                f"{file}: no record of '{job}' says how it was made; run the workflow, which makes it"
            )

        name = file.relative_to(paths.root).as_posix()
        expected = records.select_inside(name, record.output)
        found = records.digest_files(paths, [file], digests)
        wrong = records.changed_names(expected, found)
        if not wrong and file.exists():
            continue
        is_missing = not file.exists() or wrong[0] not in found
        problem = "is missing" if is_missing else "is damaged or was edited"
        raise InputError(
            f"{paths.root / (wrong[0] if wrong else name)}: {problem}: it is not what '{job}' has written. "
            "Run the workflow again, it makes it anew."
        )


def check_result_file(file: Path) -> None:
    """Make sure of a result that is not used by a job (:func:`check_results`); one outside of any study is passed over.

    Raises:
        InputError: if it is missing, has no record, or is not as its record has it.
    """
    file = file.absolute()
    root = next((folder for folder in file.parents if Paths(folder).study.is_file()), None)
    if root:
        check_results(load_study(Paths(root).study), Paths(root), [file])
