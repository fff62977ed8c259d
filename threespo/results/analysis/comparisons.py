"""The one table of comparisons between two methods, which everything that calls one method better than another reads.

The report's first table and its sentences, the claims on pairs of methods, the export and the published differences: all
take a comparison's numbers and verdict from here, so that no difference has two verdicts.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from threespo.envs.registry import presentation
from threespo.methods.registry import searches
from threespo.results.analysis.holm import adjust_by_holm
from threespo.results.analysis.statistics import (
    FAILED_RUN,
    LEVEL,
    Interval,
    Units,
    seeds_needed,
)
from threespo.results.analysis.summaries import method_difference, percent_by_seed
from threespo.study.matrix import local_policies, units_of_seeds

if TYPE_CHECKING:
    from threespo.study.config import Study

Side = Literal["above", "below", "undecided"]

REFERENCES = ("grpo", "gigpo", "rloo", "ppo")
"""Estimators that the others are compared with: the first of them that the study trains."""

SAME_ROW = {"3spo_alpha_50": "3spo", "3spo_xi_10_zeta_01": "3spo"}
"""Rows of the paper's sensitivity tables that are 3SPO itself, and so need no run of their own."""

Family = Literal["reference", "base", "presets"]
"""What is corrected together: the comparisons that answer one question (``QUESTIONS``), in all environments, with all
policies and in all measures, so that no measure of the same runs forms a smaller family of its own."""

QUESTIONS: dict[Family, str] = {
    "reference": "Which trained methods differ from the reference?",
    "base": "Which trained methods differ from the untrained base?",
    "presets": "Which presets of 3SPO differ from other baselines, and which variants from the preset that they vary?",
}
"""Each family by its question."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far one method is above another in one measure, on one split, with one base policy."""

    method: str
    other: str
    env: str
    policy: str
    split: str
    measure: str
    estimate: float
    """In percentage points, positive if ``method`` is above ``other``; ``low`` and ``high`` are its 95 % interval."""
    low: float
    high: float
    p: float
    """Of no difference; NaN, like the interval, with too few training seeds."""
    family: Family
    tests: int = 0
    """Comparisons of the family that have a p."""
    p_holm: float = math.nan
    """After Holm's correction for all of them."""
    verdict: Side = "undecided"
    """By ``p_holm``."""
    arms: tuple[Sequence[float], Sequence[float]] = field(default=((), ()), repr=False)
    """Percent of each training seed, of the method and of the other."""
    units: Units = field(default=None, repr=False)
    """Of each training seed, what both arms share."""

    def reversed(self) -> "Comparison":
        """Return the same comparison, from the other method's side."""
        opposite: dict[Side, Side] = {"above": "below", "below": "above", "undecided": "undecided"}
        return replace(
            self,
            method=self.other,
            other=self.method,
            estimate=-self.estimate,
            low=-self.high,
            high=-self.low,
            verdict=opposite[self.verdict],
            arms=(self.arms[1], self.arms[0]),
        )

    @property
    def rows(self) -> set[tuple[str, str, str]]:
        """The two rows that are compared: environment, policy and method of each."""
        return {(self.env, self.policy, self.method), (self.env, self.policy, self.other)}

    def seeds_needed(self) -> int | None:
        """Return the training seeds an arm that would decide the comparison alone; None where decided or unknown."""
        if self.verdict != "undecided":
            return None
        # A policy that is not trained has no seeds to add.
        if len(self.arms[0]) != len(self.arms[1]):
            return None
        return seeds_needed(*self.arms, floor=FAILED_RUN, units=self.units)


COMPARISON_COLUMNS = tuple(
    column.name for column in fields(Comparison) if column.name not in ("arms", "units")
)


def compare_methods(
    study: "Study", episodes: pd.DataFrame, at_edge: Collection[tuple[str, str, str]] = ()
) -> list[Comparison]:
    """Return the comparisons of a study's methods on each environment's last split (unseen games, test goals).

    There is one comparison for each pair, environment, policy and measure, corrected within its family.

    Args:
        study: the study.
        episodes: a row for each evaluated episode.
        at_edge: (environment, policy, method) of the rows whose learning rate is at an edge of what was tried. In a
            confirmatory study they decide nothing.
    """
    comparisons = []
    for env in study.environments:
        for policy in local_policies(study):
            # The last split is the one of tasks that no training has seen.
            split = study.at(env).evaluation.splits[-1]
            is_env = episodes["env"] == env
            is_policy = episodes["policy"] == policy
            is_split = episodes["split"] == split
            played = episodes[is_env & is_policy & is_split]
            comparisons += list(_compare_pairs(study, env, policy, split, played))
    corrected = _correct_families(comparisons)
    if study.confirmatory is None:
        return corrected
    return [_withhold(one) if one.rows & set(at_edge) else one for one in corrected]


def _withhold(comparison: Comparison) -> Comparison:
    """Return a comparison without its verdict, and without arms: more seeds would not decide it."""
    return replace(comparison, verdict="undecided", arms=((), ()), units=None)


