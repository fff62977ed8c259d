"""Replay reference cases of the paper's equations: score, allocation, reward, counts, transitions, advantages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from threespo.scoring.reward import group_advantages, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable
from threespo.verify import Report, read_cases, timed_report

Case = dict[str, Any]
_TOLERANCE = 1e-8


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare every case."""
    with timed_report("scoring") as report:
        for case in read_cases(file, ("kind", "input", "expected")):
            values = _COMPARISONS[case["kind"]](case)
            errors = [_deviation(value, expected) for value, expected in values]
            report.add_case(all(error <= _TOLERANCE for error in errors), max(errors))
    return report


def _deviation(value: Any, expected: Any) -> float:
    """Return the deviation relative to max(1, |expected|); exact kinds deviate by 0 or infinity."""
    if isinstance(expected, float) and isinstance(value, float | int):
        return abs(value - expected) / max(1.0, abs(expected))
    return 0.0 if value == expected else float("inf")


def _read_settings(given: Case) -> ScoreSettings:
    return ScoreSettings(given["alpha"], given["xi"], given["zeta"], given["eps"], given["g_max"])


def _read_table(counts: dict[str, list[float]]) -> StateTable:
    """Return the table of a reference: (N_total, N_success) of each state."""
    return StateTable({key: (float(total), float(won)) for key, (total, won) in counts.items()})


def _compare_score(case: Case) -> list[tuple[Any, Any]]:
    given = case["input"]
    expected = case["expected"]
    found = state_score(given["n_total"], given["n_success"], given["depth"], _read_settings(given))
    # Where the allocation is a whole number before rounding, eps alone decides which way it is rounded; the number of
    # samples must then be that of the limit eps -> 0.
    rollouts = expected["n_rollouts_eps0"] if case.get("boundary") else expected["n_rollouts"]
    pairs: list[tuple[Any, Any]] = [
        (found.rollouts, rollouts),
        (found.gated, expected["gated"]),
        (found.success_rate, expected["success_rate"]),
        (found.score, expected["score"]),
    ]
    # Tiny scores must also be right relative to themselves, not only within an absolute tolerance.
    if expected["score"]:
        pairs.append((found.score / expected["score"], 1.0))
    return pairs


def _compare_reward(case: Case) -> list[tuple[Any, Any]]:
    given = case["input"]
    expected = case["expected"]
    omega = novelty_weight(given["n_total"], given["omega_k"])

    reward = step_reward(
        omega=omega,
        novel=bool(given["novel"]),
        score=given["score_t"],
        next_score=given["score_next"],
        success=bool(given["success"]),
    ).total
    # The penalty for malformed responses is no term of eq. 2: it is subtracted from the reward.
    penalised = reward - given["invalid_penalty"] * given["invalid"]
    return [
        (omega, expected["omega"]),
        (reward, expected["reward"]),
        (penalised, expected["reward_with_penalty"]),
    ]


def _compare_counts(case: Case) -> list[tuple[Any, Any]]:
    table = _read_table(case["input"]["initial"])
    for path in case["input"]["paths"]:
        # As printed, a path that ends at a gated state is not counted.
        if path["outcome"] != "gated":
            table.add_path(path["obs"], path["outcome"] == "success")
    table.commit()
    counts = {key: list(pair) for key, pair in table.counts.items()}
    return [(counts, case["expected"])]


def _compare_transition(case: Case) -> list[tuple[Any, Any]]:
    given = case["input"]
    expected = case["expected"]
    table = _read_table(given["table"])
    settings = _read_settings(given)
    depth = len(given["prefix"])

    def score(key: str, depth: int) -> StateScore:
        total, won = table.get(key)
        return state_score(total, won, depth, settings)

    # The depth of a state is the number of states up to it, so the next one is a step deeper.
    state = given["prefix"][-1]
    before = score(state, depth)
    after = score(given["next_obs"], depth + 1)

    # Novel is what this trajectory has not seen yet; the weight of novelty falls with the count of the state it left.
    omega = novelty_weight(table.get(state)[0], given["omega_k"])
    novel = given["next_obs"] not in given["prefix"]
    reward = step_reward(
        omega=omega,
        novel=novel,
        score=before.score,
        next_score=after.score,
        success=bool(given["success"]),
    ).total
    return [
        (before.score, expected["score_t"]),
        (before.gated, expected["gated_t"]),
        (before.rollouts, expected["n_rollouts_t"]),
        (after.score, expected["score_next"]),
        (after.gated, expected["gated_next"]),
        (int(novel), expected["novel"]),
        (omega, expected["omega"]),
        (reward, expected["reward"]),
    ]


def _compare_advantage(case: Case) -> list[tuple[Any, Any]]:
    given = case["input"]
    expected = case["expected"]
    rewards = given["rewards"]
    eps = given["eps"]
    floored = group_advantages(rewards, given["std_floor"], eps)
    plain = group_advantages(rewards, 0.0, eps)
    zeros = [0.0] * len(rewards)

    # Both return None for a group that is not learned from; the reference has zeros there.
    return [
        (floored is None, expected["skipped"]),
        *zip(floored or zeros, expected["advantages"], strict=True),
        *zip(plain or zeros, expected["advantages_no_floor"] or zeros, strict=True),
    ]


_COMPARISONS: dict[str, Callable[[Case], list[tuple[Any, Any]]]] = {
    "score": _compare_score,
    "reward": _compare_reward,
    "counts": _compare_counts,
    "transition": _compare_transition,
    "advantage": _compare_advantage,
}
