"""What all parts of a study file are made of."""

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Names become folder names, so they are lower-case words joined by ``-`` or ``_``."""


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError("expected at least one seed, each 0 or more and named once")
    return seeds


Seeds = Annotated[tuple[int, ...], AfterValidator(_distinct)]


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NamesMethod(Protocol):
    """An entry of a study that names a method of the registry."""

    @property
    def method(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...


def check_methods(where: str, entries: Mapping[str, NamesMethod]) -> None:
    """Raise ``ValueError`` if an entry names no method, or gives options that the method does not have."""
    from threespo.methods.registry import check_options

    for name, entry in entries.items():
        try:
            check_options(entry.method, entry.options)
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {error}") from error
