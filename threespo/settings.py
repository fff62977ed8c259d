"""What all typed settings are made of: study files, environments and methods share this base."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Names become folder names, so they are lower-case words joined by ``-`` or ``_``."""


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError("expected at least one seed, each 0 or more and named once")
    return seeds


Seeds = Annotated[tuple[int, ...], AfterValidator(_distinct)]


class Label:
    """Marks a field that only tables and the report show."""


class Execution:
    """Marks a field that says where and how work is done, and that no result depends on: paths, speed, limits of cost."""


SettingsT = TypeVar("SettingsT", bound="Settings")


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def part_of(cls: type[SettingsT], whole: "Settings") -> SettingsT:
        """Return those fields of ``whole`` that this class has; ``whole`` must have all that are required."""
        return cls.model_validate({name: getattr(whole, name) for name in cls.model_fields})


def decisive(value: Any, without: tuple[type, ...] = (Label, Execution)) -> Any:
    """Return settings as JSON values, without the fields that carry one of the markers ``without``, at any depth.

    This is what decides whether a job runs again: it receives the marked fields like all others, but its results do not
    depend on them.
    """
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        counted = [name for name, field in fields if not any(marker in field.metadata for marker in without)]
        return {name: decisive(getattr(value, name), without) for name in counted}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(name): decisive(inner, without) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [decisive(inner, without) for inner in value]
    return str(value) if isinstance(value, Path) else value
