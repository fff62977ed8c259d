"""Which replay checks a reference file, and the error for a file that is none."""

import importlib
from pathlib import Path

from threespo.errors import InputError, refuse_ignored
from threespo.verify import Report

KINDS = (
    "alfworld",
    "webshop",
    "search",
    "reward",
    "prompts",
    "projection",
    "losses",
    "scoring",
    "advantages",
    "gae",
)
"""Kinds of reference files; each is a module of ``threespo.verify`` with a function ``verify``."""

LUCENE = "lucene"
"""The kind of ``threespo verify`` that has no reference file: Lucene itself answers each query."""

DEFAULT_QUERIES = 200

_OPTIONS_BY_KIND = {
    "alfworld": ("games",),
    "webshop": ("catalogue",),
    "search": ("catalogue",),
    "reward": ("catalogue",),
    "advantages": ("only",),
    LUCENE: ("catalogue", "queries", "index"),
}
"""The options that a kind reads."""


def replay(
    kind: str,
    file: Path | None,
    games: Path | None,
    catalogue: Path | None,
    only: str | None,
    queries: int | None,
    index: Path | None,
) -> Report:
    """Replay a reference file, or compare the two search engines.

    Args:
        kind: one of ``KINDS``, or ``LUCENE``.
        file: the reference file; none for ``LUCENE``.
        games: folder of games, for kinds that play.
        catalogue: folder of a catalogue's JSON files, for kinds that shop.
        only: the one estimator to check.
        queries: searches that ``LUCENE`` compares; by default ``DEFAULT_QUERIES``.
        index: folder of its index; made if it is not there.

    Raises:
        InputError: if the file is no reference file of this kind.
    """
    options = {"games": games, "catalogue": catalogue, "only": only, "queries": queries, "index": index}
    read = _OPTIONS_BY_KIND.get(kind, ())
    ignored = {name: value for name, value in options.items() if name not in read}
    refuse_ignored(f"verify {kind}", **ignored)
    if kind == LUCENE:
        from threespo.verify import lucene

        if file is not None:
            raise InputError(
                f"verify {LUCENE}: takes no reference file, found {file}; give --catalogue DIR alone"
            )
        return lucene.verify(catalogue, DEFAULT_QUERIES if queries is None else queries, index)
    if file is None:
        raise InputError(f"verify {kind}: needs a reference file; name it after the kind")

    # Only the kind that is asked for: some load torch, others the games.
    module = importlib.import_module(f"threespo.verify.{kind}")
    try:
        report: Report = module.verify(file, games, catalogue, only)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        # The values of a reference file are not checked one by one: whatever they lead to, the file is to blame.
        raise InputError(
            f"{file}: not a reference file of kind {kind!r} ({type(error).__name__}: {error})"
        ) from error
    return report
