"""Titles and captions of the report's figures, from the catalogue of items (``config/paper/items.yaml``)."""

from typing import TYPE_CHECKING

from threespo.envs.registry import presentation

if TYPE_CHECKING:
    from threespo.study.catalogue import Item
    from threespo.study.config import Study


def caption(study: "Study", item: "Item") -> tuple[str, str]:
    """Return the title and the caption of an item in a study's report."""
    kinds = [presentation(env).task_types for env in study.environments] if item.task_types else []
    return item.title, " ".join([item.caption, *kinds])
