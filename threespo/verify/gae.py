"""Replay reference cases of generalised advantage estimation: advantages and returns, whitened, with and without a tail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from threespo.methods.gae import generalised_advantages, whiten_advantages
from threespo.verify import Report, read_cases, timed_report

_FIELDS = (
    "gamma",
    "lam",
    "rewards",
    "values",
    "response_mask",
    "advantages",
    "returns",
    "advantages_tail_zeroed",
)
_TOLERANCE = 1e-6


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare the tokens of every case's responses, relative to max(1, |expected|)."""
    with timed_report("gae") as report:
        for case in read_cases(file, _FIELDS):
            error = max(_deviations(case))
            report.add_case(error <= _TOLERANCE, error)
    return report


def _deviations(case: dict[str, Any]) -> Iterator[float]:
    # verl's code bootstraps from the padding's value after the last token; with the tail at 0 it is textbook GAE.
    for suffix, keep_tail in (("", True), ("_tail_zeroed", False)):
        advantages: list[list[float]] = []
        returns: list[list[float]] = []
        for row in range(len(case["rewards"])):
            rewards, values = _response(case, row)
            tail = _tail(case, row) if keep_tail else 0.0
            row_advantages, row_returns = generalised_advantages(
                rewards, values, gamma=case["gamma"], lam=case["lam"], tail=tail
            )
            advantages.append(row_advantages)
            returns.append(row_returns)

        # Whitened over the tokens of all responses together, as the reference does it.
        yield from _compare(case, f"advantages{suffix}", whiten_advantages(advantages))
        yield from _compare(case, f"returns{suffix}", returns)


def _response(case: dict[str, Any], row: int) -> tuple[list[float], list[float]]:
    """Return rewards and values of a response's tokens, without padding."""
    length = sum(case["response_mask"][row])
    return case["rewards"][row][:length], case["values"][row][:length]


def _tail(case: dict[str, Any], row: int) -> float:
    """Return the value after the last token; a response as wide as the batch has none."""
    values = case["values"][row]
    length = sum(case["response_mask"][row])
    return float(values[length]) if case["values_after_last_token"] and length < len(values) else 0.0


def _compare(case: dict[str, Any], name: str, found: list[list[float]]) -> Iterator[float]:
    for row, values in enumerate(found):
        # Not strict: the reference pads responses to the width of the batch.
        for value, expected in zip(values, case[name][row], strict=False):
            yield abs(value - expected) / max(1.0, abs(expected))
