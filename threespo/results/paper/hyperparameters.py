"""The paper's table of hyperparameters, and what a study has in the place of each."""

import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import Field, ValidationError

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.results.paper.reader_table import MISSING, Column, PaperTable, Row, text_cell
from threespo.settings import ListOf, Settings
from threespo.study.load import dump_study
from threespo.study.reading import read_text, read_yaml

if TYPE_CHECKING:
    from threespo.study.config import Study

HYPERPARAMETERS = PAPER_FOLDER / "hyperparameters.yaml"

COLUMNS = ("name", "silent", "printed", "here", "fields", "reason")
"""``silent``: the paper does not print it; ``here``: what the study has, "" where it has no such field."""


class Hyperparameter(Settings):
    """A hyperparameter: where a study has it, or why it has not."""

    name: str
    printed: int | float | str | None = None
    """As the paper's table has it."""
    fields: ListOf[str] = ()
    """Full names in the study, ``*`` for any name of an entry."""
    equals: bool | int | float | str | None = None
    """The value of the fields in the study ``paper``, where it is not written as the printed one."""
    reason: str | None = None
    """Why no field has it, or where a value comes from that the paper does not print."""


class Hyperparameters(Settings):
    """The rows of the paper's table, and what the paper does not print."""

    printed: ListOf[Hyperparameter] = Field(min_length=1)
    silent: ListOf[Hyperparameter] = ()


def read_hyperparameters(file: Path = HYPERPARAMETERS) -> Hyperparameters:
    """Return the rows.

    Raises:
        InputError: naming the file and what is wrong in it.
    """
    values = read_yaml(read_text(file, "Restore it from the repository."), str(file))
    try:
        return Hyperparameters.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise InputError(
            f"{file}, {where}: {first['msg']}; its first lines explain the fields"
        ) from error


def compare_hyperparameters(study: "Study", hyperparameters: Hyperparameters) -> pd.DataFrame:
    """Return the table ``hyperparameters``: a row for each of the paper's and then for each that it leaves open."""
    # With all options of every method, also those that keep their defaults.
    values = json.loads(dump_study(study, options=True))
    records = []
    for silent, rows in ((False, hyperparameters.printed), (True, hyperparameters.silent)):
        for row in rows:
            records.append(
                {
                    "name": row.name,
                    "silent": silent,
                    "printed": "" if silent else format_value(row.printed),
                    "here": _value_in_study(row, values),
                    "fields": ", ".join(row.fields),
                    "reason": row.reason or "",
                }
            )
    return pd.DataFrame(records, columns=list(COLUMNS))


def hyperparameter_table(table: pd.DataFrame) -> PaperTable:
    """Return the table ``hyperparameters`` for readers."""
    columns = (
        Column("setting"),
        Column("paper", source="paper"),
        Column("this study", source="ours", kind="long"),
        Column("field, or why there is none", kind="long"),
    )
    rows = []
    for row in table.to_dict("records"):
        explanation = ": ".join(part for part in (row["fields"], row["reason"]) if part)
        cells = (
            text_cell(row["name"]),
            text_cell(row["printed"], row["printed"] or MISSING),
            text_cell(row["here"], row["here"] or MISSING),
            text_cell(explanation),
        )
        rows.append(Row(cells, "not printed by the paper" if row["silent"] else "printed"))
    note = "Several values: of the entries in brackets. A dash: not printed, or no entry of this study has the field."
    return PaperTable(columns, tuple(rows), (note,), "of the paper")


def match_fields(values: Any, pattern: list[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full names and values of all fields that a name with wildcards matches.

    Args:
        values: the study, or a part of it.
        pattern: the name's parts, which dots separate.
        prefix: the part's own name.
    """
    if not pattern:
        yield prefix, values
    elif isinstance(values, dict):
        for key in fnmatch.filter(values, pattern[0]):
            name = f"{prefix}.{key}" if prefix else key
            yield from match_fields(values[key], pattern[1:], name)


def format_value(value: Any) -> str:
    """Return a value as tables have it."""
    # First, since a bool is an int in Python.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # 1e-6, as the paper has it, and not 1e-06.
        return f"{value:g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _value_in_study(row: Hyperparameter, values: dict[str, Any]) -> str:
    """Return a study's value of a row; where entries differ, each value with the entries that have it."""
    entries_by_value: dict[str, list[str]] = {}
    for field in row.fields:
        # Sections of environments have a setting as well, and are named themselves.
        in_entries = field.startswith(("methods.", "policies."))
        for name, value in _fields_in_study(values, field):
            parts = name.split(".")
            entry = parts[1] if in_entries else parts[0]
            entries_by_value.setdefault(_format_setting(field, value), []).append(entry)

    # Where all entries have the same value, their names are no information.
    if len(entries_by_value) == 1:
        return next(iter(entries_by_value))

    texts = []
    for value, entries in entries_by_value.items():
        # An entry with several of the row's fields is named once.
        names = ", ".join(dict.fromkeys(entries))
        texts.append(f"{value} ({names})")
    return "; ".join(texts)


def _format_setting(field: str, value: Any) -> str:
    if value is not None:
        return format_value(value)
    return "chosen by trials" if field.endswith("learning_rate") else "not set"


def _fields_in_study(values: dict[str, Any], field: str) -> list[tuple[str, Any]]:
    """Return the fields that a name means in a study; a policy of the study ``paper`` stands for those of any study."""
    parts = field.split(".")
    fields = list(match_fields(values, parts))
    if fields or parts[0] != "policies":
        return fields

    # An endpoint has none of the settings of a local policy.
    local_policies = {}
    for name, policy in values.get("policies", {}).items():
        if policy.get("kind") != "endpoint":
            local_policies[name] = policy
    any_policy = ["policies", "*", *parts[2:]]
    return list(match_fields({"policies": local_policies}, any_policy))
