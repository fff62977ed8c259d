"""Goals in people's words: what ``alfworld-generate`` does with ``goal_desc_human_anns_prob``, where games are loaded."""

from dataclasses import replace
from numbers import Real
from pathlib import Path

from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.grammar import TASK_PREFIX, PlainText, parse_text, replace_task_sentence
from threespo.errors import InputError
from threespo.rng import derive


def check_choice(share: float, seed: int) -> None:
    """Raise ``InputError`` unless this is a share of games, and a seed that can decide which."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"goal_seed: expected a whole number, found {seed!r}")
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise InputError(
            f"human_goals: expected a share of the games, from 0 to 1 (or False, True), found {share!r}"
        )


def drawn(record: GameRecord, share: float, seed: int) -> bool:
    """Return whether a game is among a share of games: a function of its id and the seed."""
    return derive("share of human goals", seed, record.game_id) < share * 2**64


def with_human_goal(record: GameRecord, seed: int, file: Path) -> GameRecord:
    """Return a game with one of its annotations as its task sentence; nothing else is changed.

    Args:
        record: the game; its walkthrough and goal condition stay.
        seed: with the game's id it decides which annotation.
        file: where annotations were looked for, for messages.

    Raises:
        InputError: if there is none that the grammar can hold.
    """
    usable = [sentence for sentence in record.annotations if _fits(sentence)]
    if not usable:
        found = (
            f"{len(record.annotations)} annotations, none of plain text"
            if record.annotations
            else "no annotations"
        )
        raise InputError(
            f"{file}: {found} ('turk_annotations') for {record.where}, as human_goals needs them; give the folder of "
            "alfworld-download with its traj_data.json files, or human_goals=0"
        )
    sentence = usable[derive("human goal", seed, record.game_id) % len(usable)]
    return replace(
        record, goal=sentence, grammar=replace_task_sentence(record.grammar, TASK_PREFIX + sentence)
    )


def _fits(sentence: str) -> bool:
    """Return whether a sentence comes out of the grammar as it is.

    Quotes, brackets and other signs of the grammar's own would end the text, or break its JSON as the original writes it.
    """
    if not sentence.strip() or not sentence.isprintable() or "\\" in sentence:
        return False
    parts = parse_text(TASK_PREFIX + sentence)
    return (
        "".join(part.text if isinstance(part, PlainText) else "" for part in parts)
        == TASK_PREFIX + sentence
    )
