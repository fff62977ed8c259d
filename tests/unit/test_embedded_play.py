"""Embedded games in the fast engine: walkthroughs win, an explorer wins in time, full games have official sizes."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from threespo.envs.alfworld import Alfworld, GameRecord, GameState, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.embedded_statistics import (
    MEASURES,
    compute_quantiles,
    format_table,
    main,
    measure_games,
)
from threespo.envs.alfworld.embedded_tables import DIFFICULTIES, SPLITS

TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}

# 10, 50 and 90 % quantiles of all 3,827 official games (train, valid_seen and valid_unseen of version 2.1.3).
OFFICIAL = {
    "receptacles": (10, 21, 39),
    "receptacles with a door": (2, 8, 24),
    "objects": (24, 42, 60),
    "movable objects": (17, 30, 50),
    "commands of the walkthrough": (4, 6, 8),
    "admissible actions along it": (16, 28, 45),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_walkthroughs_win_and_not_before_their_last_command(difficulty: str, split: str) -> None:
    engine = Alfworld()
    for record in generate_games(split, 60, 1, difficulty):
        state = engine.initial(compile_game(record))
        assert state.observation.endswith(f"\n\nYour task is to: {record.goal}")
        for command in record.walkthrough:
            assert not engine.won(state), record.game_id
            assert command in engine.admissible(state), (record.game_id, command)
            state = engine.step(state, command).state
        assert engine.won(state), record.game_id


class Explorer:
    """Knows what a person knows who reads the screen; looks everywhere, in random order, and remembers what it saw."""

    def __init__(self, record: GameRecord, order: random.Random) -> None:
        self.engine = Alfworld()
        self.state: GameState = self.engine.initial(compile_game(record))
        task, self.target, _, self.place = record.game_id.split("/")[0].lower().split("-")[:4]
        self.verb = next((verb for verb in TOOLS if f"pick_{verb}" in task), None)
        self.look = task.startswith("look")
        self.receptacles = re.findall(r"a (\w+ \d+)", self.state.observation.split("\n\n")[1])
        order.shuffle(self.receptacles)
        self.unseen = list(self.receptacles)
        self.closed: list[str] = []
        self.sights: dict[str, list[str]] = {}
        self.here = ""
        self.steps = 0

    def act(self, command: str) -> str:
        """Give one admissible command."""
        assert command in self.engine.admissible(self.state), (self.state, command)
        self.state = self.engine.step(self.state, command).state
        self.steps += 1
        return self.state.observation

    def visit(self, name: str) -> None:
        """Go to a receptacle and note what is there; one at the same place as the last one needs no trip."""
        if name == self.here:
            return
        self.here = name
        trip = f"go to {name}"
        self.note(
            name, self.act(trip if trip in self.engine.admissible(self.state) else f"examine {name}")
        )

    def note(self, name: str, observation: str) -> None:
        """Remember what an observation says of a receptacle."""
        if name in self.unseen:
            self.unseen.remove(name)
        if observation.endswith("is closed."):
            self.closed.append(name)
        else:
            self.sights[name] = re.findall(r"a (\w+ \d+)", observation.rpartition("you see ")[2])

    def look_into(self, name: str) -> None:
        """Visit a receptacle and open it if it is closed."""
        self.visit(name)
        if name in self.closed:
            self.closed = [other for other in self.closed if other != name]
            self.note(name, self.act(f"open {name}"))

    def find(self, kind: str, done: list[str]) -> tuple[str, str]:
        """Search until an object of the kind is seen; return it and its receptacle."""
        while True:
            for name, things in self.sights.items():
                for thing in things:
                    if thing.split()[0] == kind and thing not in done:
                        return thing, name
            if self.here in self.closed:
                self.look_into(self.here)
            else:
                self.visit(self.unseen[0])

    def plan(self) -> Iterator[None]:
        """Work on the goal, one object after the other."""
        done: list[str] = []
        goal = next((name for name in self.receptacles if name.split()[0] == self.place), "")
        while True:
            thing, name = self.find(self.target, done)
            self.visit(name)
            self.act(f"take {thing} from {name}")
            done.append(thing)
            if self.look:
                lamp, stand = self.find(self.place, done)
                self.visit(stand)
                self.act(f"use {lamp}")
                yield
            if self.verb is not None:
                tool = next(name for name in self.receptacles if name.split()[0] == TOOLS[self.verb])
                self.visit(tool)
                self.act(f"{self.verb} {thing} with {tool}")
            self.look_into(goal)
            self.act(f"move {thing} to {goal}")
            yield

    def solve(self) -> int:
        """Return the number of steps until the win."""
        for _ in self.plan():
            if self.engine.won(self.state):
                return self.steps
        raise AssertionError("unreachable: the plan does not end")


@pytest.mark.parametrize(
    ("difficulty", "limit", "share"), [("small", 15, 0.96), ("medium", 30, 0.98), ("full", 50, 0.9)]
)
@pytest.mark.parametrize("split", ["train", "valid_unseen"])
def test_an_explorer_wins_within_the_step_limit(
    split: str, difficulty: str, limit: int, share: float
) -> None:
    steps = [
        Explorer(record, random.Random(number)).solve()
        for number, record in enumerate(generate_games(split, 200, 2, difficulty))
    ]
    assert sum(taken <= limit for taken in steps) >= share * len(steps)


def test_full_games_are_as_large_as_official_ones() -> None:
    ours = measure_games(record for split in SPLITS for record in generate_games(split, 150, 3, "full"))
    assert set(OFFICIAL) == set(MEASURES) == set(ours)
    for name, (low, _, high) in OFFICIAL.items():
        inside = sum(low <= value <= high for value in ours[name]) / len(ours[name])
        assert inside >= 0.8, (name, inside)
        assert low <= compute_quantiles(ours[name])[1] <= high, name


@pytest.mark.slow
def test_official_quantiles_are_those_of_the_official_games(shared: Path) -> None:
    from threespo.envs.alfworld.sources import load_games

    splits = ("train", "valid_seen", "valid_unseen")
    official = measure_games(
        record for split in splits for record in load_games(shared / "data/alfworld", split)
    )
    assert {name: compute_quantiles(values) for name, values in official.items()} == OFFICIAL


def test_the_table_of_sizes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = format_table({"a": {name: list(range(100)) for name in MEASURES}}).split("\n")
    assert rows[2] == "| receptacles | 10 / 50 / 90 |"
    assert main(["--count", "2"]) == 0
    head = "| 10 / 50 / 90 % | full (8 games) | medium (8 games) | small (8 games) |"
    assert capsys.readouterr().out.startswith(head)
    assert main(["--games", str(tmp_path)]) == 2
    assert "no games found" in capsys.readouterr().err
