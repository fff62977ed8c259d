"""Claims on what searches do, by recorded trees (``results/search_facts.py``) and by probes of frozen policies."""

import math

from threespo.results.claims.arms import Arms, Run
from threespo.results.claims.finding import Evidence, Finding
from threespo.results.claims.rules import Loops, OfSearches, Probe
from threespo.results.claims.seeds import mean, test_difference, test_mean

WELL_KNOWN = 20
"""Visits from which on a state's counted rate is compared with its true one."""


def of_searches(rule: OfSearches, arms: Arms, evidence: Evidence) -> Finding:
    """Decide a rule on recorded trees or on probed states.

    Args:
        rule: the rule.
        arms: where its rows are.
        evidence: the study's results.
    """
    if isinstance(rule, Probe):
        probed = arms.of(evidence.probes, "snapshot")
        return (
            _probe(rule, probed[rule.row])
            if rule.row in probed
            else Finding("not here", detail="no state was probed")
        )

    runs = arms.of(evidence.searches, "training_seed")
    if isinstance(rule, Loops):
        if not {rule.upper, rule.lower} <= set(runs):
            return Finding("not here")
        upper, lower = (
            [100.0 * float(run["back"].iloc[0]) for run in runs[row]] for row in (rule.upper, rule.lower)
        )
        words = f"{mean(upper):.1f} and {mean(lower):.1f} % of sampled steps lead back"
        return test_difference(upper, lower).said(words)
    return _fewer(runs[rule.row]) if rule.row in runs else Finding("not here")


def _fewer(runs: list[Run]) -> Finding:
    """Decide by how many fewer different next states the tenth expansion has, as a mean over a seed's states."""
    whole = [run.iloc[0] for run in runs]
    if any(run["states"] == 0 for run in whole):
        return Finding("unclear", detail="a run recorded no state that was expanded ten times")
    found = test_mean([float(run["next_first"] - run["next_tenth"]) for run in whole])
    first, tenth, before = (
        mean([float(run[name]) for run in whole]) for name in ("next_first", "next_tenth", "met_before")
    )
    words = f"{first:.2f} and {tenth:.2f} different next states, {before:.0%} of the latter met before"
    return found.said(words)


def _probe(rule: Probe, runs: list[Run]) -> Finding:
    """Decide by each seed's success of gated states, or by the root mean square of its states' biases; in points."""
    values, states = [], 0
    for run in runs:
        if rule.measure == "gated":
            part = run[run["gated"].astype(bool)]
            of_states = part["successes"] / part["continuations"]
        else:
            part = run[(run["snapshot"] == run["snapshot"].max()) & (run["visits"] >= WELL_KNOWN)]
            counted, true = (
                part["counted_successes"] / part["visits"],
                part["successes"] / part["continuations"],
            )
            # Squares, since states that are over- and underrated would cancel; less what chance alone adds to them.
            chance = counted * (1 - counted) / (part["visits"] - 1) + true * (1 - true) / (
                part["continuations"] - 1
            )
            of_states = (counted - true) ** 2 - chance
        states += len(part)
        mean = float(of_states.mean()) if len(part) else math.nan
        values.append(
            100.0
            * (mean if rule.measure == "gated" else math.sqrt(max(0.0, mean)) if len(part) else math.nan)
        )

    kind = "gated states" if rule.measure == "gated" else f"states with {WELL_KNOWN} visits"
    if any(math.isnan(value) for value in values):
        return Finding(
            "unclear",
            detail=f"{sum(map(math.isnan, values))} of {len(values)} runs have no {kind} among those probed",
        )
    found = test_mean(values, rule.bound, below=True)
    words = f"{states} {kind}; " + (
        "true success" if rule.measure == "gated" else "how far counted rates are off"
    )
    return found.said(words)
