"""A game as it lies on disk."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GameRecord:
    """The texts of one ALFWorld game."""

    game_id: str
    """``TASK/TRIAL``: the two innermost folder names of the official layout."""
    split: str
    task_type: str
    goal: str
    """What follows "Your task is to: " in the grammar, with its final full stop."""
    domain: str
    """PDDL domain."""
    grammar: str
    """The ``twl2`` document that turns actions into commands and results into text; it holds the task sentence."""
    problem: str
    """PDDL problem: the scene and the goal."""
    walkthrough: tuple[str, ...]
    """Commands that win, empty if unknown."""

    @property
    def where(self) -> str:
        """Name the game in error messages."""
        return f"game {self.split}/{self.game_id}"
