"""Logs of others: episodes, in the names and forms that their programs use (docs/panels.md lists them).

A log is read in four steps:

1. ``log_files``: the bytes of a file become entries, JSON values with their place in the file.
2. ``log_forms``: an entry becomes one or more episodes, whose fields have our own names: ``task``, ``seed``, ``success``,
   and where they are known ``score``, ``steps``, ``ended``, ``split``, ``content``.
3. ``log_dumps``: lines of verl-agent's dumps that are single steps are joined to episodes.
4. ``log_tasks``: the task of each episode is looked up in the panel.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_dumps import WON, DumpLine, is_dump_line, join_steps, parse_dump_line
from threespo.panels.log_files import LogEntry, read_entries
from threespo.panels.log_forms import SUCCESS, Fields, translate_entry
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
    episodes: list[LoggedEpisode] = []
    dump_lines: list[DumpLine] = []
    last_steps: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in read_entries(path):
        for translated in translate_entry(entry):
            if is_dump_line(translated.value):
                dump_lines.append(parse_dump_line(translated))
                continue
            episode = _read_episode(translated, tasks)
            _check_is_no_step(translated, episode, last_steps)
            episodes.append(episode)
    # The steps of an episode may be anywhere in a dump, so they are joined once all are read.
    if dump_lines:
        episodes += [_read_episode(joined, tasks) for joined in join_steps(dump_lines)]
    if not episodes:
        raise InputError(
            f"{path}: no episode in it; expected a JSON object a line, with task, seed and success"
        )
    return episodes


def _read_episode(entry: LogEntry, tasks: TaskLookup) -> LoggedEpisode:
    fields = entry.value
    where = entry.where
    seed = _read_seed(fields)
    task = tasks.find(fields, seed, where)
    success, score = _read_outcome(fields, where)
    ended = next((name for name in ("ended", "done") if fields.get(name) is not None), None)

    # Dumps have these already: their responses were dropped when the steps were joined.
    if isinstance(fields.get("wordings"), frozenset):
        wordings = fields["wordings"]
        penalised_thoughts = fields["penalised_thoughts"]
    else:
        wordings = wordings_of(fields.get("responses", ()))
        penalised_thoughts = 0
    return LoggedEpisode(
        line=entry.number,
        task=task.task,
        known=task.known,
        seed=seed,
        success=success,
        score=score,
        steps=_read_whole_number(fields, _STEPS, where),
        ended=None if ended is None else _read_flag(fields, ended, where),
        split=task.split,
        wordings=wordings,
        changed=task.changed,
        by_content=task.by_content,
        penalised_thoughts=penalised_thoughts,
    )


def _read_seed(fields: Fields) -> str:
    seed = fields.get("seed", fields.get("run", 0))
    # Tables with gaps have whole numbers as 5.0, which is the same seed as 5.
    if isinstance(seed, float) and seed.is_integer():
        seed = int(seed)
    return str(seed)


def _check_is_no_step(
    entry: LogEntry, episode: LoggedEpisode, last_steps: dict[tuple[str, str], tuple[int, str]]
) -> None:
    """Refuse lines that count the steps of one episode, which would each count as an episode.

    ``last_steps`` has, by task and seed, the field ``step`` that was read last, and where.
    """
    step = entry.value.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        return
    key = (episode.task, episode.seed)
    if key in last_steps:
        last_step, where = last_steps[key]
        if last_step in (0, 1) and step == last_step + 1:
            raise InputError(
                f"{entry.where}: field 'step' goes on from {where}, so lines are steps of an episode; give one line for "
                "each episode, its last one, or call the field otherwise if it is none of steps"
            )
    last_steps[key] = (step, entry.where)


def _read_outcome(fields: Fields, where: str) -> tuple[bool, float | None]:
    """Return success and, where it is known, the score."""
    outcome = next((name for name in SUCCESS if name in fields), None)
    if outcome is None:
        raise InputError(f"{where}: no field 'success'; expected success or won, true or false")
    score = next((fields[name] for name in _SCORE if not _is_missing(fields.get(name))), None)
    if score == WON and not isinstance(score, bool):
        # verl-agent's reward is 10 or 0; it says no more than success does.
        score = None
    if score is not None:
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or not 0 <= score <= 1:
            raise _wrong_field(where, "score", "a number from 0 to 1", score)
        score = float(score)
    return _read_flag(fields, outcome, where), score


def _read_flag(fields: Fields, name: str, where: str) -> bool:
    if fields[name] not in (0, 1):
        raise _wrong_field(where, name, "true or false, or 1 or 0", fields[name])
    return bool(fields[name])


def _read_whole_number(fields: Fields, names: tuple[str, ...], where: str) -> int | None:
    """Return the first of these fields that has a value."""
    for name in names:
        value = fields.get(name)
        if _is_missing(value):
            continue
        # Tables with gaps have whole numbers as 5.0.
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise _wrong_field(where, name, "a whole number", value)
        return number
    return None


def _is_missing(value: Any) -> bool:
    """Return whether there is no value: tables write gaps as null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _wrong_field(where: str, name: str, expected: str, found: Any) -> InputError:
    return InputError(f"{where}: field {name!r}: expected {expected}, found {found!r}")
