"""Replay reference projections of raw responses to actions."""

from pathlib import Path

from threespo.envs.parsing import parse_response
from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.verify import Report, read_cases, timed_report


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare action and format validity of every raw output of ``file``, by the rules of each environment that it names."""
    with timed_report("projection") as report:
        for case in read_cases(file, ("raw",)):
            known = [name for name in ENVIRONMENTS if name in case]
            report.add_case(
                bool(known)
                and all(
                    parse_response(case["raw"], environment(name).text.fallback_length)
                    == (case[name]["action"], bool(case[name]["valid"]))
                    for name in known
                )
            )
    return report
