"""A game as it lies on disk."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from threespo.errors import InputError

_PUT = re.compile(r'template\s*::\s*"(?:(put) \{\w+\} in/on|(move) \{\w+\} to) \{')
"""The command template of putting things down."""


class TaskTargets(NamedTuple):
    """What a task is about, as ``pddl_params`` of ``traj_data.json`` names it; empty texts where it has no such part."""

    object_target: str
    parent_target: str
    toggle_target: str
    mrecep_target: str


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
    stated: TaskTargets | None = None
    """What ``traj_data.json`` says the task is about, where the id says something else."""
    annotations: tuple[str, ...] = ()
    """How people put the task, sentences of ``turk_annotations``; empty if unknown."""

    @property
    def where(self) -> str:
        """Name the game in error messages."""
        return f"game {self.split}/{self.game_id}"

    @property
    def content(self) -> str:
        """What the game is about: its goal sentence and the lines of its problem in alphabetical order, without its name."""
        lines = map(str.strip, self.problem.splitlines())
        facts = sorted(line for line in lines if "(problem" not in line)
        return "\n".join([self.goal, *facts])

    @property
    def wording(self) -> str:
        """``put`` (put X in/on Y; releases up to 2.1.1), ``move`` (move X to Y), or ``other``."""
        found = _PUT.search(self.grammar)
        return found[1] or found[2] if found else "other"

    @property
    def targets(self) -> TaskTargets:
        """What the task is about.

        Raises:
            InputError: if no file states it, and the id is not of the form ``TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE/TRIAL``.
        """
        found = self.stated or parse_targets(self.game_id, self.task_type)
        if found is None:
            raise InputError(
                f"{self.where}: its folder is not named TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE, and no traj_data.json says "
                "what the task is about"
            )
        return found


def parse_targets(game_id: str, task_type: str) -> TaskTargets | None:
    """Return what a game's id says of its task; ``None`` if it has another form than those of the release."""
    parts = game_id.split("/")[0].split("-")
    if len(parts) != 5:
        return None
    thing, movable, place = ("" if part == "None" else part for part in parts[1:4])
    lamp = task_type == "look_at_obj_in_light"
    return TaskTargets(thing, "" if lamp else place, place if lamp else "", movable)
