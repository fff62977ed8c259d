"""Titles and captions of the report's figures, from the catalogue of items (``config/paper/items.yaml``)."""

from typing import TYPE_CHECKING

from threespo.envs.registry import presentation
from threespo.results.labels import label
from threespo.runs.settings import DEFAULT_CURVE_GAMES
from threespo.study.matrix import learning_runs

if TYPE_CHECKING:
    from threespo.study.catalogue import Item
    from threespo.study.config import Study


def caption(study: "Study", item: "Item") -> tuple[str, str]:
    """Return the title and the caption of an item in a study's report."""
    kinds = [presentation(env).task_types for env in study.environments] if item.task_types else []
    return item.title, " ".join([item.caption, *_counted(study, item), *kinds])


def _counted(study: "Study", item: "Item") -> list[str]:
    """Return the sentence on how many runs and tasks the numbers are means of."""
    if item.mean_of is None:
        return []
    if item.mean_of == "trees":
        assert study.laboratory is not None, "or the study has no such item"
        return [f"n = {study.laboratory.seeds} seeds a row."]
    count = study.probe.seeds if item.mean_of == "probes" and study.probe else len(study.seeds)
    seeds = f"n = {count} training seed{'s' * (count > 1)}"
    if item.mean_of == "probes":
        return [f"{seeds} a row, pooled."]
    if item.mean_of == "seeds":
        return [f"{seeds} a row."]
    environments = dict.fromkeys(run.env for run in learning_runs(study))
    games = {
        env: study.at(env).evaluation.learning.games or f"at most {DEFAULT_CURVE_GAMES}"
        for env in environments
    }
    shown = [f"{label(env)}: {count}" for env, count in games.items()]
    return [f"{seeds} a curve; tasks a point: {', '.join(shown)}."]
