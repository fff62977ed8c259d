"""Whether results are what their jobs have written: everything is checked before it is used."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline.stages import Job, makers
from threespo.provenance import records
from threespo.provenance.digests import Digests
from threespo.provenance.records import Ingredients, Record
from threespo.study.config import Study
from threespo.study.load import load_study


def ingredients(study: Study, paths: Paths, job: Job, inputs: Mapping[str, str]) -> Ingredients:
    """Return what the job depends on, with its inputs as given (``records.named``)."""
    return Ingredients(job.code(study), dict(records.flat(job.settings(study, paths).key())), inputs)


def outputs(paths: Paths, job: Job, digests: Digests) -> dict[str, str]:
    """Return the digests of what the job has written, as it is now."""
    return records.named(paths, job.outputs(paths).paths(), digests)


def damage(paths: Paths, job: Job, record: Record, digests: Digests) -> list[str]:
    """Say what of the job's results is not as its record has it, one line for each file."""
    now = outputs(paths, job, digests)
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


def check_made(
    study: Study, paths: Paths, files: Iterable[Path], digests: Digests | None = None
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
    made_by = makers(study, paths)
    digests = digests or Digests()
    for file in files:
        job = made_by.get(file)
        if job is None:
            continue
        record = records.read(paths, job)
        if record is None:
            raise InputError(
                f"{file}: no record of '{job}' says how it was made; run the workflow, which makes it"
            )

        name = file.relative_to(paths.root).as_posix()
        meant, now = records.belonging(name, record.output), records.named(paths, [file], digests)
        wrong = sorted(key for key in meant.keys() | now.keys() if meant.get(key) != now.get(key))
        if wrong or not file.exists():
            what = (
                "is missing" if not file.exists() or wrong[0] not in now else "is damaged or was edited"
            )
            raise InputError(
                f"{paths.root / (wrong[0] if wrong else name)}: {what}: it is not what '{job}' has written. "
                "Run the workflow again, it makes it anew."
            )


def check_used(file: Path) -> None:
    """Make sure of a result (:func:`check_made`) that is not used by a job; one outside of any study is passed over.

    Raises:
        InputError: if it is missing, has no record, or is not as its record has it.
    """
    file = file.absolute()
    root = next((folder for folder in file.parents if Paths(folder).study.is_file()), None)
    if root:
        check_made(load_study(Paths(root).study), Paths(root), [file])
