"""The workflow's configuration: config/config.yaml with ``--config`` on top, checked key by key."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.provenance.digests import file_digest
from threespo.study.reading import read_text, read_yaml

CONFIG_FILE = Path("config") / "config.yaml"

_FOLDER = re.compile(r"[\w./+@=,:~-]+")
"""What names of folders may have: blanks and brackets mean something to shells and to Snakemake's patterns."""

_MAPPINGS = ("set", "real")
"""Keys whose values are mappings."""

MAX_SHOWN = 80
"""Characters of a value that messages show."""

REPOSITORY_FOLDERS = frozenset(
    {
        "benchmarks",
        "build",
        "config",
        "dist",
        "docs",
        "examples",
        "notebooks",
        "profiles",
        "tests",
        "threespo",
        "threespo_verifiers",
        "workflow",
    }
)
"""The repository's folders, hidden ones apart, and those that `make` writes."""


class Configuration:
    """The values of the configuration, and where each is written: in the file or behind ``--config``.

    Attributes:
        given: the keys that have a value.
    """

    def __init__(self, config: Mapping[str, Any], file: Path = CONFIG_FILE) -> None:
        """Take a configuration.

        Args:
            config: the values by key, those of ``--config`` on top of those of the file.
            file: the file, from which messages tell whether a value is written there.

        Raises:
            InputError: if the file is there and is not YAML, or has a key twice.
        """
        self._config = config
        self._file = file
        self._written = read_config(file) if file.is_file() else {}
        self.given = {key for key, value in config.items() if value is not None}

    def where(self, key: str) -> str:
        """Return where a key is written, for messages."""
        in_file = key in self._written and self._written[key] == self._config.get(key)
        return f"{self._file}: {key}" if in_file else f"--config {key}"

    def value(self, key: str, default: Any, kind: Any, expected: str) -> Any:
        """Return a value.

        Args:
            key: its key.
            default: taken if the key is not there at all.
            kind: the types that it may have.
            expected: what they are in words.

        Raises:
            InputError: if it is of another type.
        """
        if key not in self._config:
            return default
        value = self._config[key]
        # In Python true is a number.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InputError(f"{self.where(key)}: expected {expected}, found {_shorten(value)}")
        return value

    def mapping(self, key: str, example: str) -> dict[str, Any]:
        """Return a value that is a mapping, or null for an empty one; ``example`` ends the message about any other."""
        return dict(self.value(key, None, dict | None, f"a mapping {example}") or {})


def read_config(file: Path) -> dict[str, Any]:
    """Return the configuration in a file.

    Raises:
        InputError: if it cannot be read, is not UTF-8 or YAML, has a key twice, or is no mapping.
    """
    text = read_text(file, "Restore it from the repository.")
    values = read_yaml(text, str(file))
    if not isinstance(values, dict | None):
        raise InputError(
            f"{file}: expected a mapping of keys (config/README.md), found {_shorten(values)}"
        )

    # Snakemake reads the file too, by YAML 1.1, where ``no`` is false and ``010`` is 8.
    snakemake_values = parse_scalars(yaml.safe_load(text))
    differences = _find_differences(parse_scalars(values), snakemake_values)
    for field, our_value, snakemake_value in differences:
        raise InputError(
            f"{file}: {field}: YAML 1.2 reads {our_value!r}, Snakemake {snakemake_value!r}; write it otherwise, or quote it"
        )
    return values or {}


