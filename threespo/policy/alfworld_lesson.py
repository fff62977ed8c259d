"""How tiny policies learn ALFWorld: from embedded games, or from real ones mixed with embedded ones."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_stream
from threespo.envs.base import Task
from threespo.envs.episode import World
from threespo.policy.cloning import Stage
from threespo.policy.explorer import Carelessness
from threespo.policy.teaching import SHAPES, Decision, Lesson, Recipe, TaskStream, Turn
from threespo.policy.tokenizer import vocabulary
from threespo.rng import generator

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.environments import AlfworldSettings

CARELESS = Carelessness(random_action=0.1, random_goto=0.5, overlook=0.55, skip_treatment=0.5, wrong_object=0.2)
"""The explorer that makes the strong policy weak."""


def lesson(study: "Study", size: str, data: Path) -> Lesson:
    """Return the lesson for a study's games."""
    settings = study.alfworld
    assert settings is not None
    difficulty = settings.difficulty if settings.source == "embedded" else "real"
    world, tasks = World(Alfworld(), settings.max_steps, settings.history_length), task_stream(settings, data)
    plan = recipe(size, difficulty)
    return Lesson(f"alfworld-{difficulty}", plan, world, tasks, _tokens, False, "thought", 32, _telling, _understanding)


def recipe(size: str, difficulty: str) -> Recipe:
    """Return the recipe for a size (``s``, ``m``) and games (``small``, ``medium``, ``full``, ``real``)."""
    # Larger rooms have longer prompts: the number of sequences, not of tokens, is what is kept.
    length = {"small": 1.0, "medium": 1.5, "full": 2.5, "real": 2.5}[difficulty]
    # A larger network learns more from a token, and takes longer over it.
    rate, effort = {"s": (1.0, 1.0), "m": (0.6, 0.75)}[size]
    million = int(1_000_000 * length * effort)
    whole = Stage(tokens=3 * million, learning_rate=2e-3 * rate, prompt_weight=1.0, decision_weight=1.0)
    respond_well = Stage(tokens=8 * million, learning_rate=1.5e-3 * rate, prompt_weight=0.1, decision_weight=4.0)
    dare = Stage(
        tokens=7 * million if difficulty != "real" else int(7_500_000 * effort),
        learning_rate=1.2e-3 * rate,
        prompt_weight=0.1,
        decision_weight=6.0,
        take_weight=3.0,
        generated_share=0.5 if difficulty == "real" else 0.0,
    )
    return Recipe(
        shape=SHAPES[size],
        stages=(whole, respond_well, dare),
        # The larger one forgets its format before it forgets how to play.
        target={"s": 0.22, "m": 0.25}[size],
        weakening=Stage(
            tokens=million // 10,
            learning_rate=5e-4 * rate,
            prompt_weight=0.0,
            decision_weight=1.0,
            executed=CARELESS,
            labels=None,
            generated_share=0.5 if difficulty == "real" else 0.0,
        ),
    )


def task_stream(settings: "AlfworldSettings", data: Path) -> TaskStream:
    """Return a stream of fresh embedded games, or of the real training games over and over, mixed with generated ones."""

    def fresh(stream: int, difficulty: str) -> Iterator[Task]:
        return (compile_game(record) for record in generate_stream("train", stream, difficulty))

    if settings.source == "embedded":
        return lambda stream, _: fresh(stream, settings.difficulty)
    from threespo.runs.data import load_tasks

    games = load_tasks("alfworld", data, "train")

    def mixed(stream: int, generated_share: float) -> Iterator[Task]:
        generated = fresh(stream, "full")
        for lap in itertools.count():
            order, rng = list(games), generator(stream, "lap", lap)
            rng.shuffle(order)
            for game in order:
                while rng.random() < generated_share:
                    yield next(generated)
                yield game

    return mixed


def _tokens(texts: list[str], games: list[Task]) -> list[str]:
    names = {name.split()[0] for game in games for name in (*game.receptacles, *game.objects)}  # type: ignore[attr-defined]
    return vocabulary(texts, names)


def _telling(decision: Decision) -> bool:
    """Whether the teacher still looks for the object."""
    return decision.thought.split()[1] != "have"


def _understanding(turns: list[Turn]) -> dict[str, float]:
    """Return whether the policy binds names to what is visible.

    Recall is the share of states with the wanted object in reach in which it takes it, the rate of false positives the
    share of searching states without it in which it tries to take it. Success alone proves neither.
    """
    hits = [0, 0]
    false = [0, 0]
    for turn in turns:
        if turn.wanted.startswith("take "):
            # Any object of the wanted kind that is there will do.
            taken, place = turn.wanted.split(" from ")
            hits[0] += turn.taken.startswith(taken.rsplit(" ", 1)[0] + " ") and turn.taken.endswith(f" from {place}")
            hits[1] += 1
        else:
            false[0] += turn.taken.startswith("take ")
            false[1] += 1
    return {
        "take_recall": hits[0] / max(1, hits[1]),
        "take_states": hits[1],
        "take_false_positives": false[0] / max(1, false[1]),
        "search_states": false[1],
    }
