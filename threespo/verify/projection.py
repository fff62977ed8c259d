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
            named = [name for name in ENVIRONMENTS if name in case]
            # A case that names no environment would compare nothing, so it counts as a mismatch.
            equal = bool(named)
            for name in named:
                # The environments differ in how much of a response without tags becomes the action.
                found = parse_response(case["raw"], environment(name).text.fallback_length)
                expected = case[name]
                equal &= found == (expected["action"], bool(expected["valid"]))
            report.add_case(equal)
    return report
