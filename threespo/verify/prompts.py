"""Replay reference prompts: our template must give the same bytes."""

from pathlib import Path

from threespo.envs.prompts import alfworld_prompt
from threespo.verify import Report, read_cases, timed_report


def verify(file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None) -> Report:
    """Compare every ALFWorld prompt of ``file`` byte for byte; rows of environments not yet built are not counted."""
    with timed_report("prompts") as report:
        for case in read_cases(file, ("env", "history_length", "task", "history", "observation", "prompt")):
            if case["env"] != "alfworld":
                continue
            history = [(step["observation"], step["action"]) for step in case["history"]]
            prompt = alfworld_prompt(
                case["task"], case["observation"], case["admissible_commands"], history, case["history_length"]
            )
            report.count(prompt == case["prompt"])
    return report
