"""The pure engine against the truth: the live stock engine, recorded traces, every walkthrough of the real games."""

import json
import lzma
import random
from pathlib import Path

import pytest

from tests.alfworld_mini import OLD_DOMAIN, OLD_GRAMMAR, SEEN_DOMAIN, mini
from tests.parity.alfworld_random import first_difference, next_command
from threespo.envs.alfworld import Alfworld, GameRecord, compile_game, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.grammar import parse_text
from threespo.envs.alfworld.textworld import TextWorldAlfworld
from threespo.errors import InputError
from threespo.verify.alfworld import verify


@pytest.fixture(scope="module")
def stock() -> TextWorldAlfworld:
    pytest.importorskip("textworld", reason="the stock engine (extra: oracle) is not installed")
    return TextWorldAlfworld()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "difficulty", "count"),
    [("train", "small", 10), ("valid_unseen", "medium", 6), ("valid_seen", "full", 4)],
)
def test_random_play_of_embedded_games(
    stock: TextWorldAlfworld, split: str, difficulty: str, count: int
) -> None:
    records = generate_games(split, count, 7, difficulty)
    differences = [first_difference(compile_game(record), 25, 7, stock) for record in records]
    assert differences == [None] * count


@pytest.mark.parametrize(
    "game", [mini(), mini(domain=SEEN_DOMAIN), mini(domain=OLD_DOMAIN, grammar=OLD_GRAMMAR)]
)
@pytest.mark.parametrize("seed", range(3))
def test_random_play_of_the_odd_game(stock: TextWorldAlfworld, game: GameRecord, seed: int) -> None:
    assert first_difference(compile_game(game), 40, seed, stock) is None


@pytest.mark.parametrize(
    "goal",
    [
        "(forall (?r - receptacle) (or (not (openable ?r)) (opened ?r)))",
        "(and (exists (?o - object) (and (objectType ?o MugType) (isClean ?o))) (not (opened Drawer_bar_1)))",
        "(exists (?o - object ?a - agent) (and (holds ?a ?o) (objectType ?o MugType) (objectAtLocation ?o loc_bar_1)))",
        "(exists (?o - object ?l - location) (and (isToggled ?o) (atLocation agent1 ?l) (objectAtLocation ?o ?l)))",
    ],
)
def test_goals_beside_the_stock_engine(stock: TextWorldAlfworld, goal: str) -> None:
    assert first_difference(compile_game(mini(goal)), 40, 1, stock) is None


def test_forks_of_the_stock_engine_replay(stock: TextWorldAlfworld) -> None:
    game = compile_game(mini())
    ours, source = Alfworld(), random.Random(0)
    start = stock.initial(game)
    there = stock.step(start, "go to shelf 1").state
    left = stock.step(there, "take mug 2 from shelf 1").state
    right = stock.step(there, "take knife 1 from shelf 1").state
    assert stock.step(left, "inventory").observation == "You are carrying: a mug 2."
    assert stock.step(right, "inventory").observation == "You are carrying: a knife 1."
    assert stock.admissible(start) == ours.admissible(ours.initial(game))
    assert next_command(source, stock.admissible(right), [""]) != ""


TEXTS = (
    "",
    "  a",
    "a | b",
    "\na\n b | c",
    "{o.name} (x})}",
    'a "q" b',
    "a;b",
    "a <b",
    "x#y",
    "{o.name}  y",
    "#s#\n\n#t#",
)


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS,
        "a\tb\t{o.name}\t c",
        "//skip\nbar",
        "[{o.name | p(o:object)}].",
        "{o.name or o.id}",
        "#overview(o, r)#",
    ],
)
def test_texts_are_read_as_the_stock_parser_reads_them(text: str) -> None:
    textgen = pytest.importorskip(
        "textworld.envs.pddl.textgen", reason="the stock engine (extra: oracle) is not installed"
    )
    theirs = [
        type(part).__name__
        for part in textgen._parse_and_convert(text, rule_name="symbols")
        if str(part)
    ]
    names = {
        "PlainText": "TerminalSymbol",
        "Symbol": "NonterminalSymbol",
        "EntityExpression": "ConditionalSymbol",
    }
    ours = [
        "ListSymbol"
        if getattr(part, "listed", False)
        else names.get(type(part).__name__, "ConditionalSymbol")
        for part in parse_text(text)
    ]
    assert ours == theirs


def test_recorded_traces(shared: Path) -> None:
    report = verify(shared / "golden" / "alfworld_traces.jsonl.xz", shared / "data" / "alfworld")
    assert (report.cases, report.mismatches) == (60, 0)


@pytest.mark.long
def test_every_walkthrough_wins(shared: Path) -> None:
    env, won = Alfworld(), 0
    for split in sources.find_splits(shared / "data" / "alfworld"):
        for record in sources.load_games(shared / "data" / "alfworld", split):
            state = env.initial(compile_game(record))
            for command in record.walkthrough:
                state = env.step(state, command).state
            won += env.won(state)
    assert won == 3827


def test_verify_counts_a_changed_text_and_refuses_broken_files(tmp_path: Path) -> None:
    record, env = generate_games("train", 1, 0, "small")[0], Alfworld()
    sources.write_compact([record], tmp_path)
    steps, state = [], env.initial(compile_game(record))
    for command in (None, *record.walkthrough):
        if command is not None:
            state = env.step(state, command).state
        facts = {
            "observation": state.observation,
            "admissible_commands": list(env.admissible(state)),
            "won": env.won(state),
        }
        steps.append({"command": command, **facts, "score": None, "done": None})
    file = tmp_path / "traces.xz"

    def write(changed: list[dict[str, object]]) -> None:
        row = {"game_id": record.game_id, "split": "train", "steps": changed}
        file.write_bytes(lzma.compress(json.dumps(row).encode()))

    write(steps)
    assert verify(file, tmp_path).mismatches == 0
    for field, wrong in (
        ("observation", "x"),
        ("admissible_commands", []),
        ("won", False),
        ("score", 0),
        ("done", False),
    ):
        write([*steps[:-1], {**steps[-1], field: wrong}])
        assert (verify(file, tmp_path).cases, verify(file, tmp_path).mismatches) == (1, 1), field
    write([{"command": None}])
    with pytest.raises(InputError, match=r"step 0 of .* is malformed"):
        verify(file, tmp_path)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match="not a readable reference file"):
        verify(file, tmp_path)
    with pytest.raises(InputError, match="--games"):
        verify(file)
