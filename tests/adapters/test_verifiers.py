"""verifiers itself loads the taskset and plays an episode, with a model behind an endpoint of ours that knows the way."""

import asyncio
import json

import pytest
import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import environment_class, load_taskset, taskset_config_type

from tests.adapters.examples import ROOT, run_example
from tests.chat_server import USAGE, ChatServer
from threespo.adapters.verifiers import ThreespoConfig, ThreespoEnv, ThreespoEnvConfig, ThreespoTaskset
from threespo.panels.panel import load_panel

ID = "threespo-verifiers"


def test_the_taskset_is_found_by_its_package():
    assert taskset_config_type(ID) is ThreespoConfig
    assert environment_class(ID) is ThreespoEnv


def test_tasks_are_those_of_the_panel_with_its_keys():
    taskset = load_taskset(ThreespoConfig(id=ID, split="valid_unseen"))
    assert isinstance(taskset, ThreespoTaskset)
    tasks = list(taskset.take(5))
    listed = load_panel("alfworld-generated").splits["valid_unseen"][:5]
    assert [(task.data.id, task.data.content) for task in tasks] == [tuple(task) for task in listed]
    assert [task.key for task in tasks] == [f"alfworld/valid_unseen/{task.task_id}" for task in listed]
    (found,) = taskset.include(keys=[tasks[3].key])
    assert found.data.idx == 3


def streamed(handler, text):
    """Answer as endpoints do that are asked to stream: a chunk with the text, one with the end, one with the usage."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    told = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    rows = [
        {**chunk, "choices": [told]},
        {**chunk, "choices": [ended]},
        {**chunk, "choices": [], "usage": USAGE},
    ]
    events = "".join(f"data: {row}\n\n" for row in (*map(json.dumps, rows), "[DONE]"))
    handler.send(200, events.encode(), {"Content-Type": "text/event-stream"})


@pytest.fixture
def server():
    with ChatServer() as running:
        yield running


def test_an_episode_is_played_to_its_win(server, monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    taskset_config = ThreespoConfig(id=ID, split="valid_unseen")
    (task,) = load_taskset(taskset_config).take(1)
    way = taskset_config.open().task(task.data.id).walkthrough

    def answer(handler, asked):
        turn = sum(message["role"] == "user" for message in asked.body["messages"]) - 1
        streamed(handler, f"<think>next</think><action>{way[turn]}</action>")

    server.otherwise = answer
    player = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    env = ThreespoEnv(ThreespoEnvConfig(taskset=taskset_config, player=player))

    async def play():
        client = EvalClientConfig(base_url=server.url, api_key_var="NO_KEY")
        context = ModelContext(model="scripted", client=client)
        async with env.serving():
            return await env.run_episode(task, context)

    episode = asyncio.run(play())
    assert not episode.errors
    (trace,) = episode.traces
    assert trace.reward == 1.0
    found = {name: trace.metrics[name] for name in ("success", "steps", "valid", "admissible")}
    assert found == {"success": 1.0, "steps": float(len(way)), "valid": 1.0, "admissible": 1.0}
    assert len(server.asked) == len(way)


def test_the_example_runs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert "alfworld/valid_unseen/" in run_example("verifiers_taskset")
