"""A study's shop on disk: the compiled catalogue, the goals of each split, and a manifest.

``catalogue/`` is the compiled catalogue, ``SPLIT.jsonl.xz`` has a goal a line, ``manifest.json`` counts and checksums.
"""

import hashlib
import json
import lzma
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from threespo.envs.optional_splits import find_overlaps
from threespo.envs.webshop.catalogue import Catalogue, compile_catalogue
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.goals import ShopGoal, goal_from_row
from threespo.envs.webshop.products import Product
from threespo.envs.webshop.sources import read_products
from threespo.envs.webshop.splits import (
    TRAINING_WORKER,
    TRAINING_WORKERS,
    VALIDATION_WORKER,
    count_training_overlap,
    optional_split_goals,
    original_splits,
    split_goals,
    trained_on_by_any,
)
from threespo.errors import InputError
from threespo.files import open_text, replace_file, replace_folder, write_json

Source = Literal["embedded", "path", "official"]
GoalKind = Literal["synthetic", "human"]


def read_shop_products(
    source: Source, *, path: Path | None = None, count: int = 1000, seed: int = 7
) -> Iterable[Product]:
    """Return the products of a source.

    Args:
        source: ``embedded``, or another one for JSON files.
        path: folder of the JSON files.
        count: size of the embedded catalogue.
        seed: of the embedded catalogue.

    Raises:
        InputError: if there is no folder, or no products in it.
    """
    if source == "embedded":
        return generate(count, seed)
    if path is None:
        raise InputError(
            f"webshop: source {source!r} needs the field 'path', the folder of the catalogue's files"
        )
    return read_products(path)


def prepare_shop(
    out: Path,
    products: Iterable[Product],
    *,
    goals: GoalKind = "synthetic",
    seed: int = 0,
    original_order: bool = False,
    limits: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Compile the catalogue, choose the goals of every split, write all into ``out`` and return the manifest.

    Args:
        out: the folder; written whole or not at all.
        products: what is for sale.
        goals: synthetic ones or those of people.
        seed: draws price bounds; without use for ``original_order``.
        original_order: the reference's own orders and bounds instead of the one fixed order; the manifest then counts the
            test and calibration goals that are training goals as well.
        limits: at most so many goals of a split, the first in order.

    Raises:
        InputError: if the products carry no goals of this kind, or too few to split.
    """
    with replace_folder(out) as folder:
        facts = compile_catalogue(products, folder / "catalogue")
        catalogue = Catalogue(folder / "catalogue")
        human = goals == "human"
        found = (
            original_splits(catalogue, human) if original_order else split_goals(catalogue, human, seed)
        )
        if not all(found):
            raise InputError(
                f"webshop: {sum(map(len, found))} {goals} goals in this catalogue, too few for training, calibration and "
                "test; give a larger catalogue, or goals of the other kind"
            )

        limits = limits or {}
        # Optional splits are cut from the fixed order alone, and only where the study asks for them.
        optional: dict[str, tuple[ShopGoal, ...]] = {}
        if not original_order:
            for name, second_half in optional_split_goals(found).items():
                if name in limits:
                    optional[name] = second_half
        chosen = _chosen({**found._asdict(), **optional}, limits)
        _check_optional_splits(chosen)
        _write(chosen, folder)
        manifest = {
            "products": facts["products"],
            "goals": {name: len(goals) for name, goals in chosen.items()},
            "goal_kind": goals,
            "catalogue_sha256": facts["sha256"],
            "sha256": {
                file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                for file in sorted(folder.glob("*.xz"))
            },
        }
        if original_order:
            # The reference's training range and its test range together are all goals.
            total = len(found.train) + len(found.test)
            taken = found._replace(**{name: tuple(goals) for name, goals in chosen.items()})
            manifest["original_order"] = {
                "workers": {
                    "train": TRAINING_WORKER,
                    "calibration": VALIDATION_WORKER,
                    "test": VALIDATION_WORKER,
                },
                "also_training_goals": count_training_overlap(taken),
                "whole_test_split": {
                    "goals": len(found.test),
                    "also_training_goals": count_training_overlap(found)["test"],
                    f"also_training_goals_of_any_of_{TRAINING_WORKERS}_workers": trained_on_by_any(
                        total
                    ),
                },
            }
        write_json(folder / "manifest.json", manifest)
    return manifest


def _chosen(
    splits: Mapping[str, Sequence[ShopGoal]], limits: dict[str, int]
) -> dict[str, Sequence[ShopGoal]]:
    """Return the first goals of each split, as many as ``limits`` says, all where it says nothing."""
    for name, goals in splits.items():
        if limits.get(name, 0) > len(goals):
            raise InputError(
                f"webshop: field 'goals.{name}' is {limits[name]}, but this catalogue has {len(goals)}; lower it, or leave "
                "it out for all"
            )
    return {name: goals[: limits.get(name, len(goals))] for name, goals in splits.items()}


def _check_optional_splits(chosen: Mapping[str, Sequence[ShopGoal]]) -> None:
    """Raise ``InputError`` if an optional split has a goal of another split, by what is asked for and of which product."""
    asked = {split: {(goal.goal, goal.name) for goal in goals} for split, goals in chosen.items()}
    for split, other, shared in find_overlaps(asked):
        raise InputError(
            f"webshop: {len(shared)} of {len(asked[other])} goals in {other!r} are in {split!r} too, which must "
            f"have goals of its own; lower 'goals.{other}'"
        )


def _write(splits: Mapping[str, Sequence[ShopGoal]], folder: Path) -> None:
    for name, goals in splits.items():
        rows = "".join(json.dumps(goal.as_row(), ensure_ascii=False) + "\n" for goal in goals)
        # Real texts may hold halves of surrogate pairs, which strict UTF-8 refuses.
        with replace_file(folder / f"{name}.jsonl.xz") as temporary:
            temporary.write_bytes(lzma.compress(rows.encode("utf-8", "surrogatepass")))


def load_goals(folder: Path, split: str, catalogue: Catalogue | None = None) -> list[ShopGoal]:
    """Return the goals of a split that :func:`prepare_shop` wrote.

    Args:
        folder: the data folder.
        split: one of ``SPLITS`` that was prepared.
        catalogue: where it is given, the goals' products are looked up in it.

    Raises:
        InputError: if the file is missing or broken, or a goal's product is not in the catalogue.
    """
    path = folder / f"{split}.jsonl.xz"
    try:
        with open_text(path, "surrogatepass") as lines:
            rows = [json.loads(line) for line in lines]
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); prepare the data again") from error
    return [
        goal_from_row(row, f"{path}, line {number}", catalogue)
        for number, row in enumerate(rows, start=1)
    ]
