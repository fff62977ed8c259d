"""Confirmatory studies: frozen before they run, and marked as such only while nothing has changed since.

A study that was designed while looking at its own games confirms nothing. So a confirmatory one is evaluated on panels on
which nothing is chosen, and says at which commit, with which configuration and by which code it was frozen.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import atomic_text
from threespo.settings import decisive
from threespo.study.checks import unconfirmed
from threespo.study.config import Study
from threespo.study.confirmatory import Freeze
from threespo.study.digests import meaning_digest
from threespo.study.load import load_study
from threespo.study.paths import PAPER
from threespo.study.records import commit
from threespo.study.stages import jobs

_SHOWS = ("notebook", "report")
"""Stages that only draw what the tables hold; verdicts and intervals are computed for the tables."""

_ANALYSIS = ("claims.yaml", "results.yaml", "efficiency.csv")
"""Files of the paper's numbers and claims, with the rules and bounds that decide them."""

RESULTS = Path("results")
"""Where studies put their results unless somebody says otherwise."""

_SECTION = re.compile(r"^confirmatory:.*\n(?:[ \t]+.*\n|[ \t]*\n)*", re.MULTILINE)


def freeze(file: Path) -> Freeze:
    """Mark the study in a YAML file as confirmatory, in place of an earlier mark.

    Raises:
        InputError: if it is not evaluated on confirmation panels only, has too few seeds, or the repository has uncommitted
            changes.
    """
    study = load_study(file)
    if reasons := [*unconfirmed(study)]:
        raise InputError(f"{file}: cannot be frozen as a confirmatory study: {reasons[0]}")
    if (RESULTS / study.name / "runs").exists():
        raise InputError(
            f"{file}: {RESULTS / study.name} has runs of this study already; a study is frozen before it runs. Remove them, "
            "or give the study another name"
        )
    now = commit()
    if re.fullmatch("[0-9a-f]{40}", now) is None:
        raise InputError(f"{file}: frozen is a commit, and this one is {now}; commit first")

    mark = Freeze(commit=now, configuration=configuration(study), code=code(study))
    lines = "".join(f'  {name}: "{value}"\n' for name, value in mark.model_dump().items())
    text = _SECTION.sub("", file.read_text(encoding="utf-8"))
    atomic_text(file, f"{text.rstrip()}\nconfirmatory:\n{lines}")
    return mark


def changes(study: Study) -> list[str]:
    """Return what of a marked study has changed since it was frozen, in words; empty if nothing has."""
    mark = study.confirmatory
    assert mark is not None, "asked of marked studies only"
    now = {"configuration": configuration(study), "code": code(study)}
    return [name for name, value in now.items() if value != getattr(mark, name)]


def mark_in_words(study: Study) -> str | None:
    """Return what a reader must know of the mark: that it holds, or what takes it back; ``None`` for unmarked studies."""
    mark = study.confirmatory
    if mark is None:
        return None
    frozen = f"frozen at commit {mark.commit[:12]} with the configuration {mark.configuration}"
    if changed := changes(study):
        return (
            f"Not confirmatory: this study was {frozen}, but its {' and its '.join(changed)} has changed "
            "since. Read it as exploratory, or run it at that commit."
        )
    return (
        f"Confirmatory: {frozen}, on panels on which nothing was chosen. Neither configuration nor code has changed since; "
        "the section on provenance has the commits of its jobs."
    )


def configuration(study: Study) -> str:
    """Return the digest of the fields that results depend on, and of the labels that say what is compared with what."""
    compared = {
        "paper_row": {name: entry.paper_row for name, entry in study.methods.items()},
        "stands_for": {name: policy.stands_for for name, policy in study.policies.items()},
    }
    return _digest([decisive(study), compared])


def code(study: Study) -> str:
    """Return the digest of the code of all jobs up to the tables, and of the rules that decide claims."""
    found = {name: meaning_digest(PAPER / name) for name in _ANALYSIS}
    for job in jobs(study):
        if job.stage not in _SHOWS:
            found |= job.code(study)
    # The policies that come with the repository: those of other sizes do not matter, and a run's record has its own.
    return _digest({name: value for name, value in found.items() if "/shipped/" not in name})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
