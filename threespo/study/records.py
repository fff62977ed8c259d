"""The record of a job: what it was made of, and what it has written.

When a job ends, its command writes a record to ``stages/`` of the study's folder: the digest of every module that it depends
on, every field of the study that matters to it, the digest of every file that it has read and of every file that it has
written. A result stands if its record agrees with all of these as they are now; whoever uses a result checks that first.
Nothing else, and above all no modification time, decides whether a job has to run (``threespo.study.plan``).
"""

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import atomic_json
from threespo.study.config import Study
from threespo.study.digests import Digests, FileDigests, meaning_digest
from threespo.study.load import load_study
from threespo.study.paths import Paths
from threespo.study.stages import Job, makers

LIBRARIES = ("torch", "transformers")
"""Libraries that results may depend on to the last bit, beside this package's code."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a job was made of when it last ended, and what it has written."""

    stage: str
    name: str
    code: Mapping[str, str]
    """Digests of modules and of the data files beside them, by name."""
    field: Mapping[str, str]
    """JSON values of the settings that the job depends on, by dotted name."""
    input: Mapping[str, str]
    """Digests of the files that it has read, by path in the study's folder, else in the repository."""
    output: Mapping[str, str]
    """Digests of the files that it has written, by path in the study's folder."""
    took: Mapping[str, float]
    """Seconds, processor seconds, the most memory, and the energy of its GPUs where it could be read."""
    made: Mapping[str, str]
    """Commit, system and versions of libraries. For the reader; a job does not rerun for them."""

    def made_of(self, other: "Ingredients") -> bool:
        """Return whether the job had these ingredients."""
        return (self.code, self.field, self.input) == (other.code, other.field, other.input)


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What a job depends on, as of now; the fields are those of ``Record``."""

    code: Mapping[str, str]
    field: Mapping[str, str]
    input: Mapping[str, str]


def read(paths: Paths, job: Job) -> Record | None:
    """Return the job's record; None if it never ended in this folder.

    Raises:
        InputError: if the record cannot be read.
    """
    file = paths.record(job.stage, job.name)
    try:
        return _checked(json.loads(file.read_text(encoding="utf-8")), job)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: not a stage's record ({error}); the next run of the workflow writes it anew") from error


def _checked(values: Any, job: Job) -> Record:
    # Texts that no file can hold would fail later, when they are shown.
    json.dumps(values, ensure_ascii=False).encode()
    if (values["stage"], values["name"]) != (job.stage, job.name):
        raise ValueError(f"it is of '{values['stage']} {values['name']}'")
    parts = {field.name: values[field.name] for field in dataclasses.fields(Record)}
    for name in ("code", "field", "input", "output", "made"):
        if not all(isinstance(text, str) for pair in parts[name].items() for text in pair):
            raise TypeError(f"{name}: expected texts by name")
    if not all(isinstance(number, int | float) for number in parts["took"].values()):
        raise TypeError("took: expected numbers by name")
    record = Record(**parts)
    # Records of earlier versions have no such digest.
    if _TOLD in values and values[_TOLD] != _told_digest(record):
        raise ValueError("'took' or 'made' was edited after the job had written it")
    return record


_TOLD = "digest_of_took_and_made"
"""In a record's file: all else in it is compared with the results and with what they are made of."""


def _told_digest(record: Record) -> str:
    return hashlib.sha256(json.dumps([record.took, record.made], sort_keys=True).encode()).hexdigest()


def write(paths: Paths, record: Record) -> None:
    """Write a job's record, whole or not at all."""
    values = {**dataclasses.asdict(record), _TOLD: _told_digest(record)}
    atomic_json(paths.record(record.stage, record.name), values)


def ingredients(study: Study, paths: Paths, job: Job, inputs: Mapping[str, str]) -> Ingredients:
    """Return what the job depends on, with its inputs as given (:func:`named`)."""
    return Ingredients(job.code(study), dict(flat(job.settings(study, paths).key())), inputs)


