"""What the numbers say, in sentences that the numbers decide, and what they cannot say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.results.figures import label
from threespo.results.statistics import difference_interval
from threespo.rng import derive
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def findings(study: "Study", main: pd.DataFrame, episodes: pd.DataFrame) -> list[str]:
    """Return sentences on unseen games: each method against the base; 3SPO's presets against GRPO and GiGPO at equal
    generations; and each of 3SPO's variants against the preset that it varies."""
    split = study.evaluation.splits[-1]
    sentences = []
    for policy in local_policies(study):
        rows = {row["method"]: row for row in main[(main["policy"] == policy) & (main["split"] == split)].to_dict("records")}
        played = episodes[(episodes["policy"] == policy) & (episodes["split"] == split)]
        trained = [rows[name] for name in study.methods if name in rows]
        sentences += [_against_base(policy, row, rows["base"], played) for row in trained]
        searches = [row for row in trained if study.methods[row["method"]].method == "threespo"]
        groups = [row for row in trained if study.methods[row["method"]].method in ("grpo", "gigpo")]
        presets = {_preset(study, row): row for row in searches if set(study.methods[row["method"]].options) <= {"preset"}}
        whole = list(presets.values())
        sentences += [_compare(policy, row, other, played) for row in whole for other in groups]
        sentences += [
            _compare(policy, row, presets[_preset(study, row)], played)
            for row in searches
            if row not in whole and _preset(study, row) in presets
        ]
    return sentences


def _preset(study: "Study", row: dict[str, Any]) -> str:
    return str(study.methods[row["method"]].options.get("preset", "literal"))


def limits(study: "Study") -> list[str]:
    """Return what a reader must know before comparing with the paper."""
    known = []
    if any(policy.kind == "tiny" for policy in study.policies.values()):
        known.append(
            "The policy is a tiny model made for this study, not the paper's. Its base was first cloned from a "
            "scripted explorer until it plays well (the strong clone, shown as the ceiling) and then made careless on "
            "purpose: part of what training gains is the un-learning of injected habits. Compare signs and orders with the "
            "paper, not sizes."
        )
    if study.alfworld.source == "embedded":
        known.append(
            "The games are generated here. They follow ALFWorld's rules and texts, but are not its games; "
            "the same study runs on the real ones with --config alfworld=DIR."
        )
    if len(study.seeds) < 3:
        seeds = f"{len(study.seeds)} training seed{'s' * (len(study.seeds) > 1)}"
        known.append(f"{seeds}: a spread over so few is itself uncertain.")
    if study.training.inadmissible_penalty:
        known.append(
            f"Inadmissible actions cost {study.training.inadmissible_penalty:g} of advantage wherever a method trains on "
            "one. That is not the same for all: RLOO's advantages are undivided, some six times GRPO's, and "
            "3SPO trains on fewer responses, as it skips groups of equal rewards. The paper has no such term."
        )
    known.append(_rates_in_words(study))
    known.append(
        "Of the paper's main table only ALFWorld and the methods above are run; its other rows and WebShop are not."
    )
    return known


def _rates_in_words(study: "Study") -> str:
    if study.tuning:
        grid = ", ".join(f"{rate:g}" for rate in study.tuning.learning_rates)
        return (
            f"Every method's learning rate is the best of {grid} on the calibration games, after one trial each of "
            f"{study.tuning.generations:,} generations: the same small search for all, on one seed."
        )
    rates = ", ".join(f"{name}: {entry.learning_rate:g}" for name, entry in study.methods.items())
    return f"Learning rates stand in the study ({rates}); this study does not search for them, one with 'tuning' does."


def _against_base(policy: str, row: dict[str, Any], base: dict[str, Any], played: pd.DataFrame) -> str:
    gain, interval = _difference(row, base, played)
    verb = "gains" if gain >= 0 else "loses"
    return (
        f"{policy}: {label(row['method'])} {verb} {abs(gain):.1f} points on the base "
        f"({base['mean']:.1f} % → {row['mean']:.1f} %; 95 % interval of the change {interval})."
    )


def _compare(policy: str, row: dict[str, Any], other: dict[str, Any], played: pd.DataFrame) -> str:
    difference, interval = _difference(row, other, played)
    name = label(other["method"])
    return (
        f"{policy}: with {row['generations']:,.0f} generations ({name}: {other['generations']:,.0f}) "
        f"{label(row['method'])} is {abs(difference):.1f} points {'above' if difference >= 0 else 'below'} {name}; "
        f"95 % interval of the difference {interval}{_verdict(interval)}."
    )


@dataclass(frozen=True, slots=True)
class _Interval:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:+.1f} to {self.high:+.1f}"


def _verdict(interval: _Interval) -> str:
    return ", which includes zero: not a clear difference" if interval.low <= 0 <= interval.high else ""


def _difference(row: dict[str, Any], other: dict[str, Any], played: pd.DataFrame) -> tuple[float, _Interval]:
    """Return how many points ``row`` is above ``other``, and a 95 % bootstrap interval over seeds and games."""
    first, second = (_by_game(played[played["method"] == one["method"]]) for one in (row, other))
    low, high = difference_interval(first, second, derive("difference", row["policy"], row["method"], other["method"]))
    return row["mean"] - other["mean"], _Interval(low, high)


def _by_game(played: pd.DataFrame) -> "np.ndarray[Any, Any]":
    """Return success in percent as (training seeds, games), averaged over evaluation seeds."""
    wide = played.pivot_table(index="training_seed", columns="task_id", values="success", aggfunc="mean")
    return np.asarray(100.0 * wide.to_numpy(dtype=np.float64))
