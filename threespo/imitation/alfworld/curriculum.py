"""The curriculum by which tiny policies learn ALFWorld: embedded games, or real ones mixed with embedded ones."""

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

# Noise of the expert that plays while the careful one is imitated, so that clones learn to recover from faults.
NOISY = ExpertNoise(random_action=0.1, failing_action=0.04)

# Noise of the expert on which the strong policy is fine-tuned to weaken it.
CARELESS = ExpertNoise(
    random_action=0.1, random_goto=0.5, overlook=0.55, skip_treatment=0.5, wrong_object=0.2
)

# Success rate on calibration games, T = 1.0, at which early cloning stops: by then objects are bound (``binding``).
EARLY_SUCCESS = 0.2


def curriculum(settings: BasePolicySettings) -> Curriculum:
    """Return the curriculum for a study's games."""
    tasks = settings.tasks
    episode = settings.episode
    assert isinstance(tasks, AlfworldTasks)
    difficulty = tasks.difficulty if tasks.source == "embedded" else "real"
    return Curriculum(
        shipped=Path(__file__).parent / "shipped" / shipped_name(difficulty, settings),
        recipe=make_recipe(settings.size, difficulty, settings.weakness),
        setup=EpisodeSetup(Alfworld(), episode.max_steps, episode.history_length),
        expert=decide,
        tasks=task_stream(tasks, settings.paths.data(settings.env)),
        vocabulary=_make_vocabulary,
        lowercase=False,
        decides="thought",
        response_tokens=32,
        is_diagnostic=_is_diagnostic,
        grounding_metrics=_measure_grounding,
    )


def make_recipe(size: PolicySize, difficulty: str, weakness: Weakness = "planted") -> Recipe:
    """Return the recipe for a size and a difficulty: ``small``, ``medium``, ``full``, or ``real``."""
    # Larger rooms have longer prompts; with this factor the number of sequences stays about the same.
    length = {"small": 1.0, "medium": 1.5, "full": 2.5, "real": 2.5}[difficulty]
    million = int(1_000_000 * length * size.effort)
    generated_share = 0.5 if difficulty == "real" else 0.0

    def make_stage(
        tokens: int, learning_rate: float, prompt_weight: float, decision_weight: float
    ) -> Stage:
        learning_rate *= size.learning_rate
        return Stage(tokens, learning_rate, prompt_weight, decision_weight, NOISY, CAREFUL)

    # First the language of prompts and responses, then the decisions within responses.
    language = make_stage(3 * million, 2e-3, 1.0, 1.0)
    decisions = make_stage(8 * million, 1.5e-3, 0.1, 4.0)
    # Taking an object is one action in ten and learned last, so the last stage gives it more weight.
    last_tokens = int(7_500_000 * size.effort) if difficulty == "real" else 7 * million
    taking = replace(
        make_stage(last_tokens, 1.2e-3, 0.1, 6.0), take_weight=3.0, generated_share=generated_share
    )
    stages = (language, decisions, taking)
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
    """Return an endless stream of fresh embedded games, or of the real training games mixed with embedded ones."""

    def generate(stream: int, difficulty: str) -> Iterator[Task]:
        return (compile_game(record) for record in generate_stream("train", stream, difficulty))

    if settings.source == "embedded":
        return lambda stream, _: generate(stream, settings.difficulty)

    games: list[Task] = [compile_game(record) for record in sources.load_games(data, "train")]

    def mix(stream: int, generated_share: float) -> Iterator[Task]:
        generated = generate(stream, "full")
        for epoch in itertools.count():
            order = list(games)
            # The key says "lap": another word would draw another order.
            rng = generator(stream, "lap", epoch)
            rng.shuffle(order)
            for game in order:
                while rng.random() < generated_share:
                    yield next(generated)
                yield game

    return mix


def _make_vocabulary(texts: list[str], games: list[Task]) -> list[str]:
    names: set[str] = set()
    for game in games:
        # Without its number: "mug 1" is two tokens.
        names.update(name.split()[0] for name in (*game.receptacles, *game.objects))  # type: ignore[attr-defined]
    return vocabulary(texts, names)


def _is_diagnostic(decision: Decision) -> bool:
    """Return whether the expert still searches for the object."""
    return decision.thought.split()[1] != "have"


def _measure_grounding(turns: list[Turn]) -> dict[str, float]:
    """Return whether the policy binds names to visible objects.

    Recall is the share of states with the wanted object in reach in which it takes it; the rate of false positives is
    the share of searching states without it in which it tries to take something. Success alone proves neither.
    """
    take_states = 0
    correct_takes = 0
    search_states = 0
    false_takes = 0
    for turn in turns:
        if turn.wanted.startswith("take "):
            take_states += 1
            # Any object of the wanted kind that is there counts.
            item, place = turn.wanted.split(" from ")
            kind = item.rsplit(" ", 1)[0]
            correct_takes += turn.taken.startswith(f"{kind} ") and turn.taken.endswith(f" from {place}")
        else:
            search_states += 1
            false_takes += turn.taken.startswith("take ")

    return {
        "take_recall": correct_takes / max(1, take_states),
        "take_states": take_states,
        "take_false_positives": false_takes / max(1, search_states),
        "search_states": search_states,
    }
