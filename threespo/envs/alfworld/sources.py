"""Games on disk: the official layout, and a compact form in a few files.

Official: ``SPLIT/TASK/TRIAL/game.tw-pddl`` with an optional ``traj_data.json`` beside it, as ``alfworld-download`` lays
games out (there below ``json_2.1.1``). Compact: ``SPLIT.jsonl`` or ``SPLIT.jsonl.xz``, a game a line, with the texts
that all games share in ``alfred.pddl`` and ``grammar.twl2`` (task sentence replaced by ``@@TASK@@``).
"""

import json
import lzma
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from threespo.envs.alfworld.description import (
    ANNOTATIONS_FILE,
    REMEDY,
    TASK_TYPES,
    Description,
    as_row,
    beside,
    in_row,
    read_json,
)
from threespo.envs.alfworld.fields import (
    check_fields,
    goal_in,
    marked_solvable,
    read_text,
    walkthrough_of,
)
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.grammar import split_task_sentence
from threespo.envs.alfworld.human_goals import check_choice, drawn, with_human_goal
from threespo.errors import InputError
from threespo.files import open_text, replace_file, write_text
from threespo.terminal import join_first, warn_once

GAME_FILE = "game.tw-pddl"
DOMAIN_FILE, GRAMMAR_FILE, TASK_MARK = "alfred.pddl", "grammar.twl2", "@@TASK@@"
RELEASED = ("train", "valid_seen", "valid_unseen")
"""The splits of real games; ``calibration`` is taken from ``train``."""

_SUFFIXES = (".jsonl", ".jsonl.xz")
_NESTED = ("", "json_2.1.1", "json_2.1.2", "json_2.1.3")


def load_games(
    folder: Path,
    split: str,
    limit: int | None = None,
    task_types: Collection[str] | None = None,
    human_goals: float = 0.0,
    goal_seed: int = 0,
) -> list[GameRecord]:
    """Return the games of one split, ordered by ``game_id``, without those that are marked as not solvable.

    The rule is one for both forms: ``solvable: false`` leaves a game out, and a file that does not say leaves it in, since a
    test set must not shrink by what nobody has said. A warning names such games; of a compact form only where others say it.

    Args:
        folder: games in the official layout or the compact form.
        split: for example ``train``, ``valid_seen``, ``valid_unseen``.
        limit: at most this many, the first in order.
        task_types: only these; None for all.
        human_goals: share of the games whose task sentence is one of people's annotations, in [0, 1].
        goal_seed: decides, with each game's id, which games and which annotations.

    Raises:
        InputError: if the split is missing, empty or broken, or a game lacks annotations that are asked for; names the file
            and what to do.
    """
    check_choice(human_goals, goal_seed)
    unknown = sorted(set(task_types or ()) - set(TASK_TYPES))
    if unknown:
        raise InputError(f"unknown task type {unknown[0]!r}; the task types are {', '.join(TASK_TYPES)}")

    compact, official = _compact_file(folder, split), _official_folder(folder, split)
    if compact is None and official is None:
        there = ", ".join(find_splits(folder)) or "none"
        raise InputError(
            f"{folder}: no split {split!r} there (splits found: {there}). Expected {split}.jsonl(.xz) with "
            f"{DOMAIN_FILE} and {GRAMMAR_FILE}, or {split}/TASK/TRIAL/{GAME_FILE}. {REMEDY}"
        )

    unmarked: list[str] = []
    if compact is not None:
        found = _read_compact(compact, split, unmarked)
    else:
        found = _read_official(official or folder, split, unmarked)
    result = []
    for record in found:
        if task_types is None or record.task_type in task_types:
            if drawn(record, human_goals, goal_seed):
                file = compact or (official or folder) / record.game_id / ANNOTATIONS_FILE
                record = with_human_goal(record, goal_seed, file)
            result.append(record)
        if limit is not None and len(result) >= limit:
            break

    if not result and limit != 0:
        wanted = f" of the task types {', '.join(sorted(task_types))}" if task_types else ""
        raise InputError(
            f"{compact or official}: the split {split!r} holds no solvable game{wanted}. {REMEDY}"
        )
    # The games of a compact form share one grammar.
    if compact is None and len(wordings := Counter(record.wording for record in result)) > 1:
        counts = ", ".join(f"{count} '{name}'" for name, count in sorted(wordings.items()))
        warn_once(
            f"{official}: games of several wordings ({counts}): 'move X to Y' is no command where 'put X in/on Y' is one"
        )
    if unmarked:
        warn_once(
            f"{compact or official}: {len(unmarked)} game(s) do not say whether they can be solved (no field 'solvable'): "
            f"{join_first(unmarked)}; they are played here, and ALFWorld's own AlfredTWEnv leaves them out"
        )
    return result


