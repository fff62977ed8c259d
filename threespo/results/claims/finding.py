"""What a claim is judged by, where, and with which result."""

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from threespo.results.paper import PaperNumbers
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study

Verdict = Literal["holds", "fails", "unclear", "not here", "open"]
"""``unclear``: the interval admits both, or rows are missing; ``not here``: the study lacks what is compared; ``open``: no
study of ours decides it."""

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
                if entry.paper_row == wanted and (entry.method != "threespo" or preset_of(entry.options) == self.preset):
                    return name
        # A tiny policy follows no instructions, so there is nothing to learn from prompting it.
        agents = study.agents if study.policies[self.policy].kind == "pretrained" else {}
        return next((name for name, agent in agents.items() if agent.paper_row == row), None)


def presets(study: "Study", env: str, rows: tuple[str, ...]) -> list[str | None]:
    """Return the presets of 3SPO for which a claim on these rows is judged; one nameless one where it is not about 3SPO."""
    if not any(row.startswith("3spo") for row in rows):
        return [None]
    entries = study.at(env).methods.values()
    mine = [preset_of(entry.options) for entry in entries if entry.method == "threespo" and entry.paper_row in rows]
    return list(dict.fromkeys(mine))


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


def range_of(first: list[float], second: list[float], of: Callable[[float, float], float]) -> tuple[float, float]:
    """Return the least and the greatest that ``of`` gives for any pair of seeds."""
    values = [of(a, b) for a, b in itertools.product(first, second)]
    return min(values), max(values)
