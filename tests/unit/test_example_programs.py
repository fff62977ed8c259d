"""The programs of examples/ that need no other framework run; tests/adapters runs the others."""

import pytest

from tests.adapters.examples import ROOT, run_example

LIGHT = {
    "gymnasium_forks": "bytes; 0 steps taken",
    "gymnasium_vector": "won",
    "trl_environment": "the other goes on at 0.0",
    "verl_agent_envs": "128 episodes of 16 games",
}
OTHERS = {"openenv_client", "skyrl_environment", "verifiers_taskset"}


def test_every_example_is_run_somewhere():
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == LIGHT.keys() | OTHERS


@pytest.mark.parametrize("name", LIGHT)
def test_an_example_runs(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert LIGHT[name] in run_example(name)
