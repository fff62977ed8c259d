"""Dumps of verl and verl-agent (``input``, ``output``, ``score``), whose lines are episodes or, in verl-agent, steps.

verl-agent gives each step of an episode the reward of the whole episode, 10 or 0, less a penalty where the action was
invalid. An episode's first step is recognised by its prompt, so steps may be in any order, as balancing batches leaves them.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_files import LogEntry
from threespo.panels.log_forms import TASK, Fields
from threespo.panels.openings import find_goals, find_opening
from threespo.panels.responses import starts_inside_thought, tagged_actions, wordings_of

WON = 10.0
"""verl-agent's reward of an episode that was won."""
# Penalties for invalid actions are far smaller, so this separates an episode that was won from one that was not.
_HALF = 5.0
_TRAJECTORY_IDS = ("traj_uid", "traj_id", "trajectory_id", "episode_id", "rollout_id")
# Sentences of verl-agent's prompts.
_STEPS_TAKEN = re.compile(r"you have already taken (\d+) step")
_STEP_NOW = re.compile(r"You are now at step (\d+)")
_START_PAGE = re.compile(r"current observation is:\s*'Search'")
_SHOP_PAGE = re.compile(r"current observation is:\s*'")


@dataclass(frozen=True, slots=True)
class DumpLine:
    """What a line of a dump says of its episode. Long texts are dropped, except the prompt of a possible first step."""

    entry: LogEntry
    """Without its texts."""
    prompt: str
    task: str
    """What its prompt or a field says of the task; empty where nothing does."""
    position: int | None
    """Of the step in its episode, from 1 on; ``None`` where the prompt does not say."""
    is_first: bool
    """Whether its observation is the first of an episode."""
    is_later_page: bool
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
    trajectory: str | None
    """Its id, where ids are dumped."""


def is_dump_line(value: Fields) -> bool:
    """Return whether an entry is of such a dump."""
    return {"input", "output", "score"} <= value.keys() and "success" not in value and "won" not in value


def parse_dump_line(entry: LogEntry) -> DumpLine:
    """Return what a line of a dump says.

    Raises:
        InputError: if its score is none of an episode.
    """
    value = entry.value
    score = value["score"]
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    if not is_number or not (_HALF < score <= WON or -_HALF < score <= 0):
        raise InputError(
            f"{entry.where}: field 'score' is {score!r}; in a dump of verl-agent it is the episode's reward, {WON:g} or 0, "
            f"less a penalty for invalid actions ({WON - 0.1:g}, -0.1)"
        )
    prompt = str(value["input"])
    response = str(value["output"])
    position = _find_position(prompt)
    opening = find_opening(prompt)
    shows_start = bool(_START_PAGE.search(prompt) or (opening and opening.room))
    is_first = position is None and shows_start
    is_later_page = bool(_SHOP_PAGE.search(prompt)) and not is_first

    names = [value[field] for field in TASK if isinstance(value.get(field), str)]
    name = next((name for name in names if name.strip()), None)
    goal = next(iter(find_goals(prompt)[-1:]), "")
    trajectory = next((value[field] for field in _TRAJECTORY_IDS if value.get(field) is not None), None)
    penalised = score not in (0, WON)
    step = value.get("step")
    without_texts = {field: one for field, one in value.items() if field not in ("input", "output")}
    return DumpLine(
        entry=entry._replace(value=without_texts),
        # Only a first step's prompt is needed later, and a dump has many long ones.
        prompt=prompt if position in (None, 1) else "",
        task=name or goal,
        position=position,
        is_first=is_first,
        is_later_page=is_later_page,
        won=score > _HALF,
        penalised=penalised,
        actions=tuple(tagged_actions(response)),
        wordings=wordings_of([response]),
        penalised_thought=penalised and starts_inside_thought(response),
        step=step if isinstance(step, int) else str(step),
        trajectory=None if trajectory is None else str(trajectory),
    )


def _find_position(prompt: str) -> int | None:
    """Return the position of a step in its episode; ``None`` where the prompt does not say it."""
    # The sentences of verl-agent's templates with history; the template of a first step has neither.
    steps_taken = _STEPS_TAKEN.search(prompt)
    if steps_taken:
        return int(steps_taken[1]) + 1
    step_now = _STEP_NOW.search(prompt)
    return int(step_now[1]) if step_now else None


