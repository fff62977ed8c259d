"""Dumps of verl and verl-agent (``input``, ``output``, ``score``), whose lines are episodes or, in verl-agent, steps.

verl-agent gives each step of an episode the reward of the whole episode, 10 or 0, less a penalty where the action was
invalid. An episode's first step is recognised by its prompt, so steps may be in any order, as balancing batches leaves them.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_files import Row
from threespo.panels.log_forms import TASK, Fields
from threespo.panels.openings import find_goals, find_opening
from threespo.panels.responses import starts_inside_thought, tagged_actions, wordings_of

WON = 10.0
# Penalties for invalid actions are far smaller, so this separates an episode that was won from one that was not.
_HALF = 5.0
_IDS = ("traj_uid", "traj_id", "trajectory_id", "episode_id", "rollout_id")
_TAKEN = re.compile(r"you have already taken (\d+) step")
_NOW = re.compile(r"You are now at step (\d+)")
_SEARCH = re.compile(r"current observation is:\s*'Search'")
_PAGE = re.compile(r"current observation is:\s*'")


@dataclass(frozen=True, slots=True)
class Line:
    """What a line of a dump says of its episode. Long texts are dropped, except the prompt of a possible first step."""

    row: Row
    """Without its texts."""
    prompt: str
    task: str
    """What its prompt or a field says of the task; empty where nothing does."""
    position: int | None
    """Of the step in its episode, from 1 on; ``None`` where the prompt does not say."""
    begins: bool
    """Whether its observation is the first of an episode."""
    page: bool
    """Whether its observation is a page of a shop, and not the first."""
    won: bool
    penalised: bool
    actions: tuple[str, ...]
    """Those that are tagged."""
    wordings: frozenset[str]
    penalised_thought: bool
    """Whether it was penalised, and its response closes a thought that the prompt had opened."""
    step: Any
    """Of the field of this name: verl's training step, the same in all lines of a file; in others' files, the episode's."""
    part_of: str | None
    """Id of the trajectory, where ids are dumped."""


def is_dumped(value: Fields) -> bool:
    """Return whether an entry is of such a dump."""
    return {"input", "output", "score"} <= value.keys() and "success" not in value and "won" not in value


def parse_line(row: Row) -> Line:
    """Return what a line of a dump says.

    Raises:
        InputError: if its score is none of an episode.
    """
    value = row.value
    score = value["score"]
    known = isinstance(score, int | float) and not isinstance(score, bool)
    if not known or not (_HALF < score <= WON or -_HALF < score <= 0):
        raise InputError(
            f"{row.where}: field 'score' is {score!r}; in a dump of verl-agent it is the episode's reward, {WON:g} or 0, "
            f"less a penalty for invalid actions ({WON - 0.1:g}, -0.1)"
        )
    prompt = str(value["input"])
    response = str(value["output"])
    position = _position_in(prompt)
    opening = find_opening(prompt)
    begins = position is None and bool(_SEARCH.search(prompt) or (opening and opening.room))
    named = next(
        (value[name] for name in TASK if isinstance(value.get(name), str) and value[name].strip()), None
    )
    ids = next((value[name] for name in _IDS if value.get(name) is not None), None)
    penalised = score not in (0, WON)
    return Line(
        row=row._replace(
            value={name: one for name, one in value.items() if name not in ("input", "output")}
        ),
        prompt=prompt if position in (None, 1) else "",
        task=named or next(iter(find_goals(prompt)[-1:]), ""),
        position=position,
        begins=begins,
        page=bool(_PAGE.search(prompt)) and not begins,
        won=score > _HALF,
        penalised=penalised,
        actions=tuple(tagged_actions(response)),
        wordings=wordings_of([response]),
        penalised_thought=penalised and starts_inside_thought(response),
        step=value.get("step") if isinstance(value.get("step"), int) else str(value.get("step")),
        part_of=None if ids is None else str(ids),
    )


def _position_in(prompt: str) -> int | None:
    # The sentences of verl-agent's templates with history; the template of a first step has neither.
    taken = _TAKEN.search(prompt)
    if taken:
        return int(taken[1]) + 1
    now = _NOW.search(prompt)
    return int(now[1]) if now else None