def named(paths: Paths, files: Iterable[Path], digests: Digests) -> dict[str, str]:
    """Return the digests of files and folders, by the names that records have for them.

    Args:
        paths: of the study. Files outside of its folder, which are the repository's, count by what they say.
        files: files and folders; what is not there is left out.
        digests: computes them.
    """
    found: dict[str, str] = {}
    for file in files:
        if file.is_relative_to(paths.root):
            found.update(in_folder(file.relative_to(paths.root).as_posix(), digests.of(file)))
        elif file.is_file():
            found[file.as_posix()] = meaning_digest(file)
    return found


def in_folder(name: str, digests: FileDigests) -> Iterator[tuple[str, str]]:
    """Yield the digests of the file or folder ``name`` by the names that records have for them."""
    return ((f"{name}/{inside}" if inside else name, digest) for inside, digest in digests.items())


def belonging(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``values`` that is of the file or folder ``name``."""
    return {key: value for key, value in values.items() if lies_in(key, name)}


def lies_in(key: str, name: str) -> bool:
    """Return whether a record's name ``key`` is that of the file or folder ``name``, or of a file in it."""
    return key == name or key.startswith(f"{name}/")


def outputs(paths: Paths, job: Job, digests: Digests) -> dict[str, str]:
    """Return the digests of what the job has written, as it is now."""
    return named(paths, job.outputs(paths).paths(), digests)


def damage(paths: Paths, job: Job, record: Record, digests: Digests) -> list[str]:
    """Say what of the job's results is not as its record has it, one line for each file."""
    now = outputs(paths, job, digests)
    # By the record and by what the job is to write: a record may lack something, and a folder without files is in none.
    made = job.outputs(paths)
    linked = [path for path in made.paths() if path.is_symlink() and path.is_dir()]
    absent = [path for path in made.paths() if not (path.is_dir() if path in made.folders else path.is_file())]
    lines = [f"{path.relative_to(paths.root)}: a link to a folder, which is not followed" for path in linked]
    lines += [f"{path.relative_to(paths.root)}: missing" for path in absent if path not in linked]
    for name in sorted(record.output.keys() | now.keys()):
        if name not in now:
            lines.append(f"{name}: missing")
        elif name not in record.output:
            lines.append(f"{name}: not written by this job")
        elif now[name] != record.output[name]:
            lines.append(f"{name}: damaged or edited, its content is not what the job has written")
    return list(dict.fromkeys(lines))


def check_made(study: Study, paths: Paths, files: Iterable[Path], digests: Digests | None = None) -> None:
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
        record = read(paths, job)
        if record is None:
            raise InputError(f"{file}: no record of '{job}' says how it was made; run the workflow, which makes it")

        name = file.relative_to(paths.root).as_posix()
        meant, now = belonging(name, record.output), named(paths, [file], digests)
        wrong = sorted(key for key in meant.keys() | now.keys() if meant.get(key) != now.get(key))
        if wrong or not file.exists():
            what = "is missing" if not file.exists() or wrong[0] not in now else "is damaged or was edited"
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


def origin() -> dict[str, str]:
    """Return where results come from: commit, system and versions of libraries."""
    return {
        "commit": commit(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version_of(name) for name in LIBRARIES},
    }


def version_of(name: str) -> str:
    """Return the installed version of a package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """Return the commit of this package's repository, and whether files differ from it."""
    folder = Path(__file__).parent
    try:
        found = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain")
    except subprocess.CalledProcessError as error:
        if "not a git repository" not in error.stderr:
            # A repository of another user, for example, which git does not look into.
            return f"unknown (git: {' '.join(error.stderr.partition(chr(10))[0].split())})"
        return "unknown (not a git checkout)"
    except OSError:
        return "unknown (not a git checkout)"
    return found + (" with uncommitted changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    # Its messages are looked at, which it would translate.
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, errors="replace", env=environment
    )
    return done.stdout.strip()


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, JSON value) of every field; ``before`` is the prefix of the names."""
    for name, value in values.items():
        # An empty mapping has no fields to name, but is a value.
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", json.dumps(value)
