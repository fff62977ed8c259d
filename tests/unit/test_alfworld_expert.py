"""The scripted expert: it reads every goal form, wins when careful, and says what it does in a form that can be learned."""

import pytest

from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.text import NOTHING_HAPPENS
from threespo.envs.episode import EpisodeSetup, respond, start_episode
from threespo.errors import InputError
from threespo.imitation.alfworld.expert import CAREFUL, ExpertNoise, Goal, decide, parse_goal
from threespo.imitation.cloning import response_text
from threespo.rng import generator

SETUP = EpisodeSetup(Alfworld(), 15, 2)


def play(task, faults, seed=0):
    rng, episode, turns = generator("explorer", seed, task.task_id), start_episode(SETUP, task), []
    while not episode.done:
        decision = decide(episode, rng, faults)
        outcome = respond(episode, response_text(decision))
        turns.append((decision, outcome))
        episode = outcome.episode
    return episode, turns


@pytest.fixture(scope="module")
def games():
    return [compile_game(record) for record in generate_games("valid_unseen", 120, 3, "small")]


def test_the_careful_expert_wins_and_never_errs(games):
    played = [play(game, CAREFUL) for game in games]
    assert sum(episode.won for episode, _ in played) >= 0.9 * len(games)
    assert all(outcome.admissible and outcome.valid for _, turns in played for _, outcome in turns)


def test_carelessness_costs_wins_and_noise_shows_failing_commands(games):
    careless = ExpertNoise(random_goto=0.5, overlook=0.55, skip_treatment=0.5, wrong_object=0.2)
    wins = [sum(play(game, faults)[0].won for game in games) for faults in (CAREFUL, careless)]
    assert wins[1] < 0.7 * wins[0]
    failing = [play(game, ExpertNoise(failing_action=0.3))[1] for game in games[:20]]
    assert any(
        outcome.episode.observation == NOTHING_HAPPENS for turns in failing for _, outcome in turns
    )


def test_the_second_word_of_a_thought_is_the_decision(games):
    seen = {decision.thought.split()[1] for game in games for decision, _ in play(game, CAREFUL)[1]}
    assert {"not", "closed", "have"} < seen
    assert all(word.isdigit() for word in seen - {"not", "closed", "have", "wrong"})


@pytest.mark.parametrize(
    ("sentence", "goal"),
    [
        ("put some mug on desk.", Goal("place", "mug", "desk")),
        ("put a clean mug in desk.", Goal("treat", "mug", "desk", "clean")),
        ("heat some mug and put it in desk.", Goal("treat", "mug", "desk", "heat")),
        ("put a hot mug in desk.", Goal("treat", "mug", "desk", "heat")),
        ("put a cool mug in desk.", Goal("treat", "mug", "desk", "cool")),
        ("put two mug in desk.", Goal("two", "mug", "desk")),
        ("find two mug and put them in desk.", Goal("two", "mug", "desk")),
        ("look at mug under the desklamp.", Goal("look", "mug", "desklamp")),
        ("examine the mug with the desklamp.", Goal("look", "mug", "desklamp")),
    ],
)
def test_goal_sentences(sentence, goal):
    assert parse_goal(sentence) == goal


def test_an_unknown_goal_is_named():
    with pytest.raises(InputError, match="paint the mug"):
        parse_goal("paint the mug.")