def join_steps(lines: Sequence[Line]) -> Iterator[Row]:
    """Yield the episodes of a dump, with fields in our own names.

    Raises:
        InputError: if the lines are steps and cannot be those of whole episodes.
    """
    if _counts_steps(lines):
        first = min(line.step for line in lines)
        lines = [
            replace(line, step=None, position=line.position or line.step - first + 1) for line in lines
        ]
    if all(line.part_of for line in lines):
        for part in _groups(lines, lambda line: (line.step, line.part_of)):
            yield _episode(part, min(part, key=lambda line: line.position or 1))
    elif any((line.position or 0) > 1 for line in lines):
        yield from _by_position(lines)
    elif _are_steps(lines):
        yield from (_episode(part, part[0]) for part in _in_order(lines))
    else:
        yield from (_episode([line], line, of_steps=False) for line in lines)


def _counts_steps(lines: Sequence[Line]) -> bool:
    """Return whether the field ``step`` counts the steps of an episode: it rises by one in the lines of one task."""
    if not all(isinstance(line.step, int) for line in lines):
        return False
    # verl's training step is the same in all lines of a file, so its differences are zero.
    rises = []
    for previous, line in itertools.pairwise(lines):
        if line.task == previous.task:
            rises.append(line.step - previous.step)
    return rises.count(1) > rises.count(0)


def _are_steps(lines: Sequence[Line]) -> bool:
    """Return whether lines that do not count steps are steps: none has two actions, and none is won by fewer than two."""
    if any(len(line.actions) > 1 for line in lines):
        return False
    return any(line.penalised or (line.won and len(line.actions) == 1) for line in lines)


def _by_position(lines: Sequence[Line]) -> Iterator[Row]:
    """Yield an episode for each first step; the later steps of a task that ended alike can be of any of them."""
    for part in _groups(lines, lambda line: (line.step, line.task, line.won)):
        # A long prompt of a shop is written without its history, and so without a number.
        numbered = [1 if line.position is None and not line.page else line.position for line in part]
        counts = Counter(number for number in numbered if number is not None)
        spare = numbered.count(None)
        for position in range(2, max(counts, default=1) + 1):
            spare -= max(0, counts[position] - counts[position - 1])
        firsts = [line for line, number in zip(part, numbered, strict=True) if number == 1]
        if spare < 0 or not firsts:
            raise InputError(
                f"{part[0].row.where}: the lines are steps, and more of this task are at a later step than at an earlier: "
                "steps were left out or copied, as verl-agent fills up training batches; audit a validation dump"
            )
        yield from (_episode(part, first, whole=len(firsts) == 1) for first in firsts)


def _in_order(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the steps of each episode, where they follow each other and do not give their position."""
    part: list[Line] = []
    for line in lines:
        if part and not _goes_on(part[-1], part[0], line):
            yield part
            part = []
        part.append(line)
    yield part


def _goes_on(last: Line, first: Line, line: Line) -> bool:
    if (line.step, line.won) != (first.step, first.won) or line.task not in ("", first.task):
        return False
    # Games say their task in the first prompt only, where prompts have no history.
    if line.begins and (not last.task or last.page):
        # The start page of a shop appears in the middle of an episode after this click only.
        return "back to search" in " ".join(last.actions).lower()
    return True


def _groups(lines: Sequence[Line], key: Any) -> list[list[Line]]:
    found: defaultdict[Any, list[Line]] = defaultdict(list)
    for line in lines:
        found[key(line)].append(line)
    return list(found.values())


def _episode(part: Sequence[Line], first: Line, *, of_steps: bool = True, whole: bool = True) -> Row:
    """Return an episode.

    Args:
        part: its lines.
        first: the one that says what the task is.
        of_steps: whether each line is a step.
        whole: whether all lines are of this one episode.
    """
    value = {
        **first.row.value,
        "score": None,
        "success": first.won,
        "steps": len(part) if of_steps and whole else None,
        "texts": [first.prompt],
        "wordings": frozenset().union(*(line.wordings for line in part)),
        "penalised_thoughts": sum(line.penalised_thought for line in part)
        if whole or first is part[0]
        else 0,
    }
    return first.row._replace(value=value)