def join_steps(lines: Sequence[DumpLine]) -> Iterator[LogEntry]:
    """Yield the episodes of a dump, with fields in our own names.

    Raises:
        InputError: if the lines are steps and cannot be those of whole episodes.
    """
    if _counts_steps(lines):
        first_step = min(line.step for line in lines)
        lines = [
            replace(line, step=None, position=line.position or line.step - first_step + 1)
            for line in lines
        ]
    # From here on, the surest sign decides: ids, then positions, then order.
    if all(line.trajectory for line in lines):
        for steps in _group_lines(lines, lambda line: (line.step, line.trajectory)):
            first = min(steps, key=lambda line: line.position or 1)
            yield _make_episode(steps, first)
    elif any((line.position or 0) > 1 for line in lines):
        yield from _join_by_position(lines)
    elif _are_steps(lines):
        for steps in _split_in_order(lines):
            yield _make_episode(steps, steps[0])
    else:
        for line in lines:
            yield _make_episode([line], line, lines_are_steps=False)


def _counts_steps(lines: Sequence[DumpLine]) -> bool:
    """Return whether the field ``step`` counts the steps of an episode: it rises by one in the lines of one task."""
    if not all(isinstance(line.step, int) for line in lines):
        return False
    # verl's training step is the same in all lines of a file, so its differences are zero.
    rises = []
    for previous, line in itertools.pairwise(lines):
        if line.task == previous.task:
            rises.append(line.step - previous.step)
    return rises.count(1) > rises.count(0)


def _are_steps(lines: Sequence[DumpLine]) -> bool:
    """Return whether lines that do not count steps are steps: none has two actions, and none is won by fewer than two."""
    if any(len(line.actions) > 1 for line in lines):
        return False
    return any(line.penalised or (line.won and len(line.actions) == 1) for line in lines)


def _join_by_position(lines: Sequence[DumpLine]) -> Iterator[LogEntry]:
    """Yield an episode for each first step; the later steps of a task that ended alike can be of any of them."""
    for group in _group_lines(lines, lambda line: (line.step, line.task, line.won)):
        # A long prompt of a shop is written without its history, and so without a position.
        positions = [
            1 if line.position is None and not line.is_later_page else line.position for line in group
        ]
        # Each step at position k needs one at k - 1; steps without a position may fill the gaps.
        counts = Counter(position for position in positions if position is not None)
        unplaced = positions.count(None)
        for position in range(2, max(counts, default=1) + 1):
            unplaced -= max(0, counts[position] - counts[position - 1])
        first_steps = [line for line, position in zip(group, positions, strict=True) if position == 1]
        if unplaced < 0 or not first_steps:
            raise InputError(
                f"{group[0].entry.where}: the lines are steps, and more of this task are at a later step than at an "
                "earlier: steps were left out or copied, as verl-agent fills up training batches; audit a validation dump"
            )
        is_one_episode = len(first_steps) == 1
        for first in first_steps:
            yield _make_episode(group, first, is_one_episode=is_one_episode)


def _split_in_order(lines: Sequence[DumpLine]) -> Iterator[list[DumpLine]]:
    """Yield the steps of each episode, where they follow each other and do not give their position."""
    steps: list[DumpLine] = []
    for line in lines:
        if steps and not _continues_episode(steps[-1], steps[0], line):
            yield steps
            steps = []
        steps.append(line)
    yield steps


def _continues_episode(last: DumpLine, first: DumpLine, line: DumpLine) -> bool:
    """Return whether a line is the next step of the episode that began with ``first`` and came to ``last``."""
    if (line.step, line.won) != (first.step, first.won) or line.task not in ("", first.task):
        return False
    # Games say their task in the first prompt only, where prompts have no history.
    if line.is_first and (not last.task or last.is_later_page):
        # The start page of a shop appears in the middle of an episode after this click only.
        return "back to search" in " ".join(last.actions).lower()
    return True


def _group_lines(lines: Sequence[DumpLine], key: Callable[[DumpLine], Hashable]) -> list[list[DumpLine]]:
    groups: defaultdict[Hashable, list[DumpLine]] = defaultdict(list)
    for line in lines:
        groups[key(line)].append(line)
    return list(groups.values())


def _make_episode(
    lines: Sequence[DumpLine],
    first: DumpLine,
    *,
    lines_are_steps: bool = True,
    is_one_episode: bool = True,
) -> LogEntry:
    """Return an episode, with fields in our own names.

    Args:
        lines: its lines, or those of all episodes of one task that ended alike.
        first: the one that says what the task is.
        lines_are_steps: whether each line is a step.
        is_one_episode: whether all lines are of this one episode.
    """
    # Of several episodes whose steps cannot be told apart, the first gets the sum.
    penalised_thoughts = 0
    if is_one_episode or first is lines[0]:
        penalised_thoughts = sum(line.penalised_thought for line in lines)
    value = {
        **first.entry.value,
        "score": None,
        "success": first.won,
        "steps": len(lines) if lines_are_steps and is_one_episode else None,
        "texts": [first.prompt],
        "wordings": frozenset().union(*(line.wordings for line in lines)),
        "penalised_thoughts": penalised_thoughts,
    }
    return first.entry._replace(value=value)
