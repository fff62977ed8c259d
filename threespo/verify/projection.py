"""Replay reference projections of raw responses to actions."""

from pathlib import Path

from threespo.envs.parsing import parse_response
from threespo.verify import Report, read_cases, timed_report


def verify(file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None) -> Report:
    """Compare action and format validity of every raw output of ``file``, for both environments' rules."""
    with timed_report("projection") as report:
        for case in read_cases(file, ("raw", "alfworld", "webshop")):
            report.count(
                all(
                    parse_response(case["raw"], env) == (case[env]["action"], bool(case[env]["valid"]))
                    for env in ("alfworld", "webshop")
                )
            )
    return report
