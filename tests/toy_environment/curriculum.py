"""How a tiny policy learns the corridor: from an expert that takes the wanted ball where it sees it, else goes on."""

import itertools
from pathlib import Path

from threespo.envs.corridor.corridor import COLOURS, Corridor
from threespo.envs.corridor.spec import task

from threespo.envs.episode import EpisodeSetup
from threespo.imitation.curriculum import Curriculum, Decision, Recipe, Stage, TinyModelShape
from threespo.imitation.tokenizer import vocabulary


def decide(episode, rng, noise=0.0):
    """Return the expert's decision; with the probability ``noise`` it takes whatever it sees."""
    wanted, here = episode.task.wanted, episode.task.balls[episode.state.room]
    if wanted == here or rng.random() < noise:
        return Decision(f"{wanted} here", f"take {here} ball")
    return Decision(f"{wanted} elsewhere", "go on")


def understanding(turns):
    """Return the share of states in which the policy does what the expert does."""
    return {"agreement": sum(turn.taken == turn.wanted for turn in turns) / max(1, len(turns))}


def curriculum(settings):
    """Return the curriculum."""
    stage = Stage(
        tokens=300_000,
        learning_rate=3e-3,
        prompt_weight=0.1,
        decision_weight=4.0,
        executed=0.05,
        labels=0.0,
    )
    weakening = Stage(
        tokens=15_000,
        learning_rate=2e-3,
        prompt_weight=0.0,
        decision_weight=4.0,
        executed=0.8,
        labels=None,
    )
    return Curriculum(
        shipped=Path(__file__).parent / "shipped",
        recipe=Recipe(TinyModelShape(64, 2, 2, 128), (stage,), weakening, most_weakening_steps=2),
        setup=EpisodeSetup(Corridor(), settings.episode.max_steps, settings.episode.history_length),
        expert=decide,
        tasks=lambda stream, _: (task(f"stream-{stream}-{number}") for number in itertools.count()),
        vocabulary=lambda texts, tasks: vocabulary(texts, COLOURS),
        lowercase=False,
        decides="thought",
        response_tokens=16,
        is_diagnostic=lambda decision: True,
        grounding_metrics=understanding,
    )