def find_splits(folder: Path) -> list[str]:
    """Return the names of the splits in ``folder``, sorted; empty if there is none."""
    if not folder.is_dir():
        return []
    names = {
        path.name.removesuffix(suffix) for suffix in _SUFFIXES for path in folder.glob(f"*{suffix}")
    }
    for nested in _NESTED:
        names |= {path.parents[2].name for path in (folder / nested).glob(f"*/*/*/{GAME_FILE}")}
    return sorted(names)


def describe_missing_files(folder: Path) -> str | None:
    """Return what a folder lacks to be the games of a study, in words; ``None`` if it has all."""
    compact = [split for split in RELEASED if _compact_file(folder, split)]
    folders = {split: _official_folder(folder, split) for split in RELEASED}
    official = [
        split for split, place in folders.items() if place and any(place.glob(f"*/*/{GAME_FILE}"))
    ]
    if absent := [split for split in RELEASED if split not in (*compact, *official)]:
        return f"no games of {', '.join(absent)}" if compact or official else "no games"
    texts = [name for name in (DOMAIN_FILE, GRAMMAR_FILE) if compact and not (folder / name).is_file()]
    return f"no {texts[0]} beside its games" if texts else None


def contains_games(folder: Path) -> bool:
    """Return whether a folder holds games, in either form."""
    official = (path for nested in _NESTED for path in (folder / nested).glob(f"*/*/*/{GAME_FILE}"))
    return (folder / DOMAIN_FILE).is_file() or any(official)


def write_compact(records: Iterable[GameRecord], folder: Path) -> None:
    """Write games in the compact form, a file per split; equal games give equal bytes.

    Args:
        records: games of any splits, in any order.
        folder: where to; files of other splits stay.

    Raises:
        InputError: if the games do not share one domain and one grammar (the task sentence apart), or the folder holds
            other games with other ones.
    """
    by_split: dict[str, list[GameRecord]] = {}
    shared: dict[str, str] = {}
    for record in records:
        by_split.setdefault(record.split, []).append(record)
        texts = {DOMAIN_FILE: record.domain, GRAMMAR_FILE: _mark_task(record)}
        if shared and shared != texts:
            raise InputError(
                f"{record.where} has another domain or grammar than the games before it: they cannot share a folder"
            )
        shared = texts

    for name, text in shared.items():
        existing = folder / name
        if (
            existing.exists()
            and existing.read_text(encoding="utf-8") != text
            and set(find_splits(folder)) - by_split.keys()
        ):
            raise InputError(f"{existing} belongs to other games; write to another folder")
        write_text(existing, text)

    for split, games in by_split.items():
        rows = [_row(game) for game in sorted(games, key=lambda game: game.game_id)]
        with replace_file(folder / f"{split}.jsonl.xz") as temporary:
            temporary.write_bytes(lzma.compress("".join(rows).encode()))