def _find_differences(ours: Any, theirs: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which two readings of one text differ, with both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for (our_key, our_value), (key, value) in zip(ours.items(), theirs.items(), strict=False):
            yield from _find_differences(our_key, key, f"{field}{our_key}")
            yield from _find_differences(our_value, value, f"{field}{our_key}.")
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (our_value, value) in enumerate(zip(ours, theirs, strict=False)):
            yield from _find_differences(our_value, value, f"{field}{index}.")
    # As text, since ``True == 1``, and not a number differs from itself.
    elif repr(ours) != repr(theirs):
        yield field.strip("."), ours, theirs


def check_config_arguments(given: Sequence[str]) -> None:
    """Check the texts ``KEY=VALUE`` of ``--config``.

    Raises:
        InputError: if a key is given twice, or a mapping is not YAML or has a key twice.
    """
    seen: set[str] = set()
    for text in given:
        key, _, value = text.partition("=")
        if key in seen:
            raise InputError(
                f"--config {key}: given twice; Snakemake would take the last one, so write it once"
            )
        seen.add(key)
        if key in _MAPPINGS:
            read_yaml(value, f"--config {key}")


def read_call(paths: Paths) -> dict[str, Any] | None:
    """Return what the workflow was asked for when it last ran, with ``config``, ``gpus`` and ``file`` in it.

    ``None`` if there is no record of it, since commands were called by hand, or if the file is damaged.
    """
    try:
        call = json.loads(paths.call.read_text(encoding="utf-8"))
        return {**call, "config": dict(call["config"]), "gpus": call["gpus"], "file": str(call["file"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


STUDY_FILE_DIGEST = "study_sha256"
"""In ``call.json``: SHA-256 of the study's file, as the workflow wrote it."""

CONFIGURATION_DIGEST = "configuration"
"""In ``call.json``: digest of the fields that results depend on (``study/marks.py``)."""


def check_study_file(paths: Paths) -> None:
    """Make sure that a study's file is as the workflow has written it; nothing is checked where no call is recorded.

    Raises:
        InputError: if it was damaged or edited.
    """
    call = read_call(paths) or {}
    expected = call.get(STUDY_FILE_DIGEST)
    if expected is not None and expected != file_digest(paths.study):
        raise InputError(
            f"{paths.study}: damaged or edited: it is not what the workflow has written, which writes it anew when it runs "
            "again. A study is changed in config/studies, or with --config set=…"
        )


def results_folder(config: Configuration) -> Path:
    """Return the folder that studies put their results into.

    Raises:
        InputError: if it is no name of a folder that the workflow can use, or a file is in its place.
    """
    text = config.value("results", "results", str, "the path of a folder")
    if not _FOLDER.fullmatch(text):
        raise InputError(
            f"{config.where('results')}: expected the path of a folder without blanks, quotes or brackets, "
            f"found {_shorten(text)}"
        )
    folder = Path(text)
    _refuse_repository_folders(folder, config.where("results"))
    for parent in (folder, *folder.parents):
        try:
            is_file = parent.exists() and not parent.is_dir()
        except OSError as error:
            raise InputError(
                f"{config.where('results')}: not the path of a folder ({error.strerror})"
            ) from error
        if is_file:
            raise InputError(f"{config.where('results')}: {parent} is a file; choose another folder")
    return folder


def _refuse_repository_folders(folder: Path, where: str) -> None:
    """Refuse folders of the repository itself: what is removed with results, or searched for them, must not be code."""
    remedy = "choose a folder for results alone, such as results or /data/results"
    if folder.parts and folder.parts[0].startswith("~"):
        raise InputError(
            f"{where}: {folder}: no shell has put a home in the place of the ~; write the whole path"
        )
    # With all links followed, and names such as a/../b.
    repository = Path.cwd().resolve()
    resolved = folder.resolve()
    if resolved == repository or resolved in repository.parents:
        raise InputError(f"{where}: {folder} holds this repository; {remedy}")
    if not resolved.is_relative_to(repository):
        return
    top_folder = resolved.relative_to(repository).parts[0]
    if top_folder.startswith(".") or top_folder in REPOSITORY_FOLDERS:
        raise InputError(f"{where}: {folder} lies in the repository's own {top_folder}; {remedy}")


def is_folder(path: Path) -> bool:
    """Return whether there is such a folder; a name that no folder can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def parse_scalars(value: Any) -> Any:
    """Return ``value`` with numbers and nulls as such: Snakemake hands nested ``--config`` values on as text."""
    if isinstance(value, dict):
        return {key: parse_scalars(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [parse_scalars(inner) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        parsed = read_yaml(value, "--config")
    except InputError:
        return value
    # Only scalars: a text may look like a mapping. An empty text is no null.
    is_scalar = isinstance(parsed, int | float | bool | None)
    return parsed if is_scalar and value.strip() else value


def _shorten(value: Any) -> str:
    """Return how messages show a value."""
    text = repr(value)
    if len(text) <= MAX_SHOWN:
        return text
    return text[: MAX_SHOWN - 1] + "…"
