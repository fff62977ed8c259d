"""The record of a job: what it depended on, and what it has written.

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
from threespo.provenance.digests import DigestCache, semantic_digest

Values = Mapping[str, str]
"""Digests or JSON values by name."""

EDITED_DURING_JOB = "changed while the job ran"
"""In the place of a digest: it is unknown which of the two versions the job has read."""

ACCEPTANCE_FIELDS = {"study", "from", "to", "commit", "every_method", "run"}
"""Fields of a note on a change that the job's results were accepted through (``pipeline/accept.py``)."""

CONFIGURATION_FIELDS = {"configuration", "settings"}
"""Fields of such a note where settings had changed: digests of the configuration, and the names of the job's settings."""

FORMAT = 2
"""Of records. The first had a digest for each module of the package; a job with such a record runs again."""

LIBRARIES = ("torch", "transformers")
"""Libraries that results may depend on to the last bit."""

MACHINE_FIELDS = ("system", "processor", "python", *LIBRARIES)
"""Entries of ``Record.environment`` that bytes may depend on."""

STORED_NAMES = {"cost": "took", "environment": "made"}
"""Names in a record's file where they are not those of ``Record``: files of earlier versions stay valid."""

_SEAL = "digest_of_took_and_made"
"""Field of a record's file: a digest of the two fields that nothing else is compared with."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a job depends on, as of now."""

    code: Values
    """Digests of the parts of the package that it may run, by ``module:name``, and of data files by path."""
    field: Values
    """JSON values of the settings that the job depends on, by dotted name."""
    input: Values
    """Digests of the files that it reads, by path in the study's folder, else in the repository."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a job depended on when it last ended, and what it has written."""

    stage: str
    name: str
    code: Values
    field: Values
    input: Values
    """``code``, ``field`` and ``input`` are as in ``Dependencies``."""
    output: Values
    """Digests of the files that it has written, by path in the study's folder."""
    cost: Mapping[str, float]
    """``seconds``, ``processor_seconds``, ``peak_memory_mb``, and ``energy_joules`` where GPUs report it."""
    environment: Values
    """Commit, machine and versions of libraries. For the reader; a job does not run again for them."""
    accepted: Sequence[Mapping[str, Any]] = ()
    """Changes of code or settings that were proven to change no result of its kind, the last one last."""

    def matches(self, now: Dependencies) -> bool:
        """Return whether the job depended on exactly these."""
        return (self.code, self.field, self.input) == (now.code, now.field, now.input)


def changed_names(before: Values, now: Values) -> list[str]:
    """Return the names of values that were added, removed or changed, sorted."""
    names = before.keys() | now.keys()
    return sorted(name for name in names if before.get(name) != now.get(name))


def read_record(paths: Paths, job: JobId) -> Record | None:
    """Return the job's record; None if it never ended in this folder.

    Raises:
        InputError: if the record cannot be read.
    """
    file = paths.record(job.stage, job.name)
    try:
        return _parse(file.read_text(encoding="utf-8"), job.stage, job.name)
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


# A plan asks for a record several times, and parsing one of fifty kilobytes takes a millisecond.
@functools.lru_cache(maxsize=2048)
def _parse(text: str, stage: str, name: str) -> Record:
    values = json.loads(text)
    if "\\u" in text:
        # Text that UTF-8 cannot encode would fail later, when it is shown.
        json.dumps(values, ensure_ascii=False).encode()
    return _check(values, JobId(stage, name))


def _check(values: Any, job: JobId) -> Record:
    """Return the record with these values; any of several exceptions where they are not those of one."""
    if (values["stage"], values["name"]) != (job.stage, job.name):
        raise ValueError(f"it is of '{values['stage']} {values['name']}'")
    if values.get("format") != FORMAT:
        raise ValueError("it is of an older version")

    # The types of all values at once: a record has thousands.
    for name in ("code", "field", "input", "output", STORED_NAMES["environment"]):
        types = {*map(type, values[name]), *map(type, values[name].values())}
        if types - {str}:
            raise TypeError(f"{name}: expected texts by name")
    if not all(isinstance(number, int | float) for number in values[STORED_NAMES["cost"]].values()):
        raise TypeError("took: expected numbers by name")
    if not all(_is_note(note) for note in values["accepted"]):
        raise TypeError("accepted: expected notes")

    names = [field.name for field in dataclasses.fields(Record)]
    record = Record(**{name: values[STORED_NAMES.get(name, name)] for name in names})
    if values[_SEAL] != _seal(record):
        raise ValueError("'took' or 'made' was edited after the job had written it")
    return record


def _is_note(note: Any) -> bool:
    if not isinstance(note, dict):
        return False
    if note.keys() == ACCEPTANCE_FIELDS:
        return True
    if note.keys() != ACCEPTANCE_FIELDS | CONFIGURATION_FIELDS:
        return False
    digests = note["configuration"]
    settings = note["settings"]
    names_settings = isinstance(settings, list) and all(isinstance(name, str) for name in settings)
    return names_settings and isinstance(digests, dict) and digests.keys() == {"from", "to"}


def _seal(record: Record) -> str:
    sealed = json.dumps([record.cost, record.environment], sort_keys=True)
    return hashlib.sha256(sealed.encode()).hexdigest()


def write_record(paths: Paths, record: Record) -> None:
    """Write a job's record, whole or not at all."""
    stored = {STORED_NAMES.get(name, name): value for name, value in dataclasses.asdict(record).items()}
    values = {"format": FORMAT, **stored, _SEAL: _seal(record)}
    write_json(paths.record(record.stage, record.name), values)


def digest_files(paths: Paths, files: Iterable[Path], digests: DigestCache) -> dict[str, str]:
    """Return the digests of files and folders, by the names that records have for them.

    Args:
        paths: of the study. Files outside of its folder, which are the repository's, are compared by their content.
        files: files and folders; what is not there is left out.
        digests: computes them.
    """
    found: dict[str, str] = {}
    for file in files:
        if file.is_relative_to(paths.root):
            name = file.relative_to(paths.root).as_posix()
            for inside, digest in digests.digests_of(file).items():
                found[f"{name}/{inside}" if inside else name] = digest
        elif file.is_file():
            found[file.as_posix()] = semantic_digest(file)
    return found


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
        head = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain")
    except subprocess.CalledProcessError as error:
        if "not a git repository" in error.stderr:
            return "unknown (not a git checkout)"
        # A repository of another user, for example, which git refuses to read.
        first_line = error.stderr.partition("\n")[0]
        return f"unknown (git: {' '.join(first_line.split())})"
    except OSError:
        return "unknown (not a git checkout)"
    return f"{head} with uncommitted changes" if changed else head


def _git(folder: Path, *arguments: str) -> str:
    # Untranslated, since a message of git is looked for.
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
