"""Which task of a panel an episode of a log is of: by content where the log has it, else by id, else by words."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threespo.errors import InputError
from threespo.panels.log_forms import TASK, Fields
from threespo.panels.openings import find_goals, find_opening, goal_hash
from threespo.panels.panel import HELD_OUT, Panel, instruction_hash

_GAME_FILES = ("game.tw-pddl", "traj_data.json", "initial_state.pddl")
_JOINED = re.compile(r"(.+-\d+)[-_. ](trial_\w+)")
"""TASK and TRIAL in one word."""
_INSTRUCTIONS = (
    re.compile(r"Instruction:\s*\[SEP\]\s*(.+?)\s*\[SEP\]"),
    re.compile(r"Instruction:\s*\n\s*(.+?)\s*(?:\n|$)"),
)


class FoundTask(NamedTuple):
    """The task of an episode."""

    task: str
    """Id of a task of the panel, or what the log says where the panel has no such task."""
    known: bool
    """Whether it is a task of the panel."""
    changed: bool = False
    """Whether it has the name of a task of the panel, and another content."""
    by_content: bool = False
    """Whether its content was compared."""
    split: str | None = None
    """That the log says."""


class TaskLookup:
    """Looks tasks up in a panel.

    A few wishes are those of two products, and some games begin alike. The first episode with such words is taken for the
    first of these tasks, and so on: those of the split that it claims, then those of tested splits.
    """

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._turns: dict[tuple[tuple[str, ...], str], int] = {}

    def find(self, fields: Fields, seed: str, where: str) -> FoundTask:
        """Return the task of an episode.

        Args:
            fields: in our own names.
            seed: the episode's.
            where: names the line in messages.

        Raises:
            InputError: if no field names the task, or one is malformed.
        """
        said = next((fields[name].strip() for name in TASK if _is_text(fields.get(name))), None)
        content = _content(fields, where)
        ids, folder = _named(said or "", self._panel)
        claimed = fields.get("split", folder)
        split = None if claimed is None else str(claimed)

        # Some logs have the hash in the place of the id.
        if content is None and said in self._panel.with_content:
            content = said
        if content is not None:
            meant = self._panel.with_content.get(content, ())
            if not meant:
                return FoundTask(ids[0] if ids else said or content, False, bool(ids), True, split)
            return FoundTask(
                self._one_of([i for i in ids if i in meant] or meant, split, seed),
                True,
                False,
                True,
                split,
            )

        words = _Words(fields, said)
        if ids:
            fitting = [one for one in ids if words.fit(one, self._panel)]
            task = self._one_of(fitting, split, seed) if fitting else ids[0]
            return FoundTask(task, bool(fitting), not fitting, words.are_content(self._panel), split)
        named = words.tasks(self._panel)
        if named:
            return FoundTask(
                self._one_of(named, split, seed), True, False, not self._panel.openings, split
            )
        name = said or next(iter(words.instructions), None) or fields.get("item_id")
        if name is None:
            raise InputError(f"{where}: {_no_task(fields)}")
        return FoundTask(str(name), False, split=split)

    def _one_of(self, ids: Sequence[str], claimed: str | None, seed: str) -> str:
        if len(ids) == 1:
            return ids[0]
        key = tuple(ids), seed
        turn = self._turns.get(key, -1) + 1
        self._turns[key] = turn
        splits = self._panel.split_of
        preferred = sorted(ids, key=lambda task: (splits[task] != claimed, splits[task] in HELD_OUT))
        return preferred[turn % len(ids)]


class _Words:
    """What an entry says of its task in words."""

    def __init__(self, fields: Fields, said: str | None) -> None:
        text = "\n".join(fields.get("texts") or ())
        # What is no sentence is a task's type.
        given = [fields[name] for name in ("goal", "instruction") if _is_text(fields.get(name))]
        self._given = [words for words in given if " " in words]
        self._opening = find_opening(text)
        # The last mention counts: a prompt may begin with examples of other tasks.
        in_pages = [found for pattern in _INSTRUCTIONS for found in pattern.findall(text)[-1:]]
        in_prompts = find_goals(text)[-1:]
        self.instructions = [*self._given, *in_pages, *in_prompts]
        if said:
            self.instructions.append(said)

    def are_content(self, panel: Panel) -> bool:
        """Return whether words say the whole content of a task that is named: of a game, they say a part."""
        return bool(self._given) and not panel.openings

    def fit(self, task: str, panel: Panel) -> bool:
        """Return whether nothing here is said of a task that is not so."""
        if not panel.openings:
            return all(instruction_hash(words) == panel.content_of[task] for words in self._given)
        known = panel.openings[task]
        goal = goal_hash(self._given[0]) if self._given else self._opening and self._opening.goal
        room = self._opening.room if self._opening else ""
        return goal in (None, known.goal) and room in ("", known.room)

    def tasks(self, panel: Panel) -> Sequence[str]:
        """Return the tasks that the words are of; of games only where they say how an episode begins."""
        if panel.openings:
            return (
                panel.with_opening.get(self._opening, ()) if self._opening and self._opening.room else ()
            )
        found = (panel.with_content.get(instruction_hash(words), ()) for words in self.instructions)
        return next(filter(None, found), ())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _named(said: str, panel: Panel) -> tuple[tuple[str, ...], str | None]:
    """Return the tasks of a panel that an id is of, in any form of a path, and the split whose folder is in it."""
    if said in panel.split_of:
        return (said,), None
    parts = [part for part in re.split(r"[/\\]+", said) if part not in ("", ".")]
    if parts and parts[-1] in _GAME_FILES:
        parts.pop()
    joined = _JOINED.fullmatch(parts[-1]) if parts else None
    if joined:
        parts[-1:] = joined.groups()

    # ALFWorld's folders are SPLIT/TASK/TRIAL.
    split = None
    if len(parts) > 2 and parts[-3] in panel.splits:
        split = parts[-3]
    name = "/".join(parts[-2:])
    if name in panel.split_of:
        return (name,), split
    # A folder that is not in another one may be named alone.
    return panel.with_name.get(name, ()), split


def _content(fields: Fields, where: str) -> str | None:
    found = fields.get("content")
    if found is None or (isinstance(found, str) and re.fullmatch("[0-9a-f]{16}", found)):
        return found
    raise InputError(
        f"{where}: field 'content': expected 16 hexadecimal digits, as info['content'] has them, found {found!r}"
    )


def _no_task(fields: Mapping[str, Any]) -> str:
    for name in TASK:
        if fields.get(name):
            return f"field {name!r} is {str(fields[name])[:80]}; expected an id, a game file or an instruction"
    names = ", ".join(sorted(name for name in fields if name not in ("texts", "responses"))) or "none"
    return f"no field that names the task; expected one of {', '.join(TASK)}, or conversations; found: {names}"
