"""Games on disk: the official layout, and a compact form in a few files.

Official: ``SPLIT/TASK/TRIAL/game.tw-pddl`` with an optional ``traj_data.json`` in the same folder, as ``alfworld-download``
lays games out (there below ``json_2.1.1``). Compact: ``SPLIT.jsonl`` or ``SPLIT.jsonl.xz``, a game a line, with the texts
that all games share in ``alfred.pddl`` and ``grammar.twl2`` (task sentence replaced by ``@@TASK@@``).
"""

import json
import lzma
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.game_files import (
    ANNOTATIONS_FILE,
    REMEDY,
    TASK_TYPES,
    Description,
    check_fields,
    format_description,
    parse_description,
    read_description,
    read_goal,
    read_json,
    read_shared_text,
    read_solvable,
    read_walkthrough,
)
from threespo.envs.alfworld.grammar import (
    TASK_PREFIX,
    PlainText,
    parse_text,
    replace_task_sentence,
    split_task_sentence,
)
from threespo.errors import InputError
from threespo.files import open_text, replace_file, write_text
from threespo.rng import derive
from threespo.terminal import join_first, warn_once

GAME_FILE = "game.tw-pddl"
DOMAIN_FILE = "alfred.pddl"
GRAMMAR_FILE = "grammar.twl2"
TASK_PLACEHOLDER = "@@TASK@@"
# The splits of real games; ``calibration`` is taken from ``train``.
RELEASED_SPLITS = ("train", "valid_seen", "valid_unseen")

_COMPACT_SUFFIXES = (".jsonl", ".jsonl.xz")
_OFFICIAL_ROOTS = ("", "json_2.1.1", "json_2.1.2", "json_2.1.3")


class _CompactRow(NamedTuple):
    """A line of a compact file, checked."""

    fields: dict[str, Any]
    description: Description


def load_games(
    folder: Path,
    split: str,
    limit: int | None = None,
    task_types: Collection[str] | None = None,
    human_goals: float = 0.0,
    goal_seed: int = 0,
) -> list[GameRecord]:
    """Return the games of one split, ordered by ``game_id``, without those that are marked as not solvable.

    The rule is the same for both forms: ``solvable: false`` leaves a game out, and a file without the field leaves it in,
    since a missing field must not shrink a test set. A warning names such games; of a compact form only if others have it.

    Args:
        folder: games in the official layout or the compact form.
        split: for example ``train``, ``valid_seen``, ``valid_unseen``.
        limit: maximum number of games, the first in order.
        task_types: only these; None for all.
        human_goals: share of the games whose task sentence is a human annotation, in [0, 1].
        goal_seed: decides, with each game's id, which games and which annotations.

    Raises:
        InputError: if the split is missing, empty or broken, or a game lacks annotations that are asked for; names the file
            and what to do.
    """
    _check_human_goals(human_goals, goal_seed)
    unknown = sorted(set(task_types or ()) - set(TASK_TYPES))
    if unknown:
        raise InputError(f"unknown task type {unknown[0]!r}; the task types are {', '.join(TASK_TYPES)}")

    compact_file = _find_compact_file(folder, split)
    official_folder = _find_official_folder(folder, split)
    source = compact_file or official_folder
    if source is None:
        splits = ", ".join(find_splits(folder)) or "none"
        raise InputError(
            f"{folder}: no split {split!r} there (splits found: {splits}). Expected {split}.jsonl(.xz) with "
            f"{DOMAIN_FILE} and {GRAMMAR_FILE}, or {split}/TASK/TRIAL/{GAME_FILE}. {REMEDY}"
        )
    read_split = _read_compact if compact_file else _read_official

    records: list[GameRecord] = []
    unmarked: list[str] = []
    for record in read_split(source, split, unmarked):
        if task_types is None or record.task_type in task_types:
            if _has_human_goal(record, human_goals, goal_seed):
                file = compact_file or source / record.game_id / ANNOTATIONS_FILE
                record = _with_human_goal(record, goal_seed, file)
            records.append(record)
        # Official games are read lazily: a small limit opens few of the thousands of files.
        if limit is not None and len(records) >= limit:
            break

    if not records and limit != 0:
        wanted = f" of the task types {', '.join(sorted(task_types))}" if task_types else ""
        raise InputError(f"{source}: the split {split!r} holds no solvable game{wanted}. {REMEDY}")
    # The games of a compact form share one grammar.
    if compact_file is None:
        _warn_of_several_wordings(source, records)
    if unmarked:
        warn_once(
            f"{source}: {len(unmarked)} game(s) do not say whether they can be solved (no field 'solvable'): "
            f"{join_first(unmarked)}; they are played here, and ALFWorld's own AlfredTWEnv leaves them out"
        )
    return records


