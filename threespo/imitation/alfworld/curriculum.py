"""How tiny policies learn ALFWorld: from embedded games, or from real ones mixed with embedded ones."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from threespo.envs.alfworld import Alfworld, compile_game, sources
from threespo.envs.alfworld.embedded import generate_stream
from threespo.envs.alfworld.settings import AlfworldTasks
from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup
from threespo.imitation.alfworld.expert import CAREFUL, ExpertNoise, decide
from threespo.imitation.curriculum import (
    Curriculum,
    Decision,
    EarlyStop,
    Recipe,
    Stage,
    TaskStream,
    TinyModelShape,
    Turn,
    shipped_name,
)
from threespo.imitation.settings import BasePolicySettings, PolicySize, Weakness
from threespo.imitation.tokenizer import vocabulary
from threespo.rng import generator

NOISY = ExpertNoise(random_action=0.1, failing_action=0.04)
"""The expert that plays while the careful one is imitated, so that clones learn to recover from faults."""

CARELESS = ExpertNoise(
    random_action=0.1, random_goto=0.5, overlook=0.55, skip_treatment=0.5, wrong_object=0.2
)
"""The expert that the strong policy is fine-tuned on to weaken it."""

EARLY_SUCCESS = 0.2
"""Success rate on calibration games, T = 1.0, at which early cloning stops: by then objects are bound (``binding``)."""


def curriculum(settings: BasePolicySettings) -> Curriculum:
    """Return the curriculum for a study's games."""
    tasks, episode = settings.tasks, settings.episode
    assert isinstance(tasks, AlfworldTasks)
    difficulty = tasks.difficulty if tasks.source == "embedded" else "real"
    return Curriculum(
        shipped=Path(__file__).parent / "shipped" / shipped_name(difficulty, settings),
        recipe=make_recipe(settings.size, difficulty, settings.weakness),
        setup=EpisodeSetup(Alfworld(), episode.max_steps, episode.history_length),
        expert=decide,
        tasks=task_stream(tasks, settings.paths.data(settings.env)),
        vocabulary=_tokens,
        lowercase=False,
        decides="thought",
        response_tokens=32,
        is_diagnostic=_telling,
        grounding_metrics=_understanding,
    )


def make_recipe(size: PolicySize, difficulty: str, weakness: Weakness = "planted") -> Recipe:
    """Return the recipe for a size and games.

    Args:
        size: shape and effort.
        difficulty: ``small``, ``medium``, ``full``, or ``real``.
        weakness: what makes the base weak.
    """
    # Larger rooms have longer prompts; with this factor the number of sequences stays about the same.
    length = {"small": 1.0, "medium": 1.5, "full": 2.5, "real": 2.5}[difficulty]
    million = int(1_000_000 * length * size.effort)
    generated_share = 0.5 if difficulty == "real" else 0.0

    def stage(tokens: int, learning_rate: float, prompt_weight: float, decision_weight: float) -> Stage:
        return Stage(
            tokens, learning_rate * size.learning_rate, prompt_weight, decision_weight, NOISY, CAREFUL
        )

    whole = stage(3 * million, 2e-3, 1.0, 1.0)
    respond_well = stage(8 * million, 1.5e-3, 0.1, 4.0)
    # Taking an object is one action in ten and learned last, so the last stage gives it more weight.
    last = 7 * million if difficulty != "real" else int(7_500_000 * size.effort)
    dare = replace(stage(last, 1.2e-3, 0.1, 6.0), take_weight=3.0, generated_share=generated_share)
    stages = (whole, respond_well, dare)
    if weakness == "early":
        return Recipe(
            TinyModelShape.from_size(size),
            stages,
            EarlyStop(4 * million, million // 2),
            target=EARLY_SUCCESS,
        )

    weakening = Stage(
        tokens=million // 10,
        learning_rate=5e-4 * size.learning_rate,
        prompt_weight=0.0,
        decision_weight=1.0,
        executed=CARELESS,
        labels=None,
        generated_share=generated_share,
    )
    return Recipe(TinyModelShape.from_size(size), stages, weakening, target=size.base_success)


def task_stream(settings: AlfworldTasks, data: Path) -> TaskStream:
    """Return an endless stream of fresh embedded games, or of the real training games mixed with embedded ones.

    Args:
        settings: which games.
        data: folder of the study's prepared games.
    """

    def fresh(stream: int, difficulty: str) -> Iterator[Task]:
        return (compile_game(record) for record in generate_stream("train", stream, difficulty))

    if settings.source == "embedded":
        return lambda stream, _: fresh(stream, settings.difficulty)

    games: list[Task] = [compile_game(record) for record in sources.load_games(data, "train")]

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
    """Return whether the expert still looks for the object."""
    return decision.thought.split()[1] != "have"


def _understanding(turns: list[Turn]) -> dict[str, float]:
    """Return whether the policy binds names to what is visible.

    Recall is the share of states with the wanted object in reach in which it takes it; the rate of false positives is
    the share of searching states without it in which it tries to take something. Success alone proves neither.
    """
    hits = [0, 0]
    false = [0, 0]
    for turn in turns:
        if turn.wanted.startswith("take "):
            # Any object of the wanted kind that is there will do.
            taken, place = turn.wanted.split(" from ")
            hits[0] += turn.taken.startswith(taken.rsplit(" ", 1)[0] + " ") and turn.taken.endswith(
                f" from {place}"
            )
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
