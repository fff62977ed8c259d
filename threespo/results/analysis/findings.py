"""Sentences that the numbers decide: every comparison of the table of comparisons."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.analysis.comparisons import Comparison, find_comparison, pairs_in_sentences
from threespo.results.labels import label, titled
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def describe_findings(
    study: "Study", main: pd.DataFrame, comparisons: Sequence[Comparison]
) -> list[str]:
    """Return sentences that compare methods on each environment's last split (unseen games, test goals).

    Each method is compared with the base, 3SPO's presets with GRPO and GiGPO at equal generations, and each of 3SPO's
    variants with the preset that it varies.

    Args:
        study: the study.
        main: the table ``main``, success and score in percent.
        comparisons: as ``compare_methods`` returns them.
    """
    sentences = []
    for env in study.environments:
        for policy in local_policies(study):
            split = study.at(env).evaluation.splits[-1]
            is_setting = (main["env"] == env) & (main["policy"] == policy)
            results = main[is_setting & (main["split"] == split)]
            rows = {row["method"]: row for row in results.to_dict("records")}
            setting = titled(policy, env, study.environments)

            for pair in pairs_in_sentences(study, env, set(rows)):
                success, score = (
                    find_comparison(comparisons, pair, env, policy, split, measure)
                    for measure in ("success", "score")
                )
                if success is None:
                    continue
                method, other = pair
                # The base was not trained, so its generations say nothing.
                describe = _describe_gain if other == "base" else _describe_difference
                sentence = describe(rows[method], rows[other], success, score)
                sentences.append(f"{setting}: {sentence}.")
    return sentences


def _describe_gain(
    row: dict[str, Any], base: dict[str, Any], success: Comparison, score: Comparison | None
) -> str:
    verb = "gains" if success.estimate >= 0 else "loses"
    sentence = (
        f"{label(row['method'])} {verb} {abs(success.estimate):.1f} points on the base "
        f"({base['mean']:.1f} % → {row['mean']:.1f} %; {_describe_interval(success, 'change')})"
    )
    if score is not None:
        sentence += (
            f"; its task score goes from {base['score_mean']:.1f} to {row['score_mean']:.1f} "
            f"({_describe_interval(score, 'change')})"
        )
    return sentence


def _describe_difference(
    row: dict[str, Any], other: dict[str, Any], success: Comparison, score: Comparison | None
) -> str:
    name = label(other["method"])
    sentence = (
        f"with {row['generations']:,.0f} generations ({name}: {other['generations']:,.0f}) "
        f"{label(row['method'])} is {_describe_side(success)} {name}; {_describe_interval(success, 'difference')}"
    )
    if score is not None:
        interval = _describe_interval(score, "difference")
        sentence += f". Its task score is {_describe_side(score)}; {interval}"
    return sentence


def _describe_side(comparison: Comparison) -> str:
    return f"{abs(comparison.estimate):.1f} points {'above' if comparison.estimate >= 0 else 'below'}"


def _describe_interval(comparison: Comparison, name: str) -> str:
    # Too few seeds: the difference is shown, and what is missing is said instead of a verdict.
    if math.isnan(comparison.low):
        return f"no interval of the {name}, which needs at least {MIN_SEEDS} training seeds"

    interval = f"95 % interval of the {name} {comparison.low:+.1f} to {comparison.high:+.1f}"
    # The interval is of this comparison alone; the verdict is also Holm's, and may be undecided where the
    # interval excludes zero. Where it includes zero, correction has nothing to take back.
    if comparison.low <= 0 <= comparison.high:
        return f"{interval}, which includes zero: {comparison.verdict}"
    return f"{interval}: {comparison.verdict} after Holm's correction"
