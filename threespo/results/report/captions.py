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
    sentences = [item.caption]
    if item.mean_of is not None:
        sentences.append(_explain_means(study, item.mean_of))
    if item.task_types:
        sentences += [presentation(env).task_types for env in study.environments]
    return item.title, " ".join(sentences)


def _explain_means(study: "Study", mean_of: str) -> str:
    """Return the sentence on how many runs and tasks the numbers are means of."""
    if mean_of == "trees":
        assert study.laboratory is not None, "or the study has no such item"
        return f"n = {study.laboratory.seeds} seeds a row."

    if mean_of == "audits":
        audit = study.credit_audit
        assert audit is not None, "or the study has no such item"
        return f"Seeds of a row: {audit.seeds}; tasks: {audit.tasks}; episodes for each Q and V: {audit.continuations}."

    count = len(study.seeds)
    # Probes cost many generations, so a study may probe fewer seeds than it trains.
    if mean_of == "probes" and study.probe:
        count = study.probe.seeds
    plural = "s" if count > 1 else ""
    seeds = f"n = {count} training seed{plural}"
    if mean_of == "probes":
        return f"{seeds} a row, pooled."
    if mean_of == "seeds":
        return f"{seeds} a row."

    games = []
    # Snapshots may play fewer tasks than the final evaluation does.
    for env in dict.fromkeys(run.env for run in learning_runs(study)):
        number = study.at(env).evaluation.learning.games or f"at most {DEFAULT_CURVE_GAMES}"
        games.append(f"{label(env)}: {number}")
    return f"{seeds} a curve; tasks a point: {', '.join(games)}."
