"""Logs of others: a JSON line for each episode, in the names that their programs use.

Understood are our own names (``task``, ``seed``, ``success``, and where they are known ``score``, ``steps``, ``ended``,
``split``, ``content``), the infos of verl-agent's environments (``extra.gamefile``, ``won``, ``task_score``), the
validation dumps of verl (``input``,
``output``, ``score``, ``step``: the score of an episode is 10 or 0 there), and the results of AgentGym (``item_id``,
``conversations``, ``reward``, ``success``). Where a line has the agent's commands (``actions``, ``action``, ``commands``,
``output``, ``conversations``), ALFWorld's wording is read from them.
"""

import json
import lzma
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import open_text
from threespo.panels.panel import HELD_OUT, Panel, wish_hash

_TASK = ("task", "task_id", "game_id", "gamefile", "extra.gamefile", "game_file", "goal", "instruction")
_SUCCESS = ("success", "won")
_SCORE = ("task_score", "score", "reward")
_GAME_FILE = re.compile(r"([^/]+)/([^/]+/[^/]+)/game\.tw-pddl$")
_INSTRUCTIONS = (
    re.compile(r"Instruction:\s*\[SEP\]\s*(.+?)\s*\[SEP\]"),
    re.compile(r"Instruction:\s*\n\s*(.+?)\s*(?:\n|$)"),
    re.compile(r"Your task is to: (.+?)\.?\n"),
)
_WORDINGS = {
    "put": re.compile(r"\bput [a-z]+ \d+ in/on [a-z]+ \d+", re.IGNORECASE),
    "move": re.compile(r"\bmove [a-z]+ \d+ to [a-z]+ \d+", re.IGNORECASE),
}
"""ALFWorld's two ways to put a thing down, as commands of an agent; the names are those of ``GameRecord.wording``."""
_TAGGED = re.compile("<action>(.*?)</action>", re.IGNORECASE | re.DOTALL)
_WON = 10.0


@dataclass(frozen=True, slots=True)
class Played:
    """An episode of a log."""

    line: int
    task: str
    """Id of a task of the panel, or what the log says where the panel has no such task."""
    known: bool
    """Whether the panel has the task."""
    seed: str
    success: bool
    """As the log has it."""
    score: float | None
    steps: int | None
    ended: bool | None
    """Whether the environment ended the episode; ``None`` where the log does not say."""
    split: str | None
    """That the log says."""
    wordings: frozenset[str] = frozenset()
    """Of the agent's commands (``GameRecord.wording``), where the line has some that put things down."""
    content: str | None = None
    """Hash of the task's content, where the line has it."""


def read_log(path: Path, panel: Panel) -> list[Played]:
    """Return the episodes of a log.

    Args:
        path: a ``.jsonl`` or ``.jsonl.xz`` file, an episode a line.
        panel: that tasks are looked up in.

    Raises:
        InputError: if the file is missing or broken, or a line lacks what an episode needs; names the line and the field.
    """
    found: list[Played] = []
    named: dict[tuple[str, str], int] = {}
    number = 0
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    found.append(_episode(json.loads(line), number, f"{path}, line {number}", panel, named))
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(f"{path}, after line {number}: not readable as JSON lines ({error})") from error
    if not found:
        raise InputError(f"{path}: no episode in it; expected a JSON object a line, with task, seed and success")
    return found


def _episode(row: Any, number: int, where: str, panel: Panel, named: dict[tuple[str, str], int]) -> Played:
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
    said, split = _said_task(row, where)
    claimed = row.get("split", split)
    seed = str(row.get("seed", row.get("run", 0)))
    task, known = _known_task(said, seed, claimed, panel, named)
    success, score = _outcome(row, where)
    return Played(
        number,
        task,
        known,
        seed,
        success,
        score,
        _whole(row, ("steps", "length", "episode_length"), where),
        _flag(row, "ended", where) if "ended" in row else _flag(row, "done", where) if "done" in row else None,
        None if claimed is None else str(claimed),
        frozenset(name for name, pattern in _WORDINGS.items() if any(map(pattern.search, _commands(row)))),
        _hash_in(row, where),
    )


