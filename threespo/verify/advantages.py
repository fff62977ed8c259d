"""Replay reference advantages of group-relative estimators."""

from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.methods.advantages import Population, grpo
from threespo.verify import Report, read_cases, timed_report, within

ESTIMATORS = ("grpo",)


def verify(file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None) -> Report:
    """Compare every step's advantage, with the float32 reference or, where that is noise, with the exact value."""
    if only is not None and only not in ESTIMATORS:
        raise InputError(f"--only {only}: no such estimator here; there are: {', '.join(ESTIMATORS)}")
    with timed_report("advantages") as report:
        for case in read_cases(file, ("estimator", "params", "groups", "expected", "expected_exact", "float_sensitive")):
            if case["estimator"] == (only or case["estimator"]):
                report.count(*_compare(case))
    return report


def _compare(case: dict[str, Any]) -> tuple[bool, float]:
    if case["estimator"] not in ESTIMATORS:
        raise InputError(f"estimator {case['estimator']!r} is not available; choose one with --only {ESTIMATORS[0]}")
    params = case["params"]
    population: Population = "rows" if params["compute_mean_std_cross_steps"] else "first_rows"
    values: list[list[float]] = []
    for group in case["groups"]:
        scores = [[step["score"] for step in trajectory["steps"]] for trajectory in group["trajectories"]]
        normalise = params["mode"] == "mean_std_norm"
        values += grpo(scores, population=population, normalise=normalise, eps=params["epsilon"])
    sensitive = {tuple(pair) for pair in case["float_sensitive"]}
    equal, worst = True, 0.0
    for t, (got, exact, reference) in enumerate(zip(values, case["expected_exact"], case["expected"], strict=True)):
        for s, value in enumerate(got):
            equal &= within(value, exact[s], 1e-6)
            equal &= (t, s) in sensitive or within(value, reference[s], 1e-4)
            worst = max(worst, abs(value - exact[s]))
    return equal, worst
