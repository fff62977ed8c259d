"""The benchmark of the original WebShop: what it asks of a checkout, on a stand-in that has the original's interface."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import webshop

ROOT = Path(__file__).resolve().parents[2]

# As read in the original: ``reset(session)``, ``step`` with four values, ``get_available_actions``, ``instruction_text``, a
# start page whose only button is "search", and a log on standard output. An action that is not available ends the program.
CHECKOUT = """
import json, pathlib
assert pathlib.Path("web_agent_site").is_dir(), "not run in the checkout"

class Server:
    all_products = [None] * 1000

class WebAgentTextEnv:
    server, instruction_text = Server(), "i need a [red] lamp"

    def __init__(self, observation_mode, num_products, human_goals):
        print("Loaded 12 goals.")
        self.made = [observation_mode, num_products, human_goals]

    def reset(self, session):
        self.page, self.session = "start", session
        return "", None

    def get_available_actions(self):
        if self.page == "start":
            return {"has_search_bar": True, "clickables": ["search"]}
        return {"has_search_bar": False, "clickables": ["back to search", "buy now"]}

    def step(self, action):
        if self.page == "start":
            assert action == "search[i need a [red] lamp]", action
            self.page = "results"
        else:
            assert action in ("click[back to search]", "click[buy now]"), action
            self.page = "start" if "back" in action else "results"
        with open("seen.jsonl", "a") as seen:
            seen.write(json.dumps([*self.made, self.session, action]) + "\\n")
        return "", 0, action == "click[buy now]", None
"""


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "WebShop" / "web_agent_site" / "envs"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(CHECKOUT)
    return tmp_path / "WebShop"


def test_the_original_is_played_by_its_own_rules(checkout):
    command = [sys.executable, ROOT / "benchmarks" / "peer_webshop.py", checkout, "1000", "5", "7", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result, seen = (
        json.loads(done.stdout),
        [json.loads(line) for line in (checkout / "seen.jsonl").read_text().splitlines()],
    )
    assert "Loaded 12 goals." in done.stderr
    assert {tuple(row[:3]) for row in seen} == {("text", 1000, 0)}
    assert [row[3] for row in seen] == sorted(row[3] for row in seen)
    assert {row[3] for row in seen} == set(range(5))
    assert len(result["steps_s"]) == len(seen)
    assert len(result["resets_s"]) == 5
    for session in range(5):
        actions = [row[4] for row in seen if row[3] == session]
        assert len(actions) <= 7
        assert "click[buy now]" not in actions[:-1]
        assert actions[-1] == "click[buy now]" or len(actions) == 7


def test_both_programs_stand_in_one_result(checkout, shared, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    peer = ["--peer", str(checkout), "--peer-python", sys.executable]
    data = ["--catalogue", str(shared / "data" / "webshop_1k")]
    monkeypatch.setattr(
        sys, "argv", ["webshop", *data, *peer, "--goals", "6", "--steps", "4", "--out", str(out)]
    )
    webshop.main()
    result = json.loads(out.read_text())["peer"]
    assert result["original"]["products"] == 1000
    for what in ("step", "reset"):
        for kind in ("median", "mean"):
            ratio = result["original"][f"{what}_ms"][kind] / result["ours"][f"{what}_ms"][kind]
            assert result["speedup"][f"{what}_{kind}"] == pytest.approx(ratio)


def test_shops_of_different_sizes_are_not_compared(checkout, shared, tmp_path, monkeypatch):
    module = checkout / "web_agent_site" / "envs" / "__init__.py"
    module.write_text(module.read_text().replace("[None] * 1000", "[None] * 999"))
    peer = ["--peer", str(checkout), "--peer-python", sys.executable]
    data = ["--catalogue", str(shared / "data" / "webshop_1k")]
    monkeypatch.setattr(
        sys, "argv", ["webshop", *data, *peer, "--goals", "2", "--out", str(tmp_path / "out.json")]
    )
    with pytest.raises(SystemExit, match=r"has 999 products and .* 1000: a comparison would be void"):
        webshop.main()
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peer", "."], "--peer and --peer-python go together"),
        (["--peer", ".", "--peer-python", "p"], "no folder web_agent_site"),
    ],
)
def test_a_checkout_that_is_none(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["webshop", *arguments])
    with pytest.raises(SystemExit):
        webshop.main()
    assert message in capsys.readouterr().err


def test_an_interpreter_that_is_none_is_said_before_anything_is_timed(
    checkout, monkeypatch, capsys, tmp_path
):
    arguments = [
        "--peer",
        str(checkout),
        "--peer-python",
        str(tmp_path / "python3.8"),
        "--catalogue",
        str(tmp_path),
    ]
    monkeypatch.setattr(sys, "argv", ["webshop", *arguments])
    with pytest.raises(SystemExit):
        webshop.main()
    assert "--peer-python: " in capsys.readouterr().err