def _compare_pairs(
    study: "Study", env: str, policy: str, split: str, played: pd.DataFrame
) -> Iterator[Comparison]:
    methods = set(played["method"])
    units = units_of_seeds(study, env, policy)
    measures = [name for name in ("success", "score") if name in presentation(env).measures]
    pairs = [(pair, measure) for pair in pairs_in_sentences(study, env, methods) for measure in measures]
    reference = reference_method(study)
    if reference is not None and reference in methods:
        others = [name for name in study.methods if name in methods and name != reference]
        pairs += [((name, reference), measure) for name in others for measure in measures]

    # Without repetition: a pair of the sentences may be one with the reference as well, and counting it twice
    # would make Holm's correction too strong.
    for (method, other), measure in dict.fromkeys(pairs):
        family: Family = "base" if other == "base" else "presets"
        if other == reference:
            family = "reference"
        found = method_difference(played, (method, other), measure, study.methods, units=units)
        arms = (
            percent_by_seed(played[played["method"] == method], measure),
            percent_by_seed(played[played["method"] == other], measure),
        )
        yield Comparison(
            method=method,
            other=other,
            env=env,
            policy=policy,
            split=split,
            measure=measure,
            estimate=found.estimate,
            low=found.low,
            high=found.high,
            p=found.p,
            family=family,
            arms=arms,
            units=_list_shared(played, (method, other), units),
        )


def _list_shared(
    played: pd.DataFrame, pair: tuple[str, str], units: Mapping[int, int] | None
) -> list[int] | None:
    """Return of each training seed, in order, what both arms share; None if nothing, or if their seeds differ."""
    if units is None:
        return None
    first, second = (
        sorted(played.loc[played["method"] == name, "training_seed"].unique()) for name in pair
    )
    return [units[seed] for seed in first] if first == second else None


def pairs_in_sentences(study: "Study", env: str, played: set[str]) -> list[tuple[str, str]]:
    """Return the pairs (method, other) that the report compares in sentences, of the methods that were played.

    Every trained method with the base; presets of 3SPO with GRPO and GiGPO; variants of 3SPO with the preset that they vary.
    """
    trained = [name for name in study.methods if name in played]
    baselines = [name for name in trained if study.methods[name].method in ("grpo", "gigpo")]
    searching = [name for name in trained if searches(study.methods[name].method)]
    # By the study's own entry, which has no other option. What an environment's section adds for all makes no variant.
    presets = [name for name in searching if set(study.methods[name].options) <= {"preset"}]
    method_of_preset = {_preset_in(study, env, name): name for name in presets}

    pairs = [(name, "base") for name in trained if "base" in played]
    pairs += [(preset, baseline) for preset in presets for baseline in baselines]
    for name in searching:
        preset = _preset_in(study, env, name)
        if name not in presets and preset in method_of_preset:
            pairs.append((name, method_of_preset[preset]))
    return pairs


def reference_method(study: "Study") -> str | None:
    """Return the study's name of the first of ``REFERENCES`` that it trains; None without one."""
    # Reversed, so that of several rows with one estimator the first counts.
    names = {entry.method: name for name, entry in reversed(study.methods.items())}
    return next((names[method] for method in REFERENCES if method in names), None)


def _preset_in(study: "Study", env: str, method: str) -> str:
    return preset_name(study.at(env).methods[method].options)


def preset_name(options: dict[str, Any]) -> str:
    """Return the preset of 3SPO that an entry's options name."""
    return str(options.get("preset", "literal"))


def _correct_families(comparisons: list[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's p and the verdict by it."""
    corrected = list(comparisons)
    for family in dict.fromkeys(comparison.family for comparison in comparisons):
        indices = [i for i, comparison in enumerate(comparisons) if comparison.family == family]
        p_values = [comparisons[i].p for i in indices]
        tests = sum(not math.isnan(p) for p in p_values)
        adjusted = adjust_by_holm(p_values)
        for index, p_holm in zip(indices, adjusted, strict=True):
            verdict = side_of(comparisons[index].estimate, p_holm)
            corrected[index] = replace(comparisons[index], tests=tests, p_holm=p_holm, verdict=verdict)
    return corrected


def side_of(estimate: float, p_holm: float) -> Side:
    """Return the verdict on a difference."""
    # Written so that NaN, the p of too few seeds, is undecided: every comparison with NaN is false.
    if not p_holm < LEVEL:
        return "undecided"
    return "above" if estimate > 0 else "below"


def find_comparison(
    comparisons: Sequence[Comparison],
    pair: tuple[str, str],
    env: str,
    policy: str,
    split: str,
    measure: str,
) -> Comparison | None:
    """Return the comparison of two methods, seen from the first of ``pair``; None if the table has none."""
    # A pair is in the table once, from the side that was compared first.
    for comparison in comparisons:
        cell = (comparison.env, comparison.policy, comparison.split, comparison.measure)
        if cell != (env, policy, split, measure):
            continue
        if (comparison.method, comparison.other) == pair:
            return comparison
        if (comparison.other, comparison.method) == pair:
            return comparison.reversed()
    return None


def comparison_table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Return the comparisons as a table with the columns ``COMPARISON_COLUMNS``."""
    rows = [[getattr(comparison, name) for name in COMPARISON_COLUMNS] for comparison in comparisons]
    return pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS))


def interval_of(comparison: Comparison) -> Interval:
    """Return the numbers of a comparison."""
    return Interval(comparison.estimate, comparison.low, comparison.high, comparison.p)
