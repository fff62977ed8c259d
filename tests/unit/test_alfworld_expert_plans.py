"""``info["expert_plan"]``: walkthroughs that are followed or left, forks, snapshots and vectors, and clear errors."""

import random
import sys

import numpy as np
import pytest

from tests.alfworld_mini import OLD_GRAMMAR, mini
from threespo.envs.alfworld import compile_game
from threespo.envs.alfworld.experts import make_expert
from threespo.envs.alfworld.game import TaskTargets
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, ALFWorldVectorEnv, WebShopEnv

WALK = ("go to shelf 1", "take mug 1 from shelf 1")


def test_a_walkthrough_is_said_as_long_as_it_is_followed():
    env = ALFWorldEnv(split="valid_unseen", order="listed", expert="walkthrough")
    for _ in range(3):
        _, info = env.reset()
        left = list(env.episode.task.walkthrough)
        while left:
            assert info["expert_plan"] == left
            info = env.step(f" {left.pop(0)} ")[4]
        assert (info["won"], info["expert_plan"]) == (True, [])


def test_a_walkthrough_that_was_left_is_not_said():
    expert, game = make_expert("walkthrough"), compile_game(mini(walkthrough=WALK))
    assert expert.plan(game, []) == list(WALK)
    assert expert.plan(game, [WALK[0]]) == [WALK[1]]
    assert expert.plan(game, ["look"]) == []
    assert expert.plan(game, [WALK[0], "look"]) == []
    assert expert.plan(game, [*WALK, "look"]) == []


def test_without_an_expert_nothing_is_said():
    env = ALFWorldEnv(split="valid_unseen")
    assert "expert_plan" not in env.reset(seed=0)[1]
    assert "expert_plan" not in env.step("look")[4]


def test_the_handcoded_expert_wins_most_generated_games():
    pytest.importorskip("alfworld", reason="the original's experts (extra: oracle) are not installed")
    env, won = ALFWorldEnv(split="valid_unseen", order="listed", expert="handcoded"), 0
    for _ in range(10):
        _, info = env.reset()
        while not env.episode.done and info["expert_plan"]:
            info = env.step(info["expert_plan"][0])[4]
        won += info["won"]
    assert won >= 7


def test_a_fork_and_a_point_gone_back_to_have_the_plan_of_one_that_played_there():
    """Plans along a walk with random commands, against environments of their own that are given the whole walk."""
    pytest.importorskip("alfworld", reason="the original's experts (extra: oracle) are not installed")
    source, env = random.Random(2), ALFWorldEnv(split="valid_unseen", order="listed", expert="handcoded")
    _, info = env.reset(options={"task": 3})
    commands, points, plans = [], [env.dump()], [info["expert_plan"]]
    while not env.episode.done and len(commands) < 25:
        commands.append(
            source.choice([*info["expert_plan"], source.choice(info["admissible_commands"])])
        )
        info = env.step(commands[-1])[4]
        points.append(env.dump())
        plans.append(info["expert_plan"])

    task = env.episode.task
    for number in source.sample(range(len(commands)), 8):
        # A new expert remembers nothing of the episode; the environment's own has gone on from here already.
        assert make_expert("handcoded").plan(task, commands[:number]) == plans[number]
        env.restore(points[number])
        assert env.fork().step(commands[number])[4]["expert_plan"] == plans[number + 1]
        assert env.step("look")[4]["expert_plan"] == make_expert("handcoded").plan(
            task, [*commands[:number], "look"]
        )


def test_episodes_of_a_vector_have_the_plans_of_single_environments():
    pytest.importorskip("alfworld", reason="the original's experts (extra: oracle) are not installed")
    many = ALFWorldVectorEnv(3, split="valid_unseen", autoreset=False, expert="handcoded")
    infos = many.reset(seed=1)[1]
    singles = [ALFWorldEnv(split="valid_unseen", expert="handcoded") for _ in range(3)]
    said = [
        one.reset(options={"task": task})[1] for one, task in zip(singles, infos["task"], strict=True)
    ]
    for _ in range(8):
        assert list(infos["expert_plan"]) == [info["expert_plan"] for info in said]
        commands = [plan[0] for plan in infos["expert_plan"]]
        infos = many.step(commands)[4]
        said = [one.step(command)[4] for one, command in zip(singles, commands, strict=True)]
    assert np.all(infos["_expert_plan"])


def test_what_a_task_is_about_is_read_from_its_id():
    lamp = ALFWorldEnv(split="valid_unseen").tasks
    ids = {name.split("-")[0]: name for name in lamp.ids}
    found = lamp.task(ids["look_at_obj_in_light"]).record.targets
    _, thing, _, place, _ = ids["look_at_obj_in_light"].split("/")[0].split("-")
    assert found == TaskTargets(thing, "", place, "")
    assert mini().targets == TaskTargets("Mug", "Shelf", "", "")


def test_errors_are_said(monkeypatch):
    with pytest.raises(
        InputError,
        match="expert: expected one of handcoded, planner, walkthrough or None, found 'human'",
    ):
        ALFWorldEnv(expert="human")
    with pytest.raises(InputError, match=r"webshop: .*expert"):
        WebShopEnv(expert="walkthrough")
    with pytest.raises(InputError, match=r"game train/.*no walkthrough in its file"):
        make_expert("walkthrough").plan(compile_game(mini()), [])
    for module in ("alfworld", "alfworld.agents", "alfworld.agents.expert", "textworld"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("handcoded", "planner"):
        with pytest.raises(
            InputError, match=r"pip install threespo\[oracle\], or use expert='walkthrough'"
        ):
            make_expert(name)


def test_games_that_the_handcoded_expert_does_not_understand_are_refused():
    pytest.importorskip("alfworld", reason="the original's experts (extra: oracle) are not installed")
    with pytest.raises(InputError, match="worded 'put X in/on Y'"):
        make_expert("handcoded").plan(compile_game(mini(grammar=OLD_GRAMMAR)), [])
