"""Whether a confirmatory study's mark is still valid, and what has changed since if it is not."""

import hashlib
import json
from collections.abc import Collection
from typing import Any

from threespo.settings import select_key_fields
from threespo.study.config import Study
from threespo.study.confirmatory import RULE

AcceptedStep = tuple[str, str]
"""Digests of a study's code, or of its configuration, before and after a change that was proven to change no result of any
of its methods."""


def configuration_digest(study: Study) -> str:
    """Return the digest of the fields that results depend on, and of the labels that say what is compared with what."""
    compared = {
        "paper_row": {name: entry.paper_row for name, entry in study.methods.items()},
        "stands_for": {name: policy.stands_for for name, policy in study.policies.items()},
    }
    return json_digest([select_key_fields(study), compared])


def changed_since_mark(study: Study, code: str, steps: Collection[AcceptedStep] = ()) -> list[str]:
    """Return what of a marked study has changed since it was frozen, in words; empty if nothing has.

    Args:
        study: a study with a mark of the present rule.
        code: the digest of its code now.
        steps: accepted changes of its code and configuration.
    """
    mark = study.confirmatory
    assert mark is not None, "asked of marked studies only"
    changed = []
    if configuration_digest(study) not in _reachable(mark.configuration, steps):
        changed.append("configuration")
    if code not in _reachable(mark.code, steps):
        changed.append("code")
    return changed


def describe_mark(study: Study, code: str, steps: Collection[AcceptedStep] = ()) -> str:
    """Return what a reader must know of the mark: that it holds, or what takes it back; empty for unmarked studies.

    The arguments are those of ``changed_since_mark``.
    """
    mark = study.confirmatory
    if mark is None:
        return ""
    frozen = f"frozen at commit {mark.commit[:12]} with the configuration {mark.configuration}"
    if mark.rule != RULE:
        return (
            f"This study was {frozen}, by an earlier rule of what counts as a change, which only the code of that commit "
            f"can check. Results made there are confirmatory (git worktree add ../frozen {mark.commit[:12]}, and run it "
            "there); read those of the present code as exploratory."
        )
    # The mark is void.
    changed = changed_since_mark(study, code, steps)
    if changed:
        return (
            f"Not confirmatory: this study was {frozen}, but its {' and its '.join(changed)} has changed "
            "since. Read it as exploratory, or run it at that commit."
        )
    # The mark is valid, perhaps by changes that were accepted.
    since = "Neither configuration nor code has changed since"
    accepted = []
    if configuration_digest(study) != mark.configuration:
        accepted.append("configuration")
    if code != mark.code:
        accepted.append("code")
    if accepted:
        since = (
            f"Its {' and its '.join(accepted)} has changed since without an effect: a job of every kind, with every method "
            "among them, was run again and wrote the same bytes (threespo accept)"
        )
    return (
        f"Confirmatory: {frozen}, on panels on which nothing was chosen. {since}; "
        "the section on provenance has the commits of its jobs."
    )


def describe_rates_at_edge(rows: Collection[str]) -> str:
    """Return what a mark says of rows (ENV/POLICY/METHOD) whose learning rate is at an edge; empty without any."""
    if not rows:
        return ""
    return (
        f" Not confirmatory are the rows {', '.join(rows)}: their best learning rate is at the edge of what was tried, so "
        "what is compared with them is left undecided. Give 'tuning' more 'max_extensions', under a new mark."
    )


def _reachable(start: str, steps: Collection[AcceptedStep]) -> set[str]:
    """Return the digests that accepted changes lead to, one after another, from the frozen one."""
    reached = {start}
    # Each pass follows at least one step, so there are enough passes for the longest chain.
    for _ in steps:
        reached |= {after for before, after in steps if before in reached}
    return reached


def json_digest(value: Any) -> str:
    """Return 16 hexadecimal digits for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
