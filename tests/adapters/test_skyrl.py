"""skyrl-gym itself makes, plays and measures the environment."""

import pytest
import skyrl_gym
from omegaconf import OmegaConf

from tests.adapters.examples import ROOT, run_example
from threespo.adapters import skyrl
from threespo.envs.alfworld import compile_game, embedded
from threespo.errors import InputError


def _made(split, task, **options):
    skyrl.register()
    config = OmegaConf.create({"environment": "alfworld", "split": split, **options})
    return skyrl_gym.make(
        "threespo", env_config=config, extras={"reward_spec": None, "extra_info": {"task": task}}
    )


def test_an_episode_is_played_to_its_win():
    game = compile_game(embedded.generate_game("valid_unseen", 7, "full", 4))
    env = _made("valid_unseen", game.task_id)
    conversation, info = env.init([{"role": "system", "content": "Play."}])
    assert [message["role"] for message in conversation] == ["system", "user"]
    assert game.goal in conversation[-1]["content"]
    assert info["task"] == game.task_id
    total, steps = 0.0, list(game.walkthrough)
    for number, command in enumerate(steps, start=1):
        out = env.step(f"<think>so</think><action>{command}</action>")
        total += out["reward"]
        assert out["done"] == (number == len(steps))
        assert out["metadata"] == {"valid": True, "admissible": True, "won": out["done"]}
        assert len(out["observations"]) == (0 if out["done"] else 1)
    assert total == 1.0
    assert env.get_metrics() == {"success": 1.0, "score": 1.0, "steps": len(steps)}
    assert env.aggregate_metrics([env.get_metrics()] * 2)
    with pytest.raises(InputError, match="over"):
        env.step("<action>look</action>")


def test_a_malformed_response_is_a_step():
    env = _made("train", 0)
    env.init([])
    out = env.step("I do not know")
    assert (out["done"], out["metadata"]["valid"], out["reward"]) == (False, False, 0.0)


def test_a_row_without_a_task_is_said():
    skyrl.register()
    with pytest.raises(InputError, match=r"extra_info\.task"):
        skyrl_gym.make("threespo", env_config={}, extras={})


def test_the_example_runs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert "'steps': 2" in run_example("skyrl_environment")