def _row(game: GameRecord) -> str:
    _, sentence = split_task_sentence(game.grammar)
    row = {
        "game_id": game.game_id,
        **as_row(game),
        "task": sentence,
        "pddl_problem": game.problem,
        "walkthrough": list(game.walkthrough),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _mark_task(record: GameRecord) -> str:
    template, sentence = split_task_sentence(record.grammar)
    # The texts first differ where the sentence begins: the template has an empty one there.
    position = next(
        index
        for index, pair in enumerate(zip(template, record.grammar, strict=False))
        if pair[0] != pair[1]
    )
    marked = f"{template[:position]}{TASK_MARK}{template[position:]}"
    if _fill(marked, sentence) != record.grammar or template.count(TASK_MARK):
        raise InputError(
            f"{record.where}: the task sentence in its grammar is written in a way that the compact form cannot repeat"
        )
    return marked


def _fill(grammar: str, sentence: str) -> str:
    return grammar.replace(TASK_MARK, json.dumps(sentence, ensure_ascii=False)[1:-1])


def _compact_file(folder: Path, split: str) -> Path | None:
    return next((path for suffix in _SUFFIXES if (path := folder / f"{split}{suffix}").is_file()), None)


def _official_folder(folder: Path, split: str) -> Path | None:
    return next((path for nested in _NESTED if (path := folder / nested / split).is_dir()), None)


def _read_compact(file: Path, split: str, unmarked: list[str]) -> Iterator[GameRecord]:
    domain, grammar = (read_text(file.with_name(name)) for name in (DOMAIN_FILE, GRAMMAR_FILE))
    if TASK_MARK not in grammar:
        raise InputError(
            f"{file.with_name(GRAMMAR_FILE)}: no {TASK_MARK} in it, where the task sentence belongs. {REMEDY}"
        )
    grammars: dict[str, str] = {}
    for row, (kind, stated, sentences) in sorted(
        _rows(file, unmarked), key=lambda found: str(found[0]["game_id"])
    ):
        task = row["task"]
        if task not in grammars:
            grammars[task] = _fill(grammar, task)
        full = grammars[task]
        goal, problem = goal_in(full, file), row["pddl_problem"]
        yield GameRecord(
            row["game_id"],
            split,
            kind,
            goal,
            domain,
            full,
            problem,
            walkthrough_of(row),
            stated,
            sentences,
        )


def _rows(file: Path, unmarked: list[str]) -> list[tuple[dict[str, Any], Description]]:
    silent: list[str] = []
    rows: dict[str, tuple[dict[str, Any], Description]] = {}
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                row = json.loads(line)
                where = f"{file}, line {number}"
                check_fields(row, ("game_id", "task_type", "task", "pddl_problem"), where)
                description = in_row(row, where)
                if row["game_id"] in rows:
                    raise InputError(
                        f"{where}: a second game {row['game_id']!r}; ids name games. {REMEDY}"
                    )
                marked = marked_solvable(row, where)
                if marked is None:
                    silent.append(row["game_id"])
                if marked is not False:
                    rows[row["game_id"]] = row, description
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(
            f"{file}, after line {number}: broken or truncated ({error}). {REMEDY}"
        ) from error
    # As this package writes the form, no game says it, and all are solvable.
    if len(silent) < number:
        unmarked += silent
    return list(rows.values())


def _read_official(folder: Path, split: str, unmarked: list[str]) -> Iterator[GameRecord]:
    files = {
        f"{path.parents[1].name}/{path.parent.name}": path for path in folder.glob(f"*/*/{GAME_FILE}")
    }
    texts: dict[str, str] = {}
    for game_id, file in sorted(files.items()):
        # The original leaves these out as well: its text engine does not support their tasks.
        if "movable" in game_id or "Sliced" in game_id:
            continue
        game = read_json(file)
        check_fields(game, (), str(file))
        marked = marked_solvable(game, str(file))
        if marked is None:
            unmarked.append(game_id)
        if marked is not False:
            yield _record(game, file, split, texts)


def read_game(file: Path) -> GameRecord:
    """Return the game of one ``game.tw-pddl``, marked solvable or not; the split is named after its folder.

    Raises:
        InputError: if the file is missing or broken.
    """
    return _record(read_json(file), file, file.absolute().parents[2].name, {})


def _record(game: Any, file: Path, split: str, texts: dict[str, str]) -> GameRecord:
    """Return the game that ``file`` holds; equal texts are kept once, in ``texts``."""
    check_fields(game, ("pddl_domain", "grammar", "pddl_problem"), str(file))
    domain, grammar = (texts.setdefault(game[name], game[name]) for name in ("pddl_domain", "grammar"))
    task, trial = file.absolute().parts[-3:-1]
    kind, stated, sentences = beside(file)
    goal, problem = goal_in(grammar, file), game["pddl_problem"]
    return GameRecord(
        f"{task}/{trial}",
        split,
        kind,
        goal,
        domain,
        grammar,
        problem,
        walkthrough_of(game),
        stated,
        sentences,
    )
