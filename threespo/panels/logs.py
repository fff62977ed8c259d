"""Logs of others: episodes, in the names and forms that their programs use (docs/panels.md lists them).

Understood are our own names (``task``, ``seed``, ``success``, and where they are known ``score``, ``steps``, ``ended``,
``split``, ``content``), and what ``log_forms`` and ``log_steps`` put into them.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_files import Row, read_rows
from threespo.panels.log_forms import SUCCESS, Fields, episodes_in
from threespo.panels.log_steps import WON, Line, is_dumped, join_steps, parse_line
from threespo.panels.log_tasks import TaskLookup
from threespo.panels.panel import Panel
from threespo.panels.responses import wordings_of

_SCORE = ("task_score", "score", "reward")
_STEPS = ("steps", "length", "episode_length")


@dataclass(frozen=True, slots=True)
class LoggedEpisode:
    """An episode of a log."""

    line: int
    task: str
    """Id of a task of the panel, or what the log says where the panel has no such task."""
    known: bool
    """Whether it is a task of the panel."""
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
    changed: bool = False
    """Whether it has the name of a task of the panel, and another content, as far as the log says it."""
    by_content: bool = False
    """Whether the log says the whole content."""
    penalised_thoughts: int = 0
    """Responses that were penalised, and close a thought that the chat template had opened."""


def read_log(path: Path, panel: Panel) -> list[LoggedEpisode]:
    """Return the episodes of a log.

    Args:
        path: the file, of any kind that ``log_files`` reads.
        panel: that tasks are looked up in.

    Raises:
        InputError: if the file is missing or broken, or an entry lacks what an episode needs; names the place and the field.
    """
    tasks = TaskLookup(panel)
    found: list[LoggedEpisode] = []
    dumped: list[Line] = []
    counted: dict[tuple[str, str], tuple[Any, str]] = {}
    for entry in read_rows(path):
        for row in episodes_in(entry):
            if is_dumped(row.value):
                dumped.append(parse_line(row))
                continue
            played = _read_episode(row, tasks)
            _check_no_step(row, played, counted)
            found.append(played)
    # The steps of an episode may be anywhere in a dump, so they are joined once all are read.
    if dumped:
        found += [_read_episode(row, tasks) for row in join_steps(dumped)]
    if not found:
        raise InputError(
            f"{path}: no episode in it; expected a JSON object a line, with task, seed and success"
        )
    return found


def _read_episode(row: Row, tasks: TaskLookup) -> LoggedEpisode:
    fields = row.value
    where = row.where
    seed = _seed(fields)
    task = tasks.find(fields, seed, where)
    success, score = _outcome(fields, where)
    ended = next((name for name in ("ended", "done") if fields.get(name) is not None), None)
    return LoggedEpisode(
        row.number,
        task.task,
        task.known,
        seed,
        success,
        score,
        _whole(fields, _STEPS, where),
        None if ended is None else _flag(fields, ended, where),
        task.split,
        fields["wordings"]
        if isinstance(fields.get("wordings"), frozenset)
        else wordings_of(fields.get("responses", ())),
        task.changed,
        task.by_content,
        fields["penalised_thoughts"] if isinstance(fields.get("wordings"), frozenset) else 0,
    )


def _seed(fields: Fields) -> str:
    # Tables with gaps have whole numbers as 5.0, which is the same seed as 5.
    seed = fields.get("seed", fields.get("run", 0))
    return str(int(seed)) if isinstance(seed, float) and seed.is_integer() else str(seed)


def _check_no_step(
    row: Row, played: LoggedEpisode, counted: dict[tuple[str, str], tuple[Any, str]]
) -> None:
    """Refuse lines that count the steps of one episode, which would each count as an episode."""
    step = row.value.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        return
    last, where = counted.get((played.task, played.seed), (None, ""))
    if last in (0, 1) and step == last + 1:
        raise InputError(
            f"{row.where}: field 'step' goes on from {where}, so lines are steps of an episode; give one line for each "
            "episode, its last one, or call the field otherwise if it is none of steps"
        )
    counted[played.task, played.seed] = step, row.where


def _outcome(fields: Fields, where: str) -> tuple[bool, float | None]:
    for name in SUCCESS:
        if name in fields:
            score = next((fields[key] for key in _SCORE if not _is_missing(fields.get(key))), None)
            if score is not None and (
                isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1
            ):
                # verl-agent's reward is 10 or 0; it says no more than success does.
                if score != WON:
                    raise _wrong(where, "score", "a number from 0 to 1", score)
                score = None
            return _flag(fields, name, where), None if score is None else float(score)
    raise InputError(f"{where}: no field 'success'; expected success or won, true or false")


def _flag(fields: Fields, name: str, where: str) -> bool:
    if fields[name] not in (0, 1):
        raise _wrong(where, name, "true or false, or 1 or 0", fields[name])
    return bool(fields[name])


def _whole(fields: Fields, names: tuple[str, ...], where: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if _is_missing(value):
            continue
        # Tables with gaps have whole numbers as 5.0.
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(whole, bool) or not isinstance(whole, int) or whole < 0:
            raise _wrong(where, name, "a whole number", value)
        return whole
    return None


def _is_missing(value: Any) -> bool:
    """Return whether there is no value: tables write gaps as null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _wrong(where: str, name: str, expected: str, found: Any) -> InputError:
    return InputError(f"{where}: field {name!r}: expected {expected}, found {found!r}")
