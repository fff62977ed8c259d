"""Named models: what ``policies.X.source: NAME`` and ``threespo model NAME`` mean (``models.yaml``).

A name stands for a repository of the model hub at a pinned commit, or for a package of the Python package index that carries
the model (:mod:`threespo.policy.packaged_model`). Either way a study gets a Hugging Face folder. The catalogue lies in a
folder of its own, so that a new entry is in the keys of those jobs only that look a name up.
"""

import functools
from pathlib import Path
from typing import Annotated, NamedTuple

import yaml
from pydantic import Field, TypeAdapter

from threespo.policy.packaged_model import ModelPackage
from threespo.settings import HUB_REPOSITORY_PATTERN, Settings

CATALOGUE = Path(__file__).with_name("models.yaml")

Size = Annotated[int, Field(ge=1)]


class NamedShape(Settings):
    """The shape of a model, as ``threespo.scaling.shapes.ModelShape`` has it."""

    layers: Size
    hidden: Size
    heads: Size
    kv_heads: Size
    mlp: Size
    vocabulary: Size
    head_dim: Size
    tied: bool
    biased: bool = True


class NamedModel(Settings):
    """An entry of the catalogue."""

    hub: Annotated[str, Field(pattern=HUB_REPOSITORY_PATTERN)]
    revision: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None
    """The commit; ``None``: the default branch, whose commit the policy's description has."""
    licence: str
    parameters: Size
    weights_bytes: Size
    shape: NamedShape
    package: ModelPackage | None = None


class ModelSource(NamedTuple):
    """Where a policy's weights are from."""

    source: str
    """A folder, a hub name, or the name of a model that comes in a package."""
    revision: str | None
    package: ModelPackage | None = None


@functools.cache
def read_named_models() -> dict[str, NamedModel]:
    """Return the catalogue, by name."""
    entries = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, NamedModel]).validate_python(entries)


def resolve_source(source: str, revision: str | None = None) -> ModelSource:
    """Return what a policy's ``source`` means; a name of the catalogue precedes a folder with that name.

    Args:
        source: a name of the catalogue, a folder, or a hub name.
        revision: what a study gives beside a hub name; a name of the catalogue has its own.
    """
    named = read_named_models().get(source)
    if named is None:
        return ModelSource(source, revision)
    if named.package is not None:
        return ModelSource(source, None, named.package)
    return ModelSource(named.hub, named.revision)
