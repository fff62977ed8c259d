"""What a claim is judged by, where, and with which result."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from threespo.methods.registry import searches
from threespo.results.paper import PaperNumbers
from threespo.study.matrix import local_policies, prompted_runs

if TYPE_CHECKING:
    from threespo.study.config import Study

Verdict = Literal["holds", "fails", "unclear", "not here", "open"]
"""``unclear``: the interval admits both, rows are missing, or there is too little to see it; ``not here``: the study lacks
what is compared; ``open``: no study here decides it."""

SAME_ROW = {"3spo_alpha_50": "3spo"}
"""A row of a sensitivity table that is the full method."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in one place."""

    verdict: Verdict
    measured: float = math.nan
    low: float = math.nan
    high: float = math.nan
    detail: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A study's results, and the numbers of the paper."""

    study: "Study"
    episodes: pd.DataFrame
    metrics: pd.DataFrame
    task_types: pd.DataFrame
    paper: PaperNumbers


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows are looked up: an environment, a policy, and the preset that stands for 3SPO."""

    env: str
    policy: str
    preset: str | None

    def method(self, study: "Study", row: str) -> str | None:
        """Return the study's method, or prompting agent, in the place of a row of the paper."""
        entries = study.at(self.env).methods
        for wanted in dict.fromkeys((row, SAME_ROW.get(row, row))):
            for name, entry in entries.items():
                if entry.paper_row == wanted and (not searches(entry.method) or preset_of(entry.options) == self.preset):
                    return name
        # A tiny policy follows no instructions, so there is nothing to learn from prompting it.
        if study.policies[self.policy].kind != "pretrained":
            return None
        prompted = (run.method for run in prompted_runs(study) if (run.env, run.policy) == (self.env, self.policy))
        return next((name for name in prompted if study.agents[name].paper_row == row), None)


def presets(study: "Study", env: str, rows: tuple[str, ...]) -> list[str | None]:
    """Return the presets of 3SPO for which a claim on these rows is judged; one nameless one where it is not about 3SPO."""
    if not any(row.startswith("3spo") for row in rows):
        return [None]
    entries = study.at(env).methods.values()
    presets = (preset_of(entry.options) for entry in entries if searches(entry.method) and entry.paper_row in rows)
    return list(dict.fromkeys(presets))


def preset_of(options: dict[str, Any]) -> str:
    """Return the preset of 3SPO that an entry's options name."""
    return str(options.get("preset", "literal"))


def policy_for(study: "Study", model: str) -> str | None:
    """Return the study's policy in the place of one of the paper's models."""
    return next((name for name in local_policies(study) if study.policies[name].stands_for == model), None)


def side(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies above a bound."""
    return "holds" if low > bound else "fails" if high < bound else "unclear"


def inside(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies between minus and plus a bound."""
    return "holds" if -bound <= low and high <= bound else "fails" if high < -bound or low > bound else "unclear"


def together(found: Mapping[str, Finding], missing: Iterable[str] = ()) -> Finding:
    """Return the finding of a claim on several named pairs: it fails with any of them, and holds only with all.

    The pair that decides is reported: the worst, by the end of its interval.
    """
    if not found:
        return Finding("not here")
    failed = {name: one for name, one in found.items() if one.verdict == "fails"}
    unclear = {name: one for name, one in found.items() if one.verdict == "unclear"}
    name, worst = min((failed or unclear or found).items(), key=lambda item: item[1].high if failed else item[1].low)
    absent = list(dict.fromkeys(missing))
    verdict: Verdict = "unclear" if absent and worst.verdict == "holds" else worst.verdict
    words = [name if len(found) > 1 else "", worst.detail, f"not in this study: {', '.join(absent)}" if absent else ""]
    return replace(worst, verdict=verdict, detail="; ".join(filter(None, words)))


def over_seeds(verdicts: Iterable[bool]) -> Verdict:
    """Return what all seeds say, or that they differ."""
    said = list(verdicts)
    return "holds" if all(said) else "unclear" if any(said) else "fails"


def of_one_seed(finding: Finding, seeds: int) -> Finding:
    """Return the finding, which is unclear with a single training seed: nothing is known of its spread."""
    if seeds > 1 or finding.verdict not in ("holds", "fails"):
        return finding
    return replace(finding, verdict="unclear", detail="; ".join(filter(None, (finding.detail, "one training seed"))))
