"""Replay reference advantages of group-relative estimators."""

from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.methods.advantages import (
    Population,
    Steps,
    gigpo_advantages,
    grpo_advantages,
    hgpo_advantages,
    rloo_advantages,
)
from threespo.verify import Report, is_within, read_cases, timed_report

ESTIMATORS = ("grpo", "rloo", "gigpo", "hgpo")


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare every step's advantage with the exact value, and with the float32 reference where that is not noise.

    Args:
        file: cases, one a line: an estimator, its parameters, groups of trajectories, and the expected advantages.
        only: the one estimator to check; None checks all.

    Raises:
        InputError: if the file is broken, or an estimator does not exist here.
    """
    if only is not None and only not in ESTIMATORS:
        raise InputError(f"--only {only}: no such estimator here; there are: {', '.join(ESTIMATORS)}")
    with timed_report("advantages") as report:
        for case in read_cases(
            file, ("estimator", "params", "groups", "expected", "expected_exact", "float_sensitive")
        ):
            if case["estimator"] == (only or case["estimator"]):
                report.add_case(*_compare(case))
    return report


def _compare(case: dict[str, Any]) -> tuple[bool, float]:
    """Return whether all advantages of a case agree, and the largest deviation from the exact ones."""
    # Advantages step by step, one list for each trajectory; the reference numbers trajectories over all groups.
    advantages: list[list[float]] = []
    for group in case["groups"]:
        advantages += _estimate(case["estimator"], case["params"], _steps(group))

    # (trajectory, step) where rounding in float32 decides the reference's value: a group of nearly equal returns is
    # divided by a standard deviation that is rounding error alone.
    sensitive = {tuple(pair) for pair in case["float_sensitive"]}

    equal = True
    worst = 0.0
    expected = zip(advantages, case["expected_exact"], case["expected"], strict=True)
    for trajectory, (found, exact, reference) in enumerate(expected):
        for step, value in enumerate(found):
            equal &= is_within(value, exact[step], 1e-6)
            # The reference computes in float32, so its own values are good to about 1e-4.
            equal &= (trajectory, step) in sensitive or is_within(value, reference[step], 1e-4)
            worst = max(worst, abs(value - exact[step]))
    return equal, worst


def _steps(group: dict[str, Any]) -> list[Steps]:
    return [
        Steps(
            keys=[step["obs_key"] for step in trajectory["steps"]],
            scores=[step["score"] for step in trajectory["steps"]],
            # Only cases of methods that use step returns have them.
            step_returns=[step.get("step_return", 0.0) for step in trajectory["steps"]],
            episode_return=trajectory["episode_return"],
        )
        for trajectory in group["trajectories"]
    ]


def _estimate(estimator: str, params: dict[str, Any], group: list[Steps]) -> list[list[float]]:
    # The official code's name for "a trajectory counts once for each of its steps", which is its default.
    population: Population = "rows" if params.get("compute_mean_std_cross_steps", True) else "first_rows"
    if estimator == "rloo":
        return rloo_advantages(group, population=population)

    # The other mode, ``mean_norm``, subtracts the mean only.
    normalise = params["mode"] == "mean_std_norm"
    eps = params["epsilon"]
    if estimator == "grpo":
        return grpo_advantages(group, population=population, normalise=normalise, eps=eps)
    if estimator == "gigpo":
        weight = params["step_advantage_w"]
        return gigpo_advantages(
            group, population=population, normalise=normalise, step_weight=weight, eps=eps
        )
    if estimator == "hgpo":
        return hgpo_advantages(
            group,
            population=population,
            normalise=normalise,
            history=params["history_length"],
            alpha=params["length_weight_alpha"],
            base_group=params["base_group"],
            eps=eps,
        )
    raise InputError(f"estimator {estimator!r} is not available; there are: {', '.join(ESTIMATORS)}")
