"""Embedded household games: a generator of small to full-sized ALFWorld-style games that needs no download.

Game i of a split depends on (seed, split, difficulty, i) and nothing else. train, calibration and valid_seen share
their layouts but never a game; the layouts of valid_unseen, of development and of confirmation are their own. Every game
comes with a walkthrough that wins.
"""

import itertools
from collections.abc import Iterator

from threespo import rng
from threespo.envs.alfworld.embedded_plan import plan
from threespo.envs.alfworld.embedded_problem import domain, grammar, problem
from threespo.envs.alfworld.embedded_scene import Scene, draw_scene, draw_task
from threespo.envs.alfworld.embedded_tables import OWN_LAYOUTS, Difficulty, check_split, get_difficulty
from threespo.envs.alfworld.game import GameRecord

# Splits that share layouts are kept apart by the game's fingerprint modulo this number.
_SHARES = {"train": (0, 1), "calibration": (2,), "valid_seen": (3,)}
_MODULUS = 4


def draw_solved_scene(
    split: str, seed: int, difficulty: Difficulty, index: int
) -> tuple[Scene, tuple[str, ...]]:
    """Return what a game is about, and its walkthrough.

    It is the first scene in the game's own stream of draws that belongs to the split and is short enough.

    Args:
        split: one of ``SPLITS``.
        seed: of the stream of games.
        difficulty: sizes and probabilities.
        index: number of the game in the stream, from 0.
    """
    source = rng.generator("embedded game", seed, split, difficulty.name, index)
    # Drawn once: games that are drawn again for being too long must not shift the proportions of task types.
    task = draw_task(source)
    while True:
        scene = draw_scene(source, task, split, difficulty)
        walkthrough = plan(scene)
        if len(walkthrough) > difficulty.longest:
            continue
        if split in OWN_LAYOUTS or scene.fingerprint() % _MODULUS in _SHARES[split]:
            return scene, walkthrough


def generate_game(split: str, seed: int, difficulty: str | Difficulty, index: int) -> GameRecord:
    """Return one game of the stream that :func:`generate` and :func:`generate_stream` read.

    Args:
        split: one of ``embedded_tables.SPLITS``.
        seed: of the stream, any whole number.
        difficulty: small, medium, full, or a ``Difficulty`` of your own.
        index: number of the game in the stream, from 0.

    Raises:
        InputError: for an unknown split or difficulty.
    """
    check_split(split)
    knobs = difficulty if isinstance(difficulty, Difficulty) else get_difficulty(difficulty)
    scene, walkthrough = draw_solved_scene(split, seed, knobs, index)
    goal = scene.goal
    trial = _trial(seed, split, knobs.name, index)
    return GameRecord(
        game_id=f"{goal.task.name}-{goal.object_type}-None-{goal.place_type}-{scene.layout.floor}/{trial}",
        split=split,
        task_type=goal.task.name,
        goal=goal.sentence,
        domain=domain(),
        grammar=grammar(goal.sentence),
        problem=problem(scene, f"plan_{trial}"),
        walkthrough=walkthrough,
    )


def generate_games(split: str, count: int, seed: int, difficulty: str | Difficulty) -> list[GameRecord]:
    """Return the first games of a split.

    Args:
        split: one of ``embedded_tables.SPLITS``.
        count: number of games; a longer list starts with the shorter one's games.
        seed: of the stream of games, any whole number.
        difficulty: small, medium, full, or a ``Difficulty`` of your own.

    Raises:
        InputError: for an unknown split or difficulty.
    """
    return [generate_game(split, seed, difficulty, index) for index in range(count)]


def generate_stream(split: str, seed: int, difficulty: str | Difficulty) -> Iterator[GameRecord]:
    """Yield the games of a split without end, the same games as :func:`generate`.

    Args:
        split: one of ``embedded_tables.SPLITS``.
        seed: of the stream of games, any whole number.
        difficulty: small, medium, full, or a ``Difficulty`` of your own.
    """
    return (generate_game(split, seed, difficulty, index) for index in itertools.count())


def _trial(seed: int, split: str, difficulty: str, index: int) -> str:
    """Return a trial name in the official form (a time stamp's 20 digits), unique up to 64-bit collisions."""
    digits = f"{rng.derive('embedded trial', seed, split, difficulty, index):020d}"
    return f"trial_T{digits[:8]}_{digits[8:14]}_{digits[14:]}"