def _warn_of_several_wordings(folder: Path, records: Sequence[GameRecord]) -> None:
    wordings = Counter(record.wording for record in records)
    if len(wordings) > 1:
        counts = ", ".join(f"{count} '{name}'" for name, count in sorted(wordings.items()))
        warn_once(
            f"{folder}: games of several wordings ({counts}): 'move X to Y' is no command where 'put X in/on Y' is one"
        )


def find_splits(folder: Path) -> list[str]:
    """Return the names of the splits in ``folder``, sorted; empty if there is none."""
    if not folder.is_dir():
        return []
    names = set()
    for suffix in _COMPACT_SUFFIXES:
        names |= {path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")}
    names |= {path.parents[2].name for path in _official_game_files(folder)}
    return sorted(names)


def describe_missing_files(folder: Path) -> str | None:
    """Return what a folder lacks to be the games of a study, in words; ``None`` if it is complete."""
    has_compact = False
    absent = []
    for split in RELEASED_SPLITS:
        official = _find_official_folder(folder, split)
        if _find_compact_file(folder, split):
            has_compact = True
        elif official is None or not any(official.glob(f"*/*/{GAME_FILE}")):
            absent.append(split)
    if len(absent) == len(RELEASED_SPLITS):
        return "no games"
    if absent:
        return f"no games of {', '.join(absent)}"

    for file_name in (DOMAIN_FILE, GRAMMAR_FILE):
        if has_compact and not (folder / file_name).is_file():
            return f"no {file_name} beside its games"
    return None


def contains_games(folder: Path) -> bool:
    """Return whether a folder holds games, in either form."""
    return (folder / DOMAIN_FILE).is_file() or any(_official_game_files(folder))


def _official_game_files(folder: Path) -> Iterator[Path]:
    for root in _OFFICIAL_ROOTS:
        yield from (folder / root).glob(f"*/*/*/{GAME_FILE}")


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
    shared_texts: dict[str, str] = {}
    for record in records:
        by_split.setdefault(record.split, []).append(record)
        texts = {DOMAIN_FILE: record.domain, GRAMMAR_FILE: _grammar_with_placeholder(record)}
        if shared_texts and shared_texts != texts:
            raise InputError(
                f"{record.label} has another domain or grammar than the games before it: they cannot share a folder"
            )
        shared_texts = texts

    for file_name, text in shared_texts.items():
        file = folder / file_name
        is_different = file.exists() and file.read_text(encoding="utf-8") != text
        if is_different and set(find_splits(folder)) - by_split.keys():
            raise InputError(f"{file} belongs to other games; write to another folder")
        write_text(file, text)

    for split, games in by_split.items():
        rows = [_format_row(game) for game in sorted(games, key=lambda game: game.game_id)]
        with replace_file(folder / f"{split}.jsonl.xz") as temporary:
            temporary.write_bytes(lzma.compress("".join(rows).encode()))


def _format_row(game: GameRecord) -> str:
    _, sentence = split_task_sentence(game.grammar)
    row = {
        "game_id": game.game_id,
        **format_description(game),
        "task": sentence,
        "pddl_problem": game.problem,
        "walkthrough": list(game.walkthrough),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _grammar_with_placeholder(record: GameRecord) -> str:
    template, sentence = split_task_sentence(record.grammar)
    # The texts first differ where the sentence begins: the template has an empty one there.
    pairs = enumerate(zip(template, record.grammar, strict=False))
    position = next(index for index, (ours, theirs) in pairs if ours != theirs)
    # A JSON string can be written in several ways, and the compact form writes it in one.
    marked = f"{template[:position]}{TASK_PLACEHOLDER}{template[position:]}"
    if _fill_placeholder(marked, sentence) != record.grammar or TASK_PLACEHOLDER in template:
        raise InputError(
            f"{record.label}: the task sentence in its grammar is written in a way that the compact form cannot repeat"
        )
    return marked


def _fill_placeholder(grammar: str, sentence: str) -> str:
    # Without the quotes, which are in the grammar already.
    return grammar.replace(TASK_PLACEHOLDER, json.dumps(sentence, ensure_ascii=False)[1:-1])


def _find_compact_file(folder: Path, split: str) -> Path | None:
    paths = [folder / f"{split}{suffix}" for suffix in _COMPACT_SUFFIXES]
    return next((path for path in paths if path.is_file()), None)


def _find_official_folder(folder: Path, split: str) -> Path | None:
    paths = [folder / root / split for root in _OFFICIAL_ROOTS]
    return next((path for path in paths if path.is_dir()), None)


def _read_compact(file: Path, split: str, unmarked: list[str]) -> Iterator[GameRecord]:
    """Yield the games of a file in order of their ids; add those without the field ``solvable`` to ``unmarked``."""
    domain = read_shared_text(file.with_name(DOMAIN_FILE))
    grammar_file = file.with_name(GRAMMAR_FILE)
    grammar = read_shared_text(grammar_file)
    if TASK_PLACEHOLDER not in grammar:
        raise InputError(
            f"{grammar_file}: no {TASK_PLACEHOLDER} in it, where the task sentence belongs. {REMEDY}"
        )

    # Thousands of games have few task sentences: they share the texts.
    grammars: dict[str, str] = {}
    rows = sorted(_read_rows(file, unmarked), key=lambda row: str(row.fields["game_id"]))
    for row, description in rows:
        task = row["task"]
        if task not in grammars:
            grammars[task] = _fill_placeholder(grammar, task)
        yield GameRecord(
            game_id=row["game_id"],
            split=split,
            task_type=description.task_type,
            goal=read_goal(grammars[task], file),
            domain=domain,
            grammar=grammars[task],
            problem=row["pddl_problem"],
            walkthrough=read_walkthrough(row),
            stated_targets=description.stated_targets,
            annotations=description.annotations,
        )


def _read_rows(file: Path, unmarked: list[str]) -> list[_CompactRow]:
    """Return the rows of a compact file without those marked as not solvable."""
    without_field: list[str] = []
    rows: dict[str, _CompactRow] = {}
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                row = json.loads(line)
                where = f"{file}, line {number}"
                check_fields(row, ("game_id", "task_type", "task", "pddl_problem"), where)
                description = parse_description(row, where)
                if row["game_id"] in rows:
                    raise InputError(
                        f"{where}: a second game {row['game_id']!r}; ids name games. {REMEDY}"
                    )
                solvable = read_solvable(row, where)
                if solvable is None:
                    without_field.append(row["game_id"])
                if solvable is not False:
                    rows[row["game_id"]] = _CompactRow(row, description)
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(
            f"{file}, after line {number}: broken or truncated ({error}). {REMEDY}"
        ) from error
    # In files that this package writes, no game has the field, and all are solvable.
    if len(without_field) < number:
        unmarked += without_field
    return list(rows.values())


def _read_official(folder: Path, split: str, unmarked: list[str]) -> Iterator[GameRecord]:
    """Yield the games of a folder in order of their ids; add those without the field ``solvable`` to ``unmarked``."""
    files = {
        f"{path.parents[1].name}/{path.parent.name}": path for path in folder.glob(f"*/*/{GAME_FILE}")
    }
    shared_texts: dict[str, str] = {}
    for game_id, file in sorted(files.items()):
        # The original leaves these out as well: its text engine does not support their tasks.
        if "movable" in game_id or "Sliced" in game_id:
            continue
        game = read_json(file)
        check_fields(game, (), str(file))
        solvable = read_solvable(game, str(file))
        if solvable is None:
            unmarked.append(game_id)
        if solvable is not False:
            yield _make_record(game, file, split, shared_texts)


def read_game(file: Path) -> GameRecord:
    """Return the game of one ``game.tw-pddl``, marked solvable or not; the split is named after its folder.

    Raises:
        InputError: if the file is missing or broken.
    """
    return _make_record(read_json(file), file, file.absolute().parents[2].name, {})


def _make_record(game: Any, file: Path, split: str, shared_texts: dict[str, str]) -> GameRecord:
    """Return the game of a file; equal texts are kept in memory once, in ``shared_texts``."""
    check_fields(game, ("pddl_domain", "grammar", "pddl_problem"), str(file))
    domain = shared_texts.setdefault(game["pddl_domain"], game["pddl_domain"])
    grammar = shared_texts.setdefault(game["grammar"], game["grammar"])
    task, trial = file.absolute().parts[-3:-1]
    description = read_description(file)
    return GameRecord(
        game_id=f"{task}/{trial}",
        split=split,
        task_type=description.task_type,
        goal=read_goal(grammar, file),
        domain=domain,
        grammar=grammar,
        problem=game["pddl_problem"],
        walkthrough=read_walkthrough(game),
        stated_targets=description.stated_targets,
        annotations=description.annotations,
    )


# Human goals: what ``alfworld-generate`` does with ``goal_desc_human_anns_prob``, where games are loaded.


def _check_human_goals(share: float, seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"goal_seed: expected a whole number, found {seed!r}")
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise InputError(
            f"human_goals: expected a share of the games, from 0 to 1 (or False, True), found {share!r}"
        )


def _has_human_goal(record: GameRecord, share: float, seed: int) -> bool:
    """Return whether a game is among a share of the games: a function of its id and the seed."""
    return derive("share of human goals", seed, record.game_id) < share * 2**64


def _with_human_goal(record: GameRecord, seed: int, file: Path) -> GameRecord:
    """Return a game with one of its annotations as its task sentence; walkthrough and goal condition stay.

    Raises:
        InputError: if the grammar can hold none of them; names ``file``, where they should be.
    """
    usable = [sentence for sentence in record.annotations if _fits_grammar(sentence)]
    if not usable:
        found = "no annotations"
        if record.annotations:
            found = f"{len(record.annotations)} annotations, none of plain text"
        raise InputError(
            f"{file}: {found} ('turk_annotations') for {record.label}, as human_goals needs them; give the folder of "
            "alfworld-download with its traj_data.json files, or human_goals=0"
        )
    sentence = usable[derive("human goal", seed, record.game_id) % len(usable)]
    grammar = replace_task_sentence(record.grammar, TASK_PREFIX + sentence)
    return replace(record, goal=sentence, grammar=grammar)


def _fits_grammar(sentence: str) -> bool:
    """Return whether a grammar prints a sentence unchanged.

    Quotes, brackets and other signs of the grammar's own would end the text, or break its JSON as the original writes it.
    """
    if not sentence.strip() or not sentence.isprintable() or "\\" in sentence:
        return False
    task = TASK_PREFIX + sentence
    parts = parse_text(task)
    printed = "".join(part.text if isinstance(part, PlainText) else "" for part in parts)
    return printed == task
