"""What a rule finds of a claim: the verdict with its numbers, how several are combined, and Holm's correction."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from scipy import stats

from threespo.results.analysis.holm import adjust_by_holm
from threespo.results.analysis.statistics import LEVEL, MAX_SEEDS, POWER, Interval
from threespo.study.confirmatory import MIN_SEEDS

Verdict = Literal["holds", "fails", "undecided", "not here", "unsupported", "vacuous", "open"]
"""``undecided``: the interval admits both, rows are missing, or there is too little to see it; ``not here``: the study lacks
what is compared; ``unsupported``: the paper gives neither proof nor data; ``vacuous``: true, and without consequence at the
paper's constants; ``open``: no study here decides it."""

Row = dict[str, Any]
"""A row of the table ``claims``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in one setting."""

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
    p_holm: float = math.nan
    """After Holm's correction in the table of comparisons; NaN for what is not in it, which ``apply_holm`` corrects."""
    family: str = ""
    """The question whose comparisons the table corrected together; "" for what is not in it."""
    tests: float = math.nan
    """Tests of the family."""

    def with_detail(self, words: str) -> "Finding":
        """Return the finding with more for the reader, in front of its detail."""
        return replace(self, detail=join_details(words, self.detail))

    def as_undecided(self, words: str) -> "Finding":
        """Return the finding without a verdict, which is no member of a family of tests either; ``words`` say why."""
        detail = join_details(self.detail, words)
        return replace(self, verdict="undecided", p=math.nan, p_holm=math.nan, detail=detail)

    def as_row(self) -> Row:
        """Return the fields by name."""
        return asdict(self)


def join_details(*words: str) -> str:
    """Return what is said of a finding, in one line."""
    return "; ".join(filter(None, words))


def make_finding(interval: Interval, verdict: Verdict, seeds_needed: int | None) -> Finding:
    """Return the finding of an interval; ``seeds_needed`` is None where decided or unknown."""
    return Finding(
        verdict,
        interval.estimate,
        interval.low,
        interval.high,
        p=interval.p,
        seeds_needed=seeds_needed or math.nan,
    )


