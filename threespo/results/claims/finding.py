"""The evidence that decides a claim, the place where it is decided, and the finding."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from scipy import stats

from threespo.envs.optional_splits import OPTIONAL_SPLITS
from threespo.methods.registry import searches
from threespo.results.analysis.statistics import LEVEL, MAX_SEEDS, POWER, Interval, adjust_by_holm
from threespo.results.paper_numbers import UNSEEN_SPLITS, PaperNumbers, parse_column
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.matrix import local_policies, prompted_runs

if TYPE_CHECKING:
    from threespo.study.config import Study

Verdict = Literal["holds", "fails", "unclear", "not here", "unsupported", "vacuous", "open"]
"""``unclear``: the interval admits both, rows are missing, or there is too little to see it; ``not here``: the study lacks
what is compared; ``unsupported``: the paper gives neither proof nor data; ``vacuous``: true, and without consequence at the
paper's constants; ``open``: no study here decides it."""

OF_PAPER = ("literal", "calibrated")
"""Presets of 3SPO that are the paper's method; other presets replace parts of it."""

SAME_ROW = {"3spo_alpha_50": "3spo"}
"""A row of a sensitivity table that is the full method."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in one place."""

    verdict: Verdict
    measured: float = math.nan
    """In the unit of the rule: points, a ratio, a score or a share."""
    low: float = math.nan
    high: float = math.nan
    detail: str = ""
    """What else a reader should know, in words."""
    p: float = math.nan
    """Two-sided p of a value at the rule's bound; NaN where no test decides."""
    seeds_needed: float = math.nan
    """Training seeds that would decide the claim, with means and spreads as they are; NaN where unknown or decided."""

    def said(self, words: str) -> "Finding":
        """Return the finding with more for the reader, in front of what it says already."""
        return replace(self, detail="; ".join(filter(None, (words, self.detail))))

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A study's results, and the numbers of the paper."""

    study: "Study"
    episodes: pd.DataFrame
    """A row per evaluated episode."""
    metrics: pd.DataFrame
    """A row per training epoch."""
    task_types: pd.DataFrame
    """A row per training epoch and task type."""
    paper: PaperNumbers
    learning: pd.DataFrame
    """A row per snapshot of a training run, with its success on unseen games; may be empty."""
    probes: pd.DataFrame
    """A row per probed state; may be empty."""
    searches: pd.DataFrame
    """A row per run that recorded search trees (``results/search_facts.py``); may be empty."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Where rows are looked up: an environment, a policy, and the preset that stands for 3SPO."""

    env: str
    policy: str
    preset: str | None

    def find_method(self, study: "Study", row: str) -> str | None:
        """Return the study's method, or prompting agent, for a row of the paper; None if none has runs here."""
        here = study.at(self.env).methods.items()
        entries = {
            name: entry for name, entry in here if study.covers(entry.parts, self.env, self.policy)
        }

        # Several methods that search may have the same ``paper_row``, one for each preset; others have no preset.
        for wanted in dict.fromkeys((row, SAME_ROW.get(row, row))):
            for name, entry in entries.items():
                if entry.paper_row == wanted and (
                    not searches(entry.find_method) or preset_name(entry.options) == self.preset
                ):
                    return name

        # A tiny policy follows no instructions, so prompting it neither confirms nor refutes a claim.
        if study.policies[self.policy].kind != "pretrained":
            return None
        prompted = (
            run.find_method
            for run in prompted_runs(study)
            if (run.env, run.policy) == (self.env, self.policy)
        )
        return next((name for name in prompted if study.agents[name].paper_row == row), None)


def presets(study: "Study", env: str, rows: tuple[str, ...]) -> list[str | None]:
    """Return the presets of 3SPO for which a claim on these rows is decided; only None where it is not about 3SPO."""
    if not any(row.startswith("3spo") for row in rows):
        return [None]
    entries = study.at(env).methods.values()
    presets = (
        preset_name(entry.options)
        for entry in entries
        if searches(entry.find_method) and entry.paper_row in rows
    )
    return list(dict.fromkeys(presets))


def preset_name(options: dict[str, Any]) -> str:
    """Return the preset of 3SPO that an entry's options name."""
    return str(options.get("preset", "literal"))


def policies_for(study: "Study", *models: str) -> list[str]:
    """Return the study's policies that substitute one of these models of the paper, each once."""
    return [name for name in local_policies(study) if study.policies[name].stands_for in models]


def policy_for(study: "Study", model: str) -> str | None:
    """Return the first policy that substitutes one of the paper's models, if there is one."""
    return next(iter(policies_for(study, model)), None)


