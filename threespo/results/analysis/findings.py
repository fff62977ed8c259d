"""What the numbers say, in sentences that the numbers decide, and what they cannot say."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.registry import presentation
from threespo.methods.registry import searches
from threespo.results.analysis.statistics import Interval
from threespo.results.analysis.summaries import method_difference
from threespo.results.claims.finding import preset_name
from threespo.results.labels import label, titled
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def describe_findings(study: "Study", main: pd.DataFrame, episodes: pd.DataFrame) -> list[str]:
    """Return sentences that compare methods on each environment's last split (unseen games, test goals).

    Each method is compared with the base, 3SPO's presets with GRPO and GiGPO at equal generations, and each of 3SPO's
    variants with the preset that it varies.

    Args:
        study: the study.
        main: the table ``main``, success and score in percent.
        episodes: the table ``episodes``, a row for each evaluated episode, from which intervals are computed.
    """
    return [
        sentence
        for env in study.environments
        for policy in local_policies(study)
        for sentence in _of_policy(study, env, policy, main, episodes)
    ]


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where methods are compared: an environment and a policy, and what was played there."""

    name: str
    played: pd.DataFrame
    trained: Collection[str]
    """The study's methods; other rows are single policies."""
    scored: bool
    """Whether there is a task score beside success."""

    def gap(self, row: dict[str, Any], other: dict[str, Any], measure: str = "success") -> Interval:
        """Return how many points ``row`` is above ``other``."""
        return method_difference(self.played, (row["method"], other["method"]), measure, self.trained)


def _of_policy(
    study: "Study", env: str, policy: str, main: pd.DataFrame, episodes: pd.DataFrame
) -> list[str]:
    here = {"env": env, "policy": policy, "split": study.at(env).evaluation.splits[-1]}
    rows = {row["method"]: row for row in _only(main, here).to_dict("records")}
    scored = "score" in presentation(env).measures
    setting = _Setting(
        titled(policy, env, study.environments), _only(episodes, here), study.methods, scored
    )

    trained = [rows[name] for name in study.methods if name in rows]
    searching = [row for row in trained if searches(study.methods[row["method"]].method)]
    groups = [row for row in trained if study.methods[row["method"]].method in ("grpo", "gigpo")]

    # By the study's own entry, which has no other option. What an environment's section adds for all makes no variant.
    whole = [row for row in searching if set(study.methods[row["method"]].options) <= {"preset"}]
    presets = {_preset(study, row): row for row in whole}

    sentences = [_against_base(setting, row, rows["base"]) for row in trained]
    sentences += [_compare(setting, row, other) for row in whole for other in groups]
    sentences += [
        _compare(setting, row, presets[_preset(study, row)])
        for row in searching
        if row not in whole and _preset(study, row) in presets
    ]
    return sentences


def _only(frame: pd.DataFrame, values: dict[str, str]) -> pd.DataFrame:
    """Return the rows in which every column of ``values`` has its value."""
    return frame[np.logical_and.reduce([frame[name] == value for name, value in values.items()])]


def _preset(study: "Study", row: dict[str, Any]) -> str:
    return preset_name(study.at(row["env"]).methods[row["method"]].options)


def _against_base(setting: _Setting, row: dict[str, Any], base: dict[str, Any]) -> str:
    gain = setting.gap(row, base)
    verb = "gains" if gain.estimate >= 0 else "loses"
    sentence = (
        f"{setting.name}: {label(row['method'])} {verb} {abs(gain.estimate):.1f} points on the base "
        f"({base['mean']:.1f} % → {row['mean']:.1f} %; {_in_words(gain, 'change')})"
    )
    if setting.scored:
        sentence += (
            f"; its task score goes from {base['score_mean']:.1f} to {row['score_mean']:.1f} "
            f"({_in_words(setting.gap(row, base, 'score'), 'change')})"
        )
    return sentence + "."


def _compare(setting: _Setting, row: dict[str, Any], other: dict[str, Any]) -> str:
    gap, name = setting.gap(row, other), label(other["method"])
    sentence = (
        f"{setting.name}: with {row['generations']:,.0f} generations ({name}: {other['generations']:,.0f}) "
        f"{label(row['method'])} is {_side(gap)} {name}; {_in_words(gap, 'difference')}{_verdict(gap)}"
    )
    if setting.scored:
        gap = setting.gap(row, other, "score")
        sentence += f". Its task score is {_side(gap)}; {_in_words(gap, 'difference')}{_verdict(gap)}"
    return sentence + "."


def _side(gap: Interval) -> str:
    return f"{abs(gap.estimate):.1f} points {'above' if gap.estimate >= 0 else 'below'}"


def _in_words(gap: Interval, name: str) -> str:
    if math.isnan(gap.low):
        return f"no interval of the {name}, which needs at least {MIN_SEEDS} training seeds"
    return f"95 % interval of the {name} {gap.low:+.1f} to {gap.high:+.1f}"


def _verdict(gap: Interval) -> str:
    return ", which includes zero: not a clear difference" if gap.low <= 0 <= gap.high else ""
