"""Measures of what searches do, by recorded trees (``analysis/search_facts.py``) and by probes of frozen policies."""

import math

from threespo.results.claims.evidence import Evidence, RowRuns, Run
from threespo.results.claims.finding import Finding
from threespo.results.claims.seeds import mean, test_difference, test_mean

MIN_VISITS = 20
"""Visits from which on a state's counted rate is compared with its true one."""

MIN_RANKED = 3
"""Fewest states that are ranked."""


def compare_loops(runs: RowRuns, evidence: Evidence, upper: str, lower: str) -> Finding:
    """Decide by the percentage of sampled steps that lead back to what their path has shown before."""
    by_row = runs.select(evidence.searches, "training_seed")
    if not {upper, lower} <= set(by_row):
        return Finding("not here")
    upper_percent = [100.0 * float(run["back"].iloc[0]) for run in by_row[upper]]
    lower_percent = [100.0 * float(run["back"].iloc[0]) for run in by_row[lower]]
    words = f"{mean(upper_percent):.1f} and {mean(lower_percent):.1f} % of sampled steps lead back"
    return test_difference(upper_percent, lower_percent, units=runs.units).with_detail(words)


def compare_next_states(runs: RowRuns, evidence: Evidence, row: str) -> Finding:
    """Decide by how many fewer different next states the tenth expansion has, as a mean over a seed's states."""
    by_row = runs.select(evidence.searches, "training_seed")
    if row not in by_row:
        return Finding("not here")
    facts = [run.iloc[0] for run in by_row[row]]
    if any(fact["states"] == 0 for fact in facts):
        return Finding("undecided", detail="a run recorded no state that was expanded ten times")

    # Paired within a seed: both numbers are means over the same states.
    found = test_mean([float(fact["next_first"] - fact["next_tenth"]) for fact in facts])
    first, tenth, met_before = (
        mean([float(fact[name]) for fact in facts])
        for name in ("next_first", "next_tenth", "met_before")
    )
    return found.with_detail(
        f"{first:.2f} and {tenth:.2f} different next states, {met_before:.0%} of the latter met before"
    )


def test_gated_success(runs: RowRuns, evidence: Evidence, row: str, bound: float) -> Finding:
    """Decide by whether the true success from states whose gate is closed is below ``bound`` points."""
    # True success is that of the frozen policy's continuations; the gate's counts have older policies in them.
    parts = [run[run["gated"].astype(bool)] for run in _probed_runs(runs, evidence, row)]
    values = []
    for part in parts:
        success = part["successes"] / part["continuations"]
        values.append(100.0 * float(success.mean()) if len(part) else math.nan)
    return _test_probed(parts, values, bound, "gated states", "true success")


def correlate_scores_with_success(runs: RowRuns, evidence: Evidence, row: str) -> Finding:
    """Decide by each seed's rank correlation of the score with the true success, over open states with visits.

    States of depth 1 are left out, where S is 1 for every rate, and those without visits, which have no rate.
    """
    parts = []
    for run in _probed_runs(runs, evidence, row):
        is_open = ~run["gated"].astype(bool)
        parts.append(run[is_open & (run["visits"] > 0) & (run["depth"] > 1)])
    if not parts:
        return Finding("not here", detail="no state was probed")

    correlations = []
    for part in parts:
        true = part["successes"] / part["continuations"]
        # A rank correlation needs three states that are not all alike.
        if len(part) < MIN_RANKED or part["score"].nunique() == 1 or true.nunique() == 1:
            return Finding("undecided", detail="a run has too few open states with visits, or all alike")
        correlations.append(float(part["score"].rank().corr(true.rank())))
    words = f"rank correlation over {sum(map(len, parts))} open states"
    return test_mean(correlations, below=True).with_detail(words)


def test_count_bias(runs: RowRuns, evidence: Evidence, row: str, bound: float) -> Finding:
    """Decide by whether counted rates of well-known states are within ``bound`` points of the true ones.

    The number is the root mean square of the states' biases at the last snapshot.
    """
    parts = []
    values = []
    for run in _probed_runs(runs, evidence, row):
        at_end = run["snapshot"] == run["snapshot"].max()
        part = run[at_end & (run["visits"] >= MIN_VISITS)]
        counted = part["counted_successes"] / part["visits"]
        true = part["successes"] / part["continuations"]
        # Squares, since states that are over- and underrated would cancel; less what chance alone adds to them.
        counted_chance = counted * (1 - counted) / (part["visits"] - 1)
        true_chance = true * (1 - true) / (part["continuations"] - 1)
        squares = (counted - true) ** 2 - (counted_chance + true_chance)
        parts.append(part)
        if not len(part):
            values.append(math.nan)
            continue
        # What is left may be below 0 by chance.
        mean_square = max(0.0, float(squares.mean()))
        values.append(100.0 * math.sqrt(mean_square))
    return _test_probed(
        parts, values, bound, f"states with {MIN_VISITS} visits", "how far counted rates are off"
    )


def _probed_runs(runs: RowRuns, evidence: Evidence, row: str) -> list[Run]:
    return runs.select(evidence.probes, "snapshot").get(row, [])


def _test_probed(
    parts: list[Run], values: list[float], bound: float, kind: str, measure: str
) -> Finding:
    """Return whether a number of each seed is below a bound, in points."""
    if not parts:
        return Finding("not here", detail="no state was probed")
    # All seeds or none: a mean over those that have such states is not one over training.
    without = sum(map(math.isnan, values))
    if without:
        words = f"{without} of {len(values)} runs have no {kind} among those probed"
        return Finding("undecided", detail=words)
    states = sum(map(len, parts))
    return test_mean(values, bound, below=True).with_detail(f"{states} {kind}; {measure}")
