"""The record of a job: what it was made of, and what it has written.

When a job ends, its command writes a record to ``stages/`` of the study's folder: the digest of every part of the package
that it may run, every field of the study that matters to it, the digest of every file that it has read and of every file
that it has written. A result is up to date if its record agrees with all of these as they are now; whoever uses it checks
that first.
Nothing else, and above all no modification time, decides whether a job has to run (``threespo.pipeline.plan``).
"""

import dataclasses
import functools
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import write_json
from threespo.paths import JobId, Paths
from threespo.provenance.digests import DigestCache, FileDigests, semantic_digest

EDITED_DURING_JOB = "changed while the job ran"
"""In the place of a digest: nobody knows which of the two the job has read."""

ACCEPTANCE_FIELDS = {"study", "from", "to", "commit", "every_method", "run"}
"""What a record says of a change of code that its results were accepted through."""

FORMAT = 2
"""Of records. The first had a digest for each module of the package; a job with such a record runs again."""

LIBRARIES = ("torch", "transformers")
"""Libraries that results may depend on to the last bit, beside this package's code."""

MACHINE_FIELDS = ("system", "processor", "python", *LIBRARIES)
"""What of ``Record.made`` bytes may depend on."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a job was made of when it last ended, and what it has written."""

    stage: str
    name: str
    code: Mapping[str, str]
    """Digests of the parts of the package that it may run, by ``module:name``, and of data files by path."""
    field: Mapping[str, str]
    """JSON values of the settings that the job depends on, by dotted name."""
    input: Mapping[str, str]
    """Digests of the files that it has read, by path in the study's folder, else in the repository."""
    output: Mapping[str, str]
    """Digests of the files that it has written, by path in the study's folder."""
    cost: Mapping[str, float]
    """Seconds, processor seconds, the most memory, and the energy of its GPUs where it could be read."""
    environment: Mapping[str, str]
    """Commit, machine and versions of libraries. For the reader; a job does not rerun for them."""
    accepted: Sequence[Mapping[str, Any]] = ()
    """Changes of its code that were proven to change no result of its kind, the last one last (``pipeline/accept.py``)."""

    def matches(self, other: "Ingredients") -> bool:
        """Return whether the job had these ingredients."""
        return (self.code, self.field, self.input) == (other.code, other.field, other.input)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a job depends on, as of now; the fields are those of ``Record``."""

    code: Mapping[str, str]
    field: Mapping[str, str]
    input: Mapping[str, str]


def read_record(paths: Paths, job: JobId) -> Record | None:
    """Return the job's record; None if it never ended in this folder.

    Raises:
        InputError: if the record cannot be read.
    """
    file = paths.record(job.stage, job.name)
    try:
        return _parsed(file.read_text(encoding="utf-8"), job.stage, job.name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file}: not a stage's record ({error}); the next run of the workflow writes it anew"
        ) from error


def try_read_record(paths: Paths, job: JobId) -> Record | None:
    """Return the job's record; None if there is none, or what is there cannot be read."""
    try:
        return read_record(paths, job)
    except InputError:
        return None


# A plan asks for a record several times, and reading one of fifty kilobytes takes a millisecond.
@functools.lru_cache(maxsize=2048)
def _parsed(text: str, stage: str, name: str) -> Record:
    values = json.loads(text)
    if "\\u" in text:
        # Texts that no file can hold would fail later, when they are shown.
        json.dumps(values, ensure_ascii=False).encode()
    return _checked(values, JobId(stage, name))


def _checked(values: Any, job: JobId) -> Record:
    if (values["stage"], values["name"]) != (job.stage, job.name):
        raise ValueError(f"it is of '{values['stage']} {values['name']}'")
    if values.get("format") != FORMAT:
        raise ValueError("it is of an older version")
    parts = {field.name: values[field.name] for field in dataclasses.fields(Record)}
    for name in ("code", "field", "input", "output", "made"):
        if {*map(type, parts[name]), *map(type, parts[name].values())} - {str}:
            raise TypeError(f"{name}: expected texts by name")
    if not all(isinstance(number, int | float) for number in parts["took"].values()):
        raise TypeError("took: expected numbers by name")
    if not all(
        isinstance(note, dict) and note.keys() == ACCEPTANCE_FIELDS for note in parts["accepted"]
    ):
        raise TypeError("accepted: expected notes")
    record = Record(**parts)
    if values[_TOLD] != _told_digest(record):
        raise ValueError("'took' or 'made' was edited after the job had written it")
    return record


_TOLD = "digest_of_took_and_made"
"""In a record's file: all else in it is compared with the results and with what they are made of."""


def _told_digest(record: Record) -> str:
    return hashlib.sha256(
        json.dumps([record.cost, record.environment], sort_keys=True).encode()
    ).hexdigest()


def write_record(paths: Paths, record: Record) -> None:
    """Write a job's record, whole or not at all."""
    values = {"format": FORMAT, **dataclasses.asdict(record), _TOLD: _told_digest(record)}
    write_json(paths.record(record.stage, record.name), values)


def digest_files(paths: Paths, files: Iterable[Path], digests: DigestCache) -> dict[str, str]:
    """Return the digests of files and folders, by the names that records have for them.

    Args:
        paths: of the study. Files outside of its folder, which are the repository's, count by what they say.
        files: files and folders; what is not there is left out.
        digests: computes them.
    """
    found: dict[str, str] = {}
    for file in files:
        if file.is_relative_to(paths.root):
            found.update(prefix_names(file.relative_to(paths.root).as_posix(), digests.digests_of(file)))
        elif file.is_file():
            found[file.as_posix()] = semantic_digest(file)
    return found


def prefix_names(name: str, digests: FileDigests) -> Iterator[tuple[str, str]]:
    """Yield the digests of the file or folder ``name`` by the names that records have for them."""
    return ((f"{name}/{inside}" if inside else name, digest) for inside, digest in digests.items())


def select_inside(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``values`` that is of the file or folder ``name``."""
    return {key: value for key, value in values.items() if is_inside(key, name)}


def is_inside(key: str, name: str) -> bool:
    """Return whether a record's name ``key`` is that of the file or folder ``name``, or of a file in it."""
    return key == name or key.startswith(f"{name}/")


def describe_environment() -> dict[str, str]:
    """Return where results come from: commit, machine and versions of libraries."""
    return {
        "commit": current_commit(),
        "system": platform.platform(),
        "processor": processor_name(),
        "python": platform.python_version(),
        **{name: installed_version(name) for name in LIBRARIES},
    }


def processor_name() -> str:
    """Return the name of the machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed_version(name: str) -> str:
    """Return the installed version of a package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def current_commit() -> str:
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
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        errors="replace",
        env=environment,
    )
    return done.stdout.strip()


def flatten_fields(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, JSON value) of every field; ``before`` is the prefix of the names."""
    for name, value in values.items():
        # An empty mapping has no fields to name, but is a value.
        if isinstance(value, Mapping) and value:
            yield from flatten_fields(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", json.dumps(value)
