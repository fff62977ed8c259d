"""What the replays of WebShop references share: a catalogue from a folder of JSON files, and goals from rows."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from threespo.envs.webshop import Catalogue, ShopGoal, compile_catalogue
from threespo.envs.webshop.pages import SEARCH_ACTION
from threespo.envs.webshop.sources import read_products
from threespo.errors import InputError


@contextlib.contextmanager
def open_catalogue(folder: Path | None) -> Iterator[Catalogue]:
    """Yield the catalogue of a folder of the original's JSON files, compiled for the time of the replay.

    Raises:
        InputError: if the folder is not given or no catalogue.
    """
    if folder is None:
        raise InputError("the reference shop needs its catalogue: give the folder with --catalogue DIR")
    # Compiled for this replay and not kept: equal results must not depend on an older compilation.
    with tempfile.TemporaryDirectory(prefix="threespo-catalogue-") as temporary:
        compiled = Path(temporary) / "catalogue"
        compile_catalogue(read_products(folder), compiled)
        yield Catalogue(compiled)


def product_number(catalogue: Catalogue, asin: str) -> int:
    """Return the number of a product that a reference names.

    Raises:
        InputError: if the catalogue lacks it.
    """
    number = catalogue.number_of(asin)
    if number is None:
        raise InputError(f"the catalogue has no product {asin}, which the reference file refers to")
    return number


def reference_goal(row: dict[str, Any]) -> ShopGoal:
    """Return the goal of a reference row."""
    options = row["goal_options"]
    return ShopGoal(
        f"{row['asin']}/reference",
        row["asin"],
        row["category"],
        row["query"],
        row["name"],
        row["product_category"],
        row["instruction_text"],
        tuple(row["attributes"]),
        float(row["price_upper"]),
        tuple(options.items()) if isinstance(options, dict) else tuple(options),
    )


def listed_actions(available: dict[str, Any]) -> list[str]:
    """Return the admissible actions that verl-agent lists for what its environment calls available."""
    search = [SEARCH_ACTION] if available["has_search_bar"] else []
    return search + [f"click[{name}]" for name in available["clickables"]]
