"""Which rows the paper's tables have: what ``paper_row`` and ``stands_for`` of a study can name."""

import functools
from pathlib import Path
from typing import NamedTuple

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.study.reading import read_text, read_yaml


class PaperRows(NamedTuple):
    """The ids in the paper's table, in its order."""

    file: str
    methods: tuple[str, ...]
    base_models: tuple[str, ...]


def paper_rows(folder: Path = PAPER_FOLDER) -> PaperRows | None:
    """Return the ids that a study can name; ``None`` where the paper's numbers are not.

    They are part of the repository and not of the package: who uses the package alone makes no table that has them.

    Raises:
        InputError: if the file is there and is not the paper's table.
    """
    file = folder / "results.yaml"
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return None
    return _read(file, str(file.absolute()), changed)


@functools.lru_cache(maxsize=8)
def _read(file: Path, _place: str, _changed: int) -> PaperRows:
    """Read the table once for each state of the file; every study names some of its rows."""
    remedy = "Restore it from the repository."
    values = read_yaml(read_text(file, remedy), str(file))
    try:
        rows = [(str(row["method"]), str(row["base_model"])) for row in values["rows"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{file}: not the paper's table ({error!r}). {remedy}") from error
    methods, models = zip(*rows, strict=True)
    return PaperRows(str(file), tuple(dict.fromkeys(methods)), tuple(dict.fromkeys(models)))
