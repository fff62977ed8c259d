"""The programs of examples/ that need no other framework run; tests/adapters runs the others. Searches find what is so."""

import importlib.util

import gymnasium
import numpy as np
import pytest

import threespo.gym  # noqa: F401  (registers the environments)
from tests.adapters.examples import ROOT, run_example
from tests.documents import blocks
from threespo.envs.episode import take_action

LIGHT = {
    "beam_search": "WebShop: 10 of 10 won",
    "gymnasium_forks": "bytes; 0 steps taken",
    "gymnasium_vector": "won",
    "monte_carlo_value": "0.60 ± 0.00 click[buy now]",
    "trl_environment": "the other goes on at 0.0",
    "verl_agent_envs": "128 episodes of 16 games",
}
# The outputs that a document shows, whole lines of them.
SHOWN = dict(
    zip(("beam_search", "monte_carlo_value"), blocks("text", page="docs/searching.md"), strict=True)
)
OTHERS = {"openenv_client", "skyrl_environment", "verifiers_taskset"}


def test_every_example_is_run_somewhere():
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == LIGHT.keys() | OTHERS


@pytest.mark.parametrize("name", LIGHT)
def test_an_example_runs(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    printed = run_example(name)
    assert LIGHT[name] in printed
    assert name not in SHOWN or set(SHOWN[name].text.splitlines()) <= set(printed.splitlines())


def loaded(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "split", "task"), [("ALFWorld", "valid_unseen", 5), ("WebShop", "test", 7)]
)
def test_what_a_beam_search_finds_wins_again(name, split, task):
    """Its commands are admissible one after the other and win; the origin and the budget are as they were."""
    env = gymnasium.make(f"threespo/{name}-v0", split=split).unwrapped
    env.reset(options={"task": task})
    start, search = env.episode, loaded("beam_search").beam_search
    score, path, taken = search(env, 30, 3000)
    assert (score, env.episode) == (1.0, start)
    assert search(env, 30, taken) == (score, path, taken)
    assert search(env, 30, taken - 1)[0] < 1
    assert search(env, 30, taken - 1)[2] == taken - 1
    for number, command in enumerate(path, start=1):
        _, _, ended, _, info = env.step(command)
        assert (info["admissible"], ended) == (True, number == len(path))
    assert info["won"]


def exact(episode, listed):
    """Return mean and mean square of the scores of random play from a point, by enumeration."""
    if episode.done:
        return np.array([episode.score, episode.score**2])
    return np.mean([exact(take_action(episode, command), listed) for command in listed(episode)], axis=0)


@pytest.mark.parametrize(("name", "further"), [("ALFWorld", ("go to desk 1",)), ("WebShop", ())])
def test_monte_carlo_values_are_those_of_all_ways(name, further):
    """With two steps left every way can be gone, so the values and the errors of their estimates are known."""
    program, count = loaded("monte_carlo_value"), 400
    split, task, commands = program.POINTS[name]
    commands = (*commands, *further)
    options = {"split": split, "max_steps": len(commands) + 2, "autoreset": False}
    many = gymnasium.make_vec(f"threespo/{name}-v0", count, "vector_entry_point", **options)
    many.reset(options={"tasks": [task] * count})
    for command in commands:
        many.step([command] * count)
    point, start = many.episodes[0], many.snapshot()

    found = program.values(many, 3)
    many.restore(start)
    assert program.values(many, 3) == found
    assert found.keys() == set(program.listed(point))
    known = []
    for command, (mean, error) in found.items():
        value, square = exact(take_action(point, command), program.listed)
        true_error = max(0.0, (square - value**2) / count) ** 0.5
        assert mean == pytest.approx(value, abs=4.5 * true_error + 1e-9), command
        assert error == pytest.approx(true_error, rel=0.5, abs=1e-9), command
        known.append(round(value, 6))
    assert len(set(known)) > 2
