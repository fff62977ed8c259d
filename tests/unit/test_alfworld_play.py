"""Terminal play, and a policy's choices in its place."""

import io
from collections.abc import Sequence

from tests.alfworld_mini import mini
from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.text import alfworld_prompt
from threespo.envs.episode import Episode, EpisodeSetup, begin
from threespo.protocol import Sample, SampleRequest
from threespo.runs.play import ask, play_task, sampled

GOAL = "(opened Drawer_bar_1)"


def start() -> Episode:
    return begin(EpisodeSetup(Alfworld(), 99, 0), compile_game(mini(GOAL)))


def test_a_person_plays_to_the_win() -> None:
    out = io.StringIO()
    won = play_task(
        start(), ask(iter(["go to drawer 1\n", "dance\n", "open drawer 1\n"]), out), out
    )
    assert won
    shown = out.getvalue()
    assert "You arrive at drawer 1. The drawer 1 is closed." in shown
    assert "Nothing happens." in shown
    assert "Admissible: go to drawer 1, go to shelf 1," in shown
    assert shown.endswith("Won after 3 steps.\n")


def test_quit_and_the_end_of_input_stop_the_game() -> None:
    for lines in (["look\n", "quit\n", "open drawer 1\n"], ["look\n"]):
        out = io.StringIO()
        assert not play_task(start(), ask(iter(lines), out), out)
        assert out.getvalue().endswith("Stopped.\n")


class Scripted:
    """A sampler that answers from a list and keeps the prompts."""

    def __init__(self, actions: Sequence[str]) -> None:
        self.actions = iter(actions)
        self.prompts: list[str] = []

    def sample(self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float) -> list[list[Sample]]:
        self.prompts += [request.prompt for request in requests]
        text = f"<think>so</think><action>{next(self.actions)}</action>"
        return [[Sample(tokens=(1,), logprobs=(0.0,), text=text, finished=True)] for _ in requests]


def test_a_policy_plays_with_its_history() -> None:
    out, game, env = io.StringIO(), compile_game(mini(GOAL)), Alfworld()
    sampler = Scripted(["go to drawer 1", "look", "look"])
    assert not play_task(begin(EpisodeSetup(env, 3, 2), game), sampled(sampler, 1.0, out), out)
    assert out.getvalue().endswith("Not won after 3 steps.\n")
    assert "> go to drawer 1" in out.getvalue()
    start = env.initial(game)
    there = env.step(start, "go to drawer 1").state
    history = ((start.observation, "go to drawer 1"),)
    assert sampler.prompts[1] == alfworld_prompt(game.goal, there.observation, env.admissible(there), history, 2)
