"""Replay reference prompts: our templates must give the same bytes."""

from pathlib import Path
from typing import Any

from threespo.envs.registry import environment
from threespo.verify import Report, read_cases, timed_report
from threespo.verify.shop import listed_actions


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare every prompt of ``file`` byte for byte."""
    with timed_report("prompts") as report:
        for case in read_cases(
            file, ("env", "history_length", "task", "history", "observation", "prompt")
        ):
            report.add_case(_prompt(case) == case["prompt"])
    return report


def _prompt(case: dict[str, Any]) -> str:
    history = [(step["observation"], step["action"]) for step in case["history"]]
    # ALFWorld's reference has the admissible commands as a list, WebShop's what can be clicked and searched.
    listed = case.get("admissible_commands")
    if listed is None:
        listed = listed_actions(case["available_actions"])
    template = environment(case["env"]).text.prompt
    return template(case["task"], case["observation"], listed, history, case["history_length"])
