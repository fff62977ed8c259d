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
    """Why no field has it, or where an unprinted value is from."""


class Hyperparameters(Settings):
    """The rows of the paper's table, and what the paper does not print."""

    printed: ListOf[Hyperparameter] = Field(min_length=1)
    silent: ListOf[Hyperparameter] = ()


def read_hyperparameters(file: Path = HYPERPARAMETERS) -> Hyperparameters:
    """Return the rows.

    Raises:
        InputError: naming the file and what is wrong in it.
    """
    try:
        return Hyperparameters.model_validate(
            read_yaml(read_text(file, "Restore it from the repository."), str(file))
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise InputError(
            f"{file}, {where}: {first['msg']}; its first lines explain the fields"
        ) from error


def compare_hyperparameters(study: "Study", rows: Hyperparameters) -> pd.DataFrame:
    """Return the table ``compare_hyperparameters``: a row for each of the paper's and then for each that it leaves open."""
    values = json.loads(dump_study(study, options=True))
    return pd.DataFrame(
        [
            {
                **{
                    "name": row.name,
                    "silent": silent,
                    "printed": "" if silent else format_value(row.printed),
                },
                **{
                    "here": _here(row, values),
                    "fields": ", ".join(row.fields),
                    "reason": row.reason or "",
                },
            }
            for silent, group in ((False, rows.printed), (True, rows.silent))
            for row in group
        ],
        columns=list(COLUMNS),
    )


def hyperparameter_table(table: pd.DataFrame) -> PaperTable:
    """Return the table ``compare_hyperparameters`` for readers."""
    columns = (
        *(
            Column("setting"),
            Column("paper", source="paper"),
            Column("this study", source="ours", kind="long"),
        ),
        Column("field, or why there is none", kind="long"),
    )
    rows = []
    for row in table.to_dict("records"):
        explained = ": ".join(filter(None, (row["fields"], row["reason"])))
        values = [text_cell(row[name], row[name] or MISSING) for name in ("printed", "here")]
        section = "not printed by the paper" if row["silent"] else "printed"
        rows.append(Row((text_cell(row["name"]), *values, text_cell(explained)), section))
    note = "Several values: of the entries in brackets. A dash: not printed, or no entry of this study has the field."
    return PaperTable(columns, tuple(rows), (note,), "of the paper")


def match_fields(values: Any, parts: list[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full names and values of all fields that a name with wildcards means."""
    if not parts:
        yield place, values
    elif isinstance(values, dict):
        for key in fnmatch.filter(values, parts[0]):
            yield from match_fields(values[key], parts[1:], f"{place}.{key}".lstrip("."))


def format_value(value: Any) -> str:
    """Return a value as tables have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _here(row: Hyperparameter, values: dict[str, Any]) -> str:
    """Return a study's value of a row; where entries differ, each value with the entries that have it."""
    entries: dict[str, list[str]] = {}
    for name in row.fields:
        for place, value in _fields(values, name):
            entry = (
                place.split(".")[1]
                if name.startswith(("methods.", "policies."))
                else place.split(".")[0]
            )
            entries.setdefault(_value(name, value), []).append(entry)
    if len(entries) == 1:
        return next(iter(entries))
    return "; ".join(f"{value} ({', '.join(dict.fromkeys(names))})" for value, names in entries.items())


def _value(name: str, value: Any) -> str:
    if value is None:
        return "chosen by trials" if name.endswith("learning_rate") else "not set"
    return format_value(value)


def _fields(values: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    """Return what a name means in a study; a policy of the study ``paper`` stands for those of any study."""
    parts = name.split(".")
    if here := list(match_fields(values, parts)):
        return here
    local = {
        policy: one
        for policy, one in values.get("policies", {}).items()
        if one.get("kind") != "endpoint"
    }
    return (
        list(match_fields({"policies": local}, [parts[0], "*", *parts[2:]]))
        if parts[0] == "policies"
        else []
    )
