"""What the environments' prompt templates have in common."""

from collections.abc import Sequence
from typing import Protocol


class PromptTemplate(Protocol):
    """Writes the prompt for the next action; with the three last arguments left out, the paper's."""

    def __call__(
        self,
        goal: str,
        observation: str,
        admissible: Sequence[str],
        history: Sequence[tuple[str, str]],
        history_length: int,
        *,
        lines: Sequence[str] | None = None,
        instruction: str | None = None,
        preface: str = "",
    ) -> str:
        """Return the prompt.

        Args:
            goal: the instruction.
            observation: the current observation.
            admissible: admissible actions.
            history: all (observation, action) pairs of the episode so far, oldest first.
            history_length: how many of the last pairs are shown.
            lines: a line for each pair of ``history``, in place of the template's own.
            instruction: what to do now, in place of the template's request for reasoning and an action.
            preface: a text before the instruction.
        """
        ...


def format_history(history: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return the templates' lines of the last pairs of a history, numbered from its beginning.

    Args:
        history: all (observation, action) pairs, oldest first.
        count: how many lines.
    """
    # The format of verl-agent's SimpleMemory, which its templates include.
    return [
        f"[Observation {number}: '{seen}', Action {number}: '{action}']"
        for number, (seen, action) in enumerate(history[-count:], start=len(history) - count + 1)
    ]
