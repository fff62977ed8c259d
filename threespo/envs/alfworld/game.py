"""A game as it is stored on disk."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from threespo.errors import InputError

# The command template for putting an object down.
_PUT_TEMPLATE = re.compile(r'template\s*::\s*"(?:(put) \{\w+\} in/on|(move) \{\w+\} to) \{')


class TaskTargets(NamedTuple):
    """What a task asks for, as ``pddl_params`` of ``traj_data.json`` names it; empty where it has no such part."""

    object_target: str
    parent_target: str
    toggle_target: str
    mrecep_target: str


@dataclass(frozen=True)
class GameRecord:
    """The texts of one ALFWorld game."""

    game_id: str  # ``TASK/TRIAL``: the two innermost folder names of the official layout.
    split: str
    task_type: str
    goal: str  # The text after "Your task is to: " in the grammar, with its final full stop.
    domain: str  # PDDL domain.
    # The ``twl2`` document that turns actions into commands and results into text; it holds the task sentence.
    grammar: str
    problem: str  # PDDL problem: the scene and the goal.
    walkthrough: tuple[str, ...]  # Commands that win, empty if unknown.
    # The targets in ``traj_data.json``, if the id says something else.
    stated_targets: TaskTargets | None = None
    # Task sentences by human annotators (``turk_annotations``); empty if unknown.
    annotations: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name of the game in error messages."""
        return f"game {self.split}/{self.game_id}"

    @property
    def content(self) -> str:
        """Goal sentence and the lines of the problem in alphabetical order, without the problem's name."""
        lines = map(str.strip, self.problem.splitlines())
        facts = sorted(line for line in lines if "(problem" not in line)
        return "\n".join([self.goal, *facts])

    @property
    def wording(self) -> str:
        """``put`` (put X in/on Y; releases up to 2.1.1), ``move`` (move X to Y), or ``other``."""
        match = _PUT_TEMPLATE.search(self.grammar)
        if match is None:
            return "other"
        return match[1] or match[2]

    @property
    def targets(self) -> TaskTargets:
        """The targets of the task.

        Raises:
            InputError: if no file states them, and the id is not of the form ``TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE/TRIAL``.
        """
        targets = self.stated_targets or parse_targets(self.game_id, self.task_type)
        if targets is None:
            raise InputError(
                f"{self.label}: its folder is not named TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE, and no traj_data.json says "
                "what the task is about"
            )
        return targets


def parse_targets(game_id: str, task_type: str) -> TaskTargets | None:
    """Return the targets that a game's id names; ``None`` if it has another form than those of the release."""
    parts = game_id.split("/")[0].split("-")
    if len(parts) != 5:
        return None
    object_type, movable, place = ("" if part == "None" else part for part in parts[1:4])
    # Where the task is to look at an object, the id has the lamp where others have the receptacle.
    if task_type == "look_at_obj_in_light":
        return TaskTargets(object_type, "", place, movable)
    return TaskTargets(object_type, place, "", movable)
