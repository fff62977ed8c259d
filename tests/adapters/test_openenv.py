"""OpenEnv's own client plays through the server over the loopback, in sessions side by side."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from openenv.core.generic_client import GenericEnvClient

from tests.adapters.examples import ROOT, run_example
from tests.documents import SERVER, blocks
from threespo.adapters.openenv import TextAction, TextEnvironment, app
from threespo.envs.alfworld import compile_game, embedded
from threespo.errors import InputError

START_S = 120


@pytest.fixture(scope="module")
def server():
    """The address of a server that the documented command has started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "threespo.adapters.openenv",
        "--split",
        "valid_unseen",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command)
    address, begun = f"http://127.0.0.1:{port}", time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                assert answer.status == 200
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() - begun < START_S
            time.sleep(0.2)
    yield address
    process.terminate()
    process.wait(timeout=20)


def test_a_client_wins_a_game(server):
    game = compile_game(embedded.generate_game("valid_unseen", 7, "full", 2))
    with GenericEnvClient(base_url=server).sync() as client:
        result = client.reset(task=game.task_id)
        assert result.observation["goal"] == game.goal
        assert not result.done
        for number, command in enumerate(game.walkthrough, start=1):
            assert command in result.observation["admissible_commands"]
            result = client.step({"command": command})
            won = number == len(game.walkthrough)
            assert (result.done, result.reward) == (won, float(won))
        assert client.state()["step_count"] == len(game.walkthrough)


def test_sessions_do_not_see_each_other(server):
    with (
        GenericEnvClient(base_url=server).sync() as one,
        GenericEnvClient(base_url=server).sync() as other,
    ):
        first = one.reset(index=0).observation
        second = other.reset(split="valid_seen", index=0).observation
        assert first["task"] != second["task"]
        one.step({"command": "look"})
        assert (one.state()["step_count"], other.state()["step_count"]) == (1, 0)


@pytest.mark.parametrize("block", [one for one in blocks("python", "diff") if one.asks], ids=str)
def test_the_programs_of_the_page_run(server, block):
    exec(compile(block.python.replace(SERVER, server), str(block), "exec"), {"__name__": "document"})


def test_the_server_lists_splits_and_tasks(server):
    with urllib.request.urlopen(f"{server}/threespo-alfworld/splits", timeout=20) as answer:
        assert b"valid_unseen" in answer.read()


def test_the_environment_alone():
    env = TextEnvironment("alfworld", "valid_seen")
    with pytest.raises(InputError, match="no episode yet"):
        env.step(TextAction(command="look"))
    assert env.num_tasks("valid_seen") == 140
    assert env.get_task("valid_seen", 3) == {"id": env.list_tasks("valid_seen")[3]["id"], "index": 3}
    one, other = env.reset(seed=5), env.reset(seed=5)
    assert one == other
    with pytest.raises(InputError, match="no argument 'tusk'"):
        env.reset(tusk=1)
    with pytest.raises(InputError, match="no task 'x'"):
        env.reset(task="x")


def test_the_manifest_names_what_is_there():
    manifest = yaml.safe_load(
        (Path(__file__).parents[2] / "threespo" / "adapters" / "openenv.yaml").read_text()
    )
    assert manifest["app"] == f"{app.__module__}:{app.__name__}"
    assert manifest["spec_version"] == 1


def test_the_example_runs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert "You" in run_example("openenv_client")