def verdict_vs_bound(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies above a bound; ``undecided`` if the bound lies in it."""
    # NaN, the ends of too few seeds, is neither above nor below: undecided.
    if low > bound:
        return "holds"
    if high < bound:
        return "fails"
    return "undecided"


def verdict_within(low: float, high: float, bound: float) -> Verdict:
    """Return whether an interval lies between minus and plus a bound; ``undecided`` if it lies on both sides of one."""
    if -bound <= low and high <= bound:
        return "holds"
    if high < -bound or low > bound:
        return "fails"
    return "undecided"


def combine(findings: Mapping[str, Finding], missing: Iterable[str] = ()) -> Finding:
    """Return the finding of a claim on several pairs: it fails with any of them, and holds only with all.

    Args:
        findings: the finding of each pair, by a name for readers.
        missing: rows of the paper that are not run there, and so could not be compared.

    Returns:
        The finding of the pair that decides: the worst, by the end of its interval.
    """
    if not findings:
        return Finding("not here")

    failed = {name: found for name, found in findings.items() if found.verdict == "fails"}
    undecided = {name: found for name, found in findings.items() if found.verdict == "undecided"}
    # A failure is as bad as the upper end of its interval says, another pair as bad as its lower end.
    if failed:
        name, worst = min(failed.items(), key=lambda item: item[1].high)
        p, p_holm = _p_of_failure(worst, failed, len(findings))
    else:
        name, worst = min((undecided or findings).items(), key=lambda item: item[1].low)
        p, p_holm = _p_of_all(list(findings.values()))

    # A claim on all rows cannot hold where some were not compared.
    absent = list(dict.fromkeys(missing))
    verdict: Verdict = "undecided" if absent and worst.verdict == "holds" else worst.verdict
    not_run = f"not run here: {', '.join(absent)}" if absent else ""
    detail = join_details(name, worst.detail, not_run)
    return replace(worst, verdict=verdict, p=p, p_holm=p_holm, detail=detail)


def _p_of_failure(worst: Finding, failed: Mapping[str, Finding], pairs: int) -> tuple[float, float]:
    """Return p and Holm's p of a claim that fails with some of its pairs."""
    # The table of comparisons has corrected this pair for all its tests already.
    if not math.isnan(worst.p_holm):
        return worst.p, worst.p_holm

    # The claim fails with any of its pairs, so its chances to fail falsely are as many as there are pairs:
    # Bonferroni's bound on the smallest p, which holds however the pairs depend on each other.
    tested = [found.p for found in failed.values() if not math.isnan(found.p)]
    if not tested:
        return math.nan, math.nan
    return min(1.0, pairs * min(tested)), math.nan


def _p_of_all(findings: Sequence[Finding]) -> tuple[float, float]:
    """Return p and Holm's p of a claim whose pairs all have to hold: those of the pair with the largest."""
    # All must hold at once (an intersection-union test), so each may be tested at the full level: no factor.
    tested = [found for found in findings if not math.isnan(found.p)]
    if not tested:
        return math.nan, math.nan

    # NaN if a pair is not in the table of comparisons: then ``apply_holm`` corrects the claim as a whole.
    p_holm = math.nan
    if all(not math.isnan(found.p_holm) for found in tested):
        p_holm = max(found.p_holm for found in tested)
    return max(found.p for found in tested), p_holm


def require_min_seeds(finding: Finding, seeds: int) -> Finding:
    """Return the finding, which is undecided with fewer than ``MIN_SEEDS`` training seeds in an arm."""
    if seeds >= MIN_SEEDS or finding.verdict in ("not here", "open"):
        return finding
    return finding.as_undecided(f"needs at least {MIN_SEEDS} training seeds, has {seeds}")


def apply_holm(rows: Sequence[Row]) -> list[Row]:
    """Return rows of the table ``claims`` with verdicts that remain after Holm's correction.

    A family is what one table of a study shows: rows of one environment and split, those on the course of training apart
    (their ``measure`` is ``training``), and those that are not on the paper's method apart (``method_of_paper``). Rows with
    the same numbers are one test. ``seeds_needed`` is scaled to the level of a family's smallest p.

    Args:
        rows: as the rules give them, with the fields of ``Finding``; rows without ``p`` are left as they are.

    Returns:
        New rows with ``p_adjusted``. One that is not below 5 % makes ``holds`` and ``fails`` ``undecided``.
    """
    # By the key of a test, not a list: one comparison may answer several claims, and counting it for each
    # would correct for tests that were not made.
    families: dict[Hashable, dict[Hashable, float]] = {}
    for row in rows:
        if not math.isnan(row.get("p", math.nan)):
            families.setdefault(_family(row), {})[_test_key(row)] = row["p"]

    adjusted = {}
    for family, p_of_test in families.items():
        p_values = adjust_by_holm(list(p_of_test.values()))
        adjusted[family] = dict(zip(p_of_test, p_values, strict=True))
    return [_correct_row(row, adjusted.get(_family(row), {})) for row in rows]


def _family(row: Row) -> Hashable:
    is_training = row.get("measure") == "training"
    return row.get("env"), row.get("split"), is_training, row.get("method_of_paper", True)


def _describe_family(row: Row) -> str:
    """Return the question of a family, in words."""
    subject = (
        "the course of training" if row.get("measure") == "training" else f"split {row.get('split')}"
    )
    methods = (
        "the paper's method" if row.get("method_of_paper", True) else "presets that replace a part of it"
    )
    return f"Which claims hold of {methods}, {row.get('env')}, {subject}?"


def _test_key(row: Row) -> Hashable:
    names = ["policy", "preset", "measure", "measured", "low", "high", "p"]
    # A rank test has no numbers but p, of which few seeds allow only some: different comparisons share them.
    if math.isnan(row.get("measured", math.nan)):
        names += ["claim", "detail"]
    return tuple(str(row.get(name)) for name in names)


def _correct_row(row: Row, family: Mapping[Hashable, float]) -> Row:
    verdict = row["verdict"]
    detail = row.get("detail", "")
    p_adjusted = row.get("p_holm", math.nan)
    # What the table of comparisons has corrected keeps its verdict: one number has one. It stays a member of the claims'
    # family, which makes the correction of the others no weaker.
    corrected_in = {"family": row.get("family", ""), "tests": row.get("tests", math.nan)}
    if math.isnan(p_adjusted):
        p_adjusted = family.get(_test_key(row), math.nan)
        if not math.isnan(p_adjusted):
            corrected_in = {"family": _describe_family(row), "tests": float(len(family))}
        if verdict in ("holds", "fails") and p_adjusted >= LEVEL:
            verdict = "undecided"
            detail = join_details(detail, describe_correction(row["p"], p_adjusted, len(family)))

    seeds_needed = row.get("seeds_needed", math.nan)
    if not math.isnan(seeds_needed):
        scaled = _scale_to_family(seeds_needed, len(family))
        is_useful = verdict == "undecided" and scaled <= MAX_SEEDS
        seeds_needed = float(scaled) if is_useful else math.nan
    return {
        **row,
        **corrected_in,
        "verdict": verdict,
        "detail": detail,
        "p_adjusted": p_adjusted,
        "seeds_needed": seeds_needed,
    }


def describe_correction(p: float, p_adjusted: float, tests: int) -> str:
    """Return the words for a verdict that Holm's correction takes back."""
    return f"p is {p:.2g}, and {p_adjusted:.2g} by Holm's correction for {tests} tests"


def _scale_to_family(seeds_needed: float, tests: int) -> int:
    """Return the training seeds that are needed at the level of a family's smallest p."""
    # By the normal quantiles of the two levels: tests are few where it matters, and the effect is an estimate anyway.
    power = stats.norm.isf(1 - POWER)
    # Seeds grow with the square of the sum of both quantiles, that of the level and that of the power.
    corrected = stats.norm.isf(LEVEL / max(1, tests) / 2) + power
    alone = stats.norm.isf(LEVEL / 2) + power
    scale = float((corrected / alone) ** 2)
    return math.ceil(seeds_needed * scale)
