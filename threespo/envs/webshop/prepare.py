"""The shop of a study, from any source: its compiled catalogue, and the goals of every split."""

import sys
from pathlib import Path

from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.envs.webshop.official import fetch
from threespo.envs.webshop.settings import DOWNLOADS, WebshopTasks

# Fixed, so that studies with catalogues of one size share the shop and the policies that were cloned on it.
_EMBEDDED_SEED = 7


def prepare(settings: WebshopTasks, out: Path) -> None:
    """Write catalogue, goals and ``manifest.json`` (counts and checksums) into ``out``.

    Raises:
        InputError: if the source's files are missing or broken, or cannot be fetched, or have fewer goals than asked for.
    """
    folder = settings.path
    if settings.source == "official":
        folder = fetch(settings.path or DOWNLOADS, settings.mirror, settings.mirror_revision)
    manifest = prepare_shop(
        out,
        read_shop_products(settings.source, path=folder, count=settings.products, seed=_EMBEDDED_SEED),
        goals=settings.goal_kind,
        original_order=settings.goals_order == "original",
        limits={
            split: count for split, count in settings.goals.model_dump().items() if count is not None
        },
    )
    print(
        f"data: {manifest['products']} products, {manifest['goals']} goals ({settings.source})",
        file=sys.stderr,
    )
    if "original_order" in manifest:
        test_goals = manifest["goals"]["test"]
        shared = manifest["original_order"]["also_training_goals"]["test"]
        print(
            f"data: goals_order is original: {shared} of {test_goals} test goals are training goals as well",
            file=sys.stderr,
        )


def contents(folder: Path, split: str) -> dict[str, str]:
    """Return id -> content of the goals of a split (``ShopGoal.content``)."""
    return {goal.task_id: goal.content for goal in load_goals(folder, split)}