def verdict_vs_bound(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies above a bound; ``unclear`` if the bound lies in it."""
    return "holds" if low > bound else "fails" if high < bound else "unclear"


def verdict_within(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies between minus and plus a bound; ``unclear`` if it lies on both sides of one."""
    return (
        "holds"
        if -bound <= low and high <= bound
        else "fails"
        if high < -bound or low > bound
        else "unclear"
    )


def combine(found: Mapping[str, Finding], missing: Iterable[str] = ()) -> Finding:
    """Return the finding of a claim on several pairs: it fails with any of them, and holds only with all.

    Args:
        found: the finding of each pair, by a name for readers.
        missing: rows of the paper that are not run there, and so could not be compared.

    Returns:
        The finding of the pair that decides: the worst, by the end of its interval.
    """
    if not found:
        return Finding("not here")

    failed = {name: one for name, one in found.items() if one.verdict == "fails"}
    unclear = {name: one for name, one in found.items() if one.verdict == "unclear"}

    # A failed pair fails by its upper end, all others are doubtful by their lower one.
    name, worst = min(
        (failed or unclear or found).items(), key=lambda item: item[1].high if failed else item[1].low
    )

    # All pairs have to hold, so the largest p is that of the claim. Any may fail, so failures are as many tests as pairs.
    tested = [one.p for one in (failed or found).values() if not math.isnan(one.p)]
    p = (min(1.0, len(found) * min(tested)) if failed else max(tested)) if tested else math.nan

    # A claim on all rows cannot hold where some were not compared.
    absent = list(dict.fromkeys(missing))
    verdict: Verdict = "unclear" if absent and worst.verdict == "holds" else worst.verdict
    words = [name, worst.detail, f"not run here: {', '.join(absent)}" if absent else ""]
    return replace(worst, verdict=verdict, p=p, detail="; ".join(filter(None, words)))


def cell_of(column: str, study: "Study") -> tuple[str, str, str]:
    """Return the environment, split and measure in which a study is judged for a column of the paper's main table.

    A panel for development or confirmation stands for the paper's unseen games, where the study is judged on that.
    """
    env, split, measure = parse_column(column)
    if env in study.environments and split in UNSEEN_SPLITS:
        judged = study.at(env).evaluation.splits
        panels = [other for other in judged if other in OPTIONAL_SPLITS]
        if split not in judged and panels:
            return env, panels[-1], measure
    return env, split, measure


def in_column(
    column: str, printed: float | None, evidence: Evidence
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """Return where a claim on a column of the paper's main table is judged, and the episodes that were played there.

    Args:
        column: a value of ``paper.COLUMNS``.
        printed: what the paper's text prints for the column, in points, if it prints something.
        evidence: the study's results.

    Returns:
        The first fields of the rows of the table ``claims``; no episodes if the study lacks the environment or the split.
    """
    env, split, measure = cell_of(column, evidence.study)
    place = {"env": env, "split": split, "measure": measure, "printed": printed}
    if env not in evidence.study.environments or split not in evidence.study.at(env).evaluation.splits:
        return place, None
    played = evidence.episodes
    return place, played[(played["env"] == env) & (played["split"] == split)]


def make_finding(found: Interval, verdict: Verdict, needed: int | None) -> Finding:
    """Return the finding of an interval; ``needed`` is what ``seeds_needed`` says of it."""
    return Finding(
        verdict, found.estimate, found.low, found.high, p=found.p, seeds_needed=needed or math.nan
    )


def require_min_seeds(finding: Finding, seeds: int) -> Finding:
    """Return the finding, which is unclear with fewer than ``MIN_SEEDS`` training seeds in an arm."""
    if seeds >= MIN_SEEDS or finding.verdict in ("not here", "open"):
        return finding
    words = f"needs at least {MIN_SEEDS} training seeds, has {seeds}"
    return replace(
        finding, verdict="unclear", p=math.nan, detail="; ".join(filter(None, (finding.detail, words)))
    )


def apply_holm(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of the table ``claims`` with verdicts that stand after Holm's correction.

    A family is what one table of a study says: rows of one environment and split, those on the course of training apart
    (their ``measure`` is ``training``), and those that are not on the paper's method apart (``method_of_paper``). Rows with
    the same numbers are one test. ``seeds_needed`` is scaled to the level of a family's smallest p.

    Args:
        rows: as the rules give them, with the fields of ``Finding``; rows without ``p`` are left as they are.

    Returns:
        New rows with ``p_adjusted``. One that is not below 5 % makes ``holds`` and ``fails`` ``unclear``.
    """
    families: dict[Hashable, dict[Hashable, float]] = {}
    for row in rows:
        if not math.isnan(row.get("p", math.nan)):
            families.setdefault(_family(row), {})[_test(row)] = row["p"]
    adjusted = {
        family: dict(zip(tests, adjust_by_holm(list(tests.values())), strict=True))
        for family, tests in families.items()
    }
    return [_corrected(row, adjusted.get(_family(row), {})) for row in rows]


def _family(row: dict[str, Any]) -> Hashable:
    return (
        row.get("env"),
        row.get("split"),
        row.get("measure") == "training",
        row.get("method_of_paper", True),
    )


def _test(row: dict[str, Any]) -> Hashable:
    names = ("policy", "preset", "measure", "measured", "low", "high", "p")
    # A rank test has no numbers but p, which different comparisons share.
    own = ("claim", "detail") if math.isnan(row.get("measured", math.nan)) else ()
    return tuple(str(row.get(name)) for name in (*names, *own))


def _corrected(row: dict[str, Any], family: Mapping[Hashable, float]) -> dict[str, Any]:
    p = family.get(_test(row), math.nan)
    verdict, detail, needed = row["verdict"], row.get("detail", ""), row.get("seeds_needed", math.nan)
    if verdict in ("holds", "fails") and p >= LEVEL:
        words = f"p is {row['p']:.2g}, and {p:.2g} by Holm's correction for {len(family)} tests"
        verdict, detail = "unclear", "; ".join(filter(None, (detail, words)))

    # By the normal quantiles of the two levels: tests are few where it matters, and the effect is an estimate anyway.
    if not math.isnan(needed):
        parts = (
            stats.norm.isf(level / 2) + stats.norm.isf(1 - POWER)
            for level in (LEVEL / max(1, len(family)), LEVEL)
        )
        scaled = math.ceil(needed * (next(parts) / next(parts)) ** 2)
        needed = float(scaled) if verdict == "unclear" and scaled <= MAX_SEEDS else math.nan
    return {**row, "verdict": verdict, "detail": detail, "p_adjusted": p, "seeds_needed": needed}
