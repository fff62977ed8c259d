"""The episode that an evaluation keeps: which one it is, and that it is what was played."""

from types import SimpleNamespace

import pytest

from tests.toy import ToyEnv, make_task
from threespo.envs.episode import EpisodeSetup
from threespo.paths import Run
from threespo.protocol import Sample
from threespo.runs import evaluate
from threespo.runs.settings import EXAMPLE_COLUMNS

MAZE = {"s1": {"left": "s2", "right": "s3"}, "s2": {"win": "goal"}, "s3": {"stay": "s3"}}
TASKS = [make_task(MAZE, {"goal"}, "s1", f"task {number}") for number in range(3)]
SETTINGS = SimpleNamespace(
    run=Run("alfworld", "tiny-s", "grpo", 0),
    agent=None,
    endpoint=None,
    evaluation=SimpleNamespace(splits=("seen", "unseen"), seeds=(1, 2), temperature=0.4),
)


class Player:
    """Wins the games that it is told to: (split, evaluation seed, task)."""

    def __init__(self, wins):
        self.wins = wins

    def sample(self, requests, *, seed, temperature):
        return [[Sample((), (), self.say(request.key, seed), True)] for request in requests]

    def say(self, key, seed):
        _, split, task, step = key
        way = ("left", "win") if (split, seed, task) in self.wins else ("right", "stay")
        return f"<think>{split} {seed} {task}</think><action>{way[step]}</action>"


def kept(monkeypatch, wins):
    monkeypatch.setattr(evaluate, "load_tasks", lambda *_: TASKS)
    monkeypatch.setattr(evaluate, "episode_setup", lambda _: EpisodeSetup(ToyEnv(), 2, 2))
    return evaluate._play(SETTINGS, Player(wins))


@pytest.mark.parametrize(
    ("wins", "seed", "task"),
    [
        ([], 1, "task 0"),
        ([("seen", 1, "task 2")], 1, "task 0"),
        ([("unseen", 1, "task 1"), ("unseen", 1, "task 2"), ("unseen", 2, "task 0")], 1, "task 1"),
        ([("unseen", 2, "task 2")], 2, "task 2"),
    ],
)
def test_it_is_the_first_of_the_last_split_that_was_won_or_else_the_first(monkeypatch, wins, seed, task):
    episodes, _, example = kept(monkeypatch, wins)
    assert len(episodes) == 12
    assert {(row["split"], row["evaluation_seed"], row["task_id"]) for row in example} == {
        ("unseen", seed, task)
    }
    assert example[0]["success"] == any(split == "unseen" for split, *_ in wins)


def test_each_step_has_its_observation_response_and_action_and_the_last_row_the_end(monkeypatch):
    _, _, example = kept(monkeypatch, [("unseen", 1, "task 0")])
    assert [(row["step"], row["observation"], row["action"]) for row in example] == [
        (1, "s1", "left"),
        (2, "s2", "win"),
        (3, "goal", ""),
    ]
    assert [row["response"] for row in example] == [
        "<think>unseen 1 task 0</think><action>left</action>",
        "<think>unseen 1 task 0</think><action>win</action>",
        "",
    ]
    assert all(set(row) == set(EXAMPLE_COLUMNS) for row in example)