def _hash_in(row: Mapping[str, Any], where: str) -> str | None:
    found = row.get("content")
    if found is None or (isinstance(found, str) and re.fullmatch("[0-9a-f]{16}", found)):
        return found
    return str(_fail(where, "content", "16 hexadecimal digits, as info['content'] has them", found))


def _commands(row: Mapping[str, Any]) -> list[str]:
    """Return the texts of a row that hold commands of the agent."""
    found = [row[name] for name in ("output", "action") if isinstance(row.get(name), str)]
    for name in ("actions", "commands"):
        if isinstance(row.get(name), list):
            found += [text for text in row[name] if isinstance(text, str)]
    if isinstance(row.get("conversations"), list):
        turns = (turn for turn in row["conversations"] if isinstance(turn, dict))
        found += [str(turn.get("value", "")) for turn in turns if turn.get("from") in ("gpt", "assistant")]
    # What an agent thinks before it acts may have the other wording.
    return [command for text in found for command in (_TAGGED.findall(text) or [text.rpartition("Action:")[2]])]


def _said_task(row: Mapping[str, Any], where: str) -> tuple[str, str | None]:
    """Return what a row says of its task, and the split that a game file lies in."""
    for name in _TASK:
        if isinstance(row.get(name), str) and row[name].strip():
            match = _GAME_FILE.search(row[name])
            return (match[2], match[1]) if match else (row[name].strip(), None)
    texts = [row["input"]] if isinstance(row.get("input"), str) else []
    if isinstance(row.get("conversations"), list):
        texts += [str(turn.get("value", "")) for turn in row["conversations"] if isinstance(turn, dict)]
    for text in texts:
        for pattern in _INSTRUCTIONS:
            if match := pattern.search(text):
                return match[1], None
    if "item_id" in row:
        return str(row["item_id"]), None
    raise InputError(f"{where}: no field that names the task; expected one of {', '.join(_TASK)}, or conversations")


def _known_task(
    said: str, seed: str, claimed: Any, panel: Panel, named: dict[tuple[str, str], int]
) -> tuple[str, bool]:
    """Return the id of the task that is meant, and whether the panel has it.

    A few wishes are those of two products. The first row with such a text is taken for the first of them, and so on: those
    of the split that the row claims, then those of tested splits.
    """
    if said in panel.split_of:
        return said, True
    content = said if said in panel.with_content else wish_hash(said)
    meant = panel.with_content.get(content)
    if meant is None:
        return said, False
    turn = named[content, seed] = named.get((content, seed), -1) + 1
    splits = panel.split_of
    return sorted(meant, key=lambda task: (splits[task] != claimed, splits[task] in HELD_OUT))[turn % len(meant)], True


def _outcome(row: Mapping[str, Any], where: str) -> tuple[bool, float | None]:
    if not any(name in row for name in _SUCCESS) and {"input", "output", "score"} <= row.keys():
        if row["score"] not in (0, _WON):
            raise InputError(f"{where}: field 'score' is {row['score']!r}; of an episode of verl-agent it is 0 or {_WON:g}")
        return row["score"] == _WON, None
    for name in _SUCCESS:
        if name in row:
            score = next((row[key] for key in _SCORE if row.get(key) is not None), None)
            if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
                # verl-agent's reward is 10 or 0; it says no more than success does.
                score = None if score == _WON else _fail(where, "score", "a number from 0 to 1", score)
            return _flag(row, name, where), None if score is None else float(score)
    raise InputError(f"{where}: no field 'success'; expected success or won, true or false")


def _flag(row: Mapping[str, Any], name: str, where: str) -> bool:
    if row[name] not in (0, 1):
        _fail(where, name, "true or false, or 1 or 0", row[name])
    return bool(row[name])


def _whole(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    for name in names:
        if row.get(name) is not None:
            if isinstance(row[name], bool) or not isinstance(row[name], int) or row[name] < 0:
                _fail(where, name, "a whole number", row[name])
            return int(row[name])
    return None


def _fail(where: str, name: str, expected: str, found: Any) -> Any:
    raise InputError(f"{where}: field {name!r}: expected {expected}, found {found!r}")
