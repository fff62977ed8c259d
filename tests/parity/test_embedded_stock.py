"""Embedded games in the stock TextWorld engine, and their facts beside those of the official games."""

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from threespo.envs.alfworld import GameRecord
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.embedded_tables import DIFFICULTIES, load_household

IN_SUITE = [("small", "train", 6), ("medium", "valid_unseen", 3), ("full", "valid_seen", 1)]
MANY = [(difficulty, split, 4) for difficulty in DIFFICULTIES for split in ("train", "valid_unseen")]


def stock_engine(record: GameRecord) -> Any:
    """Return the record loaded into the stock engine, with ALFWorld's names."""
    textworld = pytest.importorskip(
        "textworld", reason="the stock engine (extra: oracle) is not installed"
    )
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    engine = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    engine.load(
        {"pddl_domain": record.domain, "grammar": record.grammar, "pddl_problem": record.problem}
    )
    return engine


def assert_walkthrough_wins(record: GameRecord) -> None:
    """Play the walkthrough: each command must be admissible, and the last one, not an earlier one, must win."""
    engine = stock_engine(record)
    state = engine.reset()
    assert f"\n\nYour task is to: {record.goal}" in state["feedback"]
    for command in record.walkthrough:
        assert not state["won"], (record.game_id, command)
        assert command in state["admissible_commands"], (record.game_id, command)
        state, _, _ = engine.step(command)
    assert state["won"], record.game_id


@pytest.mark.parametrize(("difficulty", "split", "count"), IN_SUITE)
def test_walkthroughs_win_in_the_stock_engine(difficulty: str, split: str, count: int) -> None:
    for record in generate_games(split, count, 5, difficulty):
        assert_walkthrough_wins(record)


@pytest.mark.long
@pytest.mark.parametrize(("difficulty", "split", "count"), MANY)
def test_many_walkthroughs_win_in_the_stock_engine(difficulty: str, split: str, count: int) -> None:
    for record in generate_games(split, count, 6, difficulty):
        assert_walkthrough_wins(record)


def test_every_task_type_wins_in_the_stock_engine() -> None:
    tested: set[str] = set()
    for record in generate_games("calibration", 200, 7, "small"):
        if record.task_type not in tested:
            tested.add(record.task_type)
            assert_walkthrough_wins(record)
    assert len(tested) == 6


def official_games(shared: Path, step: int) -> Iterator[dict[str, Any]]:
    """Yield every ``step``-th official game of the development data."""
    for split in ("train", "valid_unseen"):
        with lzma.open(shared / f"data/alfworld/{split}.jsonl.xz", "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number % step == 0:
                    yield json.loads(line)


def test_facts_are_those_of_the_official_games(shared: Path) -> None:
    facts = load_household()
    contains: dict[str, set[str]] = {}
    affordances: dict[str, set[str]] = {name: set() for name in facts.affordances}
    pickupable: set[str] = set()
    for game in official_games(shared, step=5):
        initial = game["pddl_problem"].split("(:goal")[0]
        object_type = dict(re.findall(r"\(objectType (\S+) (\S+)Type\)", initial))
        for place, kind in re.findall(r"\(canContain (\S+)Type (\S+)Type\)", initial):
            contains.setdefault(place, set()).add(kind)
        for name, found in affordances.items():
            found |= {object_type[entity] for entity in re.findall(rf"\({name} (\S+)\)", initial)}
        pickupable |= {object_type[entity] for entity in re.findall(r"\(pickupable (\S+)\)", initial)}
    assert {place: set(kinds) for place, kinds in facts.contains.items() if kinds} == contains
    assert {name: set(types) for name, types in facts.affordances.items()} == affordances
    for room in facts.rooms.values():
        assert set(room.common) | set(room.rare) <= pickupable
        assert not set(room.fixtures) & pickupable
