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

    Two products may have the same instruction, and some games begin alike. The first episode with such words is taken for
    the first of these tasks, the second for the next, and so on: those of the split that the log claims come first, then
    those of tested splits.
    """

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._times_picked: dict[tuple[tuple[str, ...], str], int] = {}
        """How often a task was picked among the same ones for a seed."""

    def find(self, fields: Fields, seed: str, where: str) -> FoundTask:
        """Return the task of an episode.

        Args:
            fields: in our own names.
            seed: the episode's.
            where: names the line in messages.

        Raises:
            InputError: if no field names the task, or one is malformed.
        """
        panel = self._panel
        name = next((fields[field].strip() for field in TASK if _is_text(fields.get(field))), None)
        content = _read_content(fields, where)
        named_ids, split_of_folder = _find_named(name or "", panel)
        claimed_split = fields.get("split", split_of_folder)
        split = None if claimed_split is None else str(claimed_split)

        # Some logs have the hash in the place of the id.
        if content is None and name in panel.with_content:
            content = name
        if content is not None:
            return self._find_by_content(content, name, named_ids, split, seed)

        words = _Words(fields, name)
        if named_ids:
            fitting = [task_id for task_id in named_ids if words.fit(task_id, panel)]
            task = self._pick(fitting, split, seed) if fitting else named_ids[0]
            is_known = bool(fitting)
            by_content = words.are_content(panel)
            return FoundTask(task, is_known, changed=not is_known, by_content=by_content, split=split)

        matching = words.find_tasks(panel)
        if matching:
            task = self._pick(matching, split, seed)
            # An instruction is the whole content of a shop's task; games that begin alike may differ later.
            return FoundTask(task, known=True, by_content=not panel.openings, split=split)

        unknown_name = name or next(iter(words.instructions), None) or fields.get("item_id")
        if unknown_name is None:
            raise InputError(f"{where}: {_explain_missing_task(fields)}")
        return FoundTask(str(unknown_name), known=False, split=split)

    def _find_by_content(
        self, content: str, name: str | None, named_ids: Sequence[str], split: str | None, seed: str
    ) -> FoundTask:
        matching = self._panel.with_content.get(content, ())
        if not matching:
            task = named_ids[0] if named_ids else name or content
            return FoundTask(task, known=False, changed=bool(named_ids), by_content=True, split=split)
        also_named = [task_id for task_id in named_ids if task_id in matching]
        task = self._pick(also_named or matching, split, seed)
        return FoundTask(task, known=True, by_content=True, split=split)

    def _pick(self, task_ids: Sequence[str], claimed_split: str | None, seed: str) -> str:
        """Return one of several tasks that an episode can be of, each in its turn."""
        if len(task_ids) == 1:
            return task_ids[0]
        key = (tuple(task_ids), seed)
        times_picked = self._times_picked.get(key, 0)
        self._times_picked[key] = times_picked + 1

        def rank(task_id: str) -> tuple[bool, bool]:
            split = self._panel.split_of[task_id]
            return split != claimed_split, split in HELD_OUT

        return sorted(task_ids, key=rank)[times_picked % len(task_ids)]


class _Words:
    """What an entry says of its task in words."""

    def __init__(self, fields: Fields, name: str | None) -> None:
        text = "\n".join(fields.get("texts") or ())
        given = [fields[field] for field in ("goal", "instruction") if _is_text(fields.get(field))]
        # What is no sentence is a task's type.
        self._sentences = [words for words in given if " " in words]
        self._opening = find_opening(text)

        # The last mention counts: a prompt may begin with examples of other tasks.
        in_pages = [found for pattern in _INSTRUCTIONS for found in pattern.findall(text)[-1:]]
        in_prompts = find_goals(text)[-1:]
        self.instructions = [*self._sentences, *in_pages, *in_prompts]
        if name:
            self.instructions.append(name)

    def are_content(self, panel: Panel) -> bool:
        """Return whether words say the whole content of a task that is named: of a game, they say a part."""
        return bool(self._sentences) and not panel.openings

    def fit(self, task_id: str, panel: Panel) -> bool:
        """Return whether the words contradict nothing of a task."""
        if not panel.openings:
            content = panel.content_of[task_id]
            return all(instruction_hash(words) == content for words in self._sentences)

        goal = None
        if self._sentences:
            goal = goal_hash(self._sentences[0])
        elif self._opening:
            goal = self._opening.goal
        room = self._opening.room if self._opening else ""
        # What is not said contradicts nothing.
        task_opening = panel.openings[task_id]
        return goal in (None, task_opening.goal) and room in ("", task_opening.room)

    def find_tasks(self, panel: Panel) -> Sequence[str]:
        """Return the tasks that the words are of; of games only where they say how an episode begins."""
        if panel.openings:
            if self._opening is None or not self._opening.room:
                return ()
            return panel.with_opening.get(self._opening, ())
        for words in self.instructions:
            found = panel.with_content.get(instruction_hash(words), ())
            if found:
                return found
        return ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _find_named(name: str, panel: Panel) -> tuple[tuple[str, ...], str | None]:
    """Return the ids of the tasks that a name is of, in any form of a path, and the split whose folder is in it."""
    if name in panel.split_of:
        return (name,), None
    parts = [part for part in re.split(r"[/\\]+", name) if part not in ("", ".")]
    if parts and parts[-1] in _GAME_FILES:
        parts.pop()
    task_and_trial = _JOINED.fullmatch(parts[-1]) if parts else None
    if task_and_trial:
        parts[-1:] = task_and_trial.groups()

    # ALFWorld's folders are SPLIT/TASK/TRIAL.
    split = None
    if len(parts) > 2 and parts[-3] in panel.splits:
        split = parts[-3]
    task_id = "/".join(parts[-2:])
    if task_id in panel.split_of:
        return (task_id,), split
    # A folder that is not in another one may be named alone.
    return panel.with_name.get(task_id, ()), split


def _read_content(fields: Fields, where: str) -> str | None:
    found = fields.get("content")
    if found is None or (isinstance(found, str) and re.fullmatch("[0-9a-f]{16}", found)):
        return found
    raise InputError(
        f"{where}: field 'content': expected 16 hexadecimal digits, as info['content'] has them, found {found!r}"
    )


def _explain_missing_task(fields: Mapping[str, Any]) -> str:
    for name in TASK:
        if fields.get(name):
            return f"field {name!r} is {str(fields[name])[:80]}; expected an id, a game file or an instruction"
    names = ", ".join(sorted(name for name in fields if name not in ("texts", "responses"))) or "none"
    return f"no field that names the task; expected one of {', '.join(TASK)}, or conversations; found: {names}"
