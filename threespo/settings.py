"""Base class and field types of all settings: of study files, environments and methods."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

ValueT = TypeVar("ValueT")
SettingsT = TypeVar("SettingsT", bound="Settings")

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
"""A short lower-case word, which becomes the name of a folder or file."""

RowLabel = Annotated[str, Field(pattern=r"^[^$\r\n]+$", max_length=60)]
"""What readers see of a row: one line, without dollar signs, which figures take for formulas."""

RowColour = Annotated[str, Field(pattern=r"^#[0-9a-f]{6}$")]
"""Red, green and blue as six lower-case hexadecimal digits."""

HUB_REPOSITORY_PATTERN = r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$"
"""OWNER/NAME on the model hub."""

HUB_REVISION_PATTERN = r"^[A-Za-z0-9][\w./-]{0,99}$"
"""A commit, tag or branch of a repository on the model hub."""

MAX_SEEDS = 100
"""Each seed is a run of every method."""

MAX_TOKENS = 10_000_000
"""Of a prompt, a response or a forward pass; the longest contexts are of a million, so a larger number is a typo."""

MAX_TEMPERATURE = 10.0
"""Temperature at which every policy draws tokens almost evenly."""

MAX_SEED = 2**32 - 1
"""The largest seed that every library accepts."""


def _distinct(values: tuple[ValueT, ...]) -> tuple[ValueT, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"expected each once, found {value!r} again")
    return values


ListOf = Annotated[tuple[ValueT, ...], Field(strict=False)]
"""A list in a file, a tuple in Python."""

DistinctListOf = Annotated[ListOf[ValueT], AfterValidator(_distinct)]
"""A list of distinct values."""

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]

Seeds = Annotated[DistinctListOf[Seed], Field(min_length=1, max_length=MAX_SEEDS)]


MAX_LEARNING_RATE = 10.0

LearningRate = Annotated[float, Field(gt=0, le=MAX_LEARNING_RATE)]
"""Adam changes every weight by about this much in a step; weights are far smaller than the bound."""


class Label:
    """Marks a field that is only shown, in tables and the report."""


class Execution:
    """Marks a field that no result depends on: paths, speed, cost limits."""


class Later:
    """Marks a field added later, whose default is the earlier behaviour: it is in a key only where it has another value.

    So earlier results and marks of frozen studies stay valid. Such a default must never change.
    """


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields, no value of another type, and finite numbers only."""

    # Strict, since ``true`` would be the number 1, and 8.0 a whole one.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def part_of(cls: type[SettingsT], whole: "Settings") -> SettingsT:
        """Return those fields of ``whole`` that this class has; ``whole`` must have all that are required."""
        return cls.model_validate({name: getattr(whole, name) for name in cls.model_fields})


def select_key_fields(value: Any, without: tuple[type, ...] = (Label, Execution)) -> Any:
    """Return settings as JSON values, without the fields that carry one of the markers ``without``, at any depth.

    A job runs again if these values change. It also receives the other fields, but its results do not depend on them.
    """
    if isinstance(value, BaseModel):
        selected = {}
        for name, field in type(value).model_fields.items():
            is_unset = Later in field.metadata and getattr(value, name) == field.default
            if not is_unset and not any(marker in field.metadata for marker in without):
                selected[name] = select_key_fields(getattr(value, name), without)
        return selected
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(name): select_key_fields(inner, without) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [select_key_fields(inner, without) for inner in value]
    return str(value) if isinstance(value, Path) else value
