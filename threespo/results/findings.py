"""What the numbers say, in sentences that the numbers decide, and what they cannot say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.registry import presentation
from threespo.methods.registry import searches
from threespo.results.claims.finding import preset_of
from threespo.results.figures import label, titled
from threespo.results.statistics import method_difference
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def findings(study: "Study", main: pd.DataFrame, episodes: pd.DataFrame) -> list[str]:
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
    scored: bool
    """Whether there is a task score beside success."""


def _of_policy(study: "Study", env: str, policy: str, main: pd.DataFrame, episodes: pd.DataFrame) -> list[str]:
    here = {"env": env, "policy": policy, "split": study.at(env).evaluation.splits[-1]}
    rows = {row["method"]: row for row in _only(main, here).to_dict("records")}
    setting = _Setting(titled(policy, env, study.environments), _only(episodes, here), "score" in presentation(env).measures)

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
    return preset_of(study.at(row["env"]).methods[row["method"]].options)


def _against_base(setting: _Setting, row: dict[str, Any], base: dict[str, Any]) -> str:
    gain, interval = _difference(setting, row, base)
    sentence = (
        f"{setting.name}: {label(row['method'])} {'gains' if gain >= 0 else 'loses'} {abs(gain):.1f} points on the base "
        f"({base['mean']:.1f} % → {row['mean']:.1f} %; 95 % interval of the change {interval})"
    )
    if setting.scored:
        _, interval = _difference(setting, row, base, "score")
        sentence += (
            f"; its task score goes from {base['score_mean']:.1f} to {row['score_mean']:.1f} "
            f"(95 % interval of the change {interval})"
        )
    return sentence + "."


def _compare(setting: _Setting, row: dict[str, Any], other: dict[str, Any]) -> str:
    difference, interval = _difference(setting, row, other)
    name = label(other["method"])
    sentence = (
        f"{setting.name}: with {row['generations']:,.0f} generations ({name}: {other['generations']:,.0f}) "
        f"{label(row['method'])} is {_side(difference)} {name}; "
        f"95 % interval of the difference {interval}{_verdict(interval)}"
    )
    if setting.scored:
        difference, interval = _difference(setting, row, other, "score")
        sentence += f". Its task score is {_side(difference)}; 95 % interval {interval}{_verdict(interval)}"
    return sentence + "."


@dataclass(frozen=True, slots=True)
class _Interval:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:+.1f} to {self.high:+.1f}"


def _verdict(interval: _Interval) -> str:
    return ", which includes zero: not a clear difference" if interval.low <= 0 <= interval.high else ""


def _side(difference: float) -> str:
    return f"{abs(difference):.1f} points {'above' if difference >= 0 else 'below'}"


def _difference(
    setting: _Setting, row: dict[str, Any], other: dict[str, Any], measure: str = "success"
) -> tuple[float, _Interval]:
    """Return how many points ``row`` is above ``other``, and a 95 % bootstrap interval over seeds and games."""
    difference, low, high = method_difference(setting.played, row["method"], other["method"], measure)
    return difference, _Interval(low, high)
