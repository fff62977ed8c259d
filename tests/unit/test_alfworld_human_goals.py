"""Goals in people's words: which game has which is the same everywhere, and nothing but the sentence changes."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.alfworld_mini import OLD_GRAMMAR, mini
from threespo import cli
from threespo.envs.alfworld import Alfworld, compile_game, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.grammar import split_task_sentence
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv
from threespo.panels.panel import content_hash

SENTENCES = [
    "Put a washed cup away. ",
    "to put two mugs on the shelf",
    "Größe: move the mugs - both, now!",
]
UNUSABLE = [
    'say "mug"',
    "a; b",
    "a [b]",
    "a {b}",
    "a #b#",
    "a | b",
    "two\nlines",
    "back\\slash",
    "  ",
    "<b>",
]


def write(folder, records, annotations):
    """Write the official layout; ``annotations``: for each game the sentences, or None for no field."""
    for record, sentences in zip(records, annotations, strict=True):
        place = folder / record.split / record.game_id
        place.mkdir(parents=True)
        game = {
            "pddl_domain": record.domain,
            "grammar": record.grammar,
            "pddl_problem": record.problem,
            "solvable": True,
        }
        (place / "game.tw-pddl").write_text(json.dumps({**game, "walkthrough": record.walkthrough}))
        said = {"task_type": record.task_type}
        if sentences is not None:
            said["turk_annotations"] = {
                "anns": [{"task_desc": text, "high_descs": []} for text in sentences]
            }
        (place / "traj_data.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def games():
    return generate_games("valid_seen", 40, 4, "small")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, games):
    made = tmp_path_factory.mktemp("official")
    write(made, games, [SENTENCES] * len(games))
    return made


def loaded(folder, **options):
    return {record.game_id: record for record in sources.load_games(folder, "valid_seen", **options)}


def test_the_sentence_is_one_of_the_annotations_and_nothing_else_changes(folder):
    plain, people = loaded(folder), loaded(folder, human_goals=1.0)
    assert {record.goal for record in people.values()} == set(SENTENCES)
    for name, record in people.items():
        assert record == replace(plain[name], goal=record.goal, grammar=record.grammar)
        # What ``add_task_to_grammar`` would have written into the grammar that games are generated from.
        template = plain[name].grammar.replace(plain[name].goal, "UNKNOWN GOAL")
        assert template.count("UNKNOWN GOAL") == 1
        assert record.grammar == template.replace("UNKNOWN GOAL", record.goal)
        assert split_task_sentence(record.grammar)[0] == split_task_sentence(plain[name].grammar)[0]

    engine = Alfworld()
    name = min(plain)
    states = [engine.initial(compile_game(record)) for record in (plain[name], people[name])]
    for command in (*plain[name].walkthrough, None):
        first, second = (state.observation for state in states)
        assert second == first.replace(plain[name].goal, people[name].goal)
        assert engine.admissible(states[0]) == engine.admissible(states[1])
        states = [engine.step(state, command).state for state in states] if command else states
    assert all(map(engine.won, states))


def test_old_wordings_can_have_them(tmp_path):
    write(tmp_path, [mini(grammar=OLD_GRAMMAR)], [SENTENCES[1:2]])
    (record,) = sources.load_games(tmp_path, "train", human_goals=1.0)
    assert (record.goal, record.wording) == (SENTENCES[1], "put")
    assert compile_game(record).initial_world == compile_game(mini(grammar=OLD_GRAMMAR)).initial_world


def test_the_reset_text_is_the_stock_engines(tmp_path):
    pytest.importorskip("textworld", reason="the stock engine (extra: oracle) is not installed")
    from threespo.envs.alfworld.textworld import TextWorldAlfworld

    for number, sentence in enumerate(SENTENCES[::2]):
        write(tmp_path / str(number), [mini()], [[sentence]])
        game = compile_game(sources.load_games(tmp_path / str(number), "train", human_goals=1.0)[0])
        text = TextWorldAlfworld().initial(game).observation
        assert text == Alfworld().initial(game).observation
        assert text.endswith(f"Your task is to: {sentence}")


def test_the_choice_is_a_function_of_id_and_seed(folder):
    program = (
        "import sys; from pathlib import Path; from threespo.envs.alfworld import sources; "
        "print(ascii([r.goal for r in sources.load_games(Path(sys.argv[1]), 'valid_seen', human_goals=0.5, goal_seed=3)]))"
    )
    there = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True
    )
    here = loaded(folder, human_goals=0.5, goal_seed=3)
    assert there.stdout.strip() == ascii([record.goal for record in here.values()])
    assert here != loaded(folder, human_goals=0.5, goal_seed=4)
    # The sentence of a game does not depend on which others there are, nor on the share.
    alone = sources.load_games(folder, "valid_seen", limit=3, human_goals=1.0, goal_seed=3)
    assert [record.goal for record in alone] == [
        loaded(folder, human_goals=1, goal_seed=3)[r.game_id].goal for r in alone
    ]


def test_a_share_of_the_games_has_them_and_a_larger_share_the_same_ones_too(folder):
    loads = [loaded(folder, human_goals=share) for share in (0, 0.25, 0.5, 1)]
    shares = [{name for name, record in games.items() if record.goal in SENTENCES} for games in loads]
    assert [len(found) for found in (shares[0], shares[3])] == [0, 40]
    assert 3 <= len(shares[1]) <= 18
    assert shares[1] < shares[2] < shares[3]


def test_sentences_that_the_grammar_cannot_hold_are_not_drawn(tmp_path):
    write(tmp_path, [mini()], [[*UNUSABLE, SENTENCES[1]]])
    assert {
        sources.load_games(tmp_path, "train", human_goals=1, goal_seed=s)[0].goal for s in range(40)
    } == {SENTENCES[1]}


@pytest.mark.parametrize(
    ("sentences", "says"),
    [(None, "no annotations"), ([], "no annotations"), (UNUSABLE, "10 annotations, none of plain text")],
)
def test_a_game_without_annotations_is_one_error_that_names_the_file(sentences, says, tmp_path):
    write(tmp_path, [mini()], [sentences])
    assert sources.load_games(tmp_path, "train")
    with pytest.raises(InputError, match=f"traj_data.json: {says} .*game train/pick_two") as raised:
        sources.load_games(tmp_path, "train", human_goals=True)
    assert str(tmp_path / "train" / mini().game_id / "traj_data.json") in str(raised.value)


@pytest.mark.parametrize("seed", [None, 1.5, "a", False])
def test_a_seed_is_a_whole_number(seed, tmp_path):
    with pytest.raises(InputError, match="goal_seed: expected a whole number"):
        sources.load_games(tmp_path, "train", human_goals=True, goal_seed=seed)


@pytest.mark.parametrize("share", [-0.1, 1.5, "human", float("nan"), None, (1,)])
def test_a_share_is_one(share, tmp_path):
    with pytest.raises(InputError, match="human_goals: expected a share"):
        sources.load_games(tmp_path, "train", human_goals=share)


def test_prepared_games_keep_their_annotations(folder, tmp_path):
    for split in ("train", "valid_unseen"):
        records = [
            replace(record, split=split)
            for record in generate_games(split, 210 if split == "train" else 3, 1, "small")
        ]
        write(tmp_path / "from", records, [SENTENCES] * len(records))
    (tmp_path / "from" / "valid_seen").symlink_to(folder / "valid_seen")
    assert (
        cli.main(["data", "alfworld", "--from", str(tmp_path / "from"), "--to", str(tmp_path / "to")])
        == 0
    )
    assert loaded(tmp_path / "to", human_goals=0.5) == loaded(folder, human_goals=0.5)


def test_the_gymnasium_form_says_the_content_and_refuses_points_of_other_sentences(folder):
    plain, people = (
        ALFWorldEnv(split="valid_seen", path=folder, **more) for more in ({}, {"human_goals": True})
    )
    task = people.tasks.ids[0]
    shown, info = people.reset(options={"task": task})
    first = plain.reset(options={"task": task})[1]
    assert (info["goal"] in SENTENCES, f"Your task is to: {info['goal']}" in shown) == (True, True)
    assert first["content"] == content_hash(plain.episode.task)
    assert info["content"] == content_hash(people.episode.task) != content_hash(plain.episode.task)
    assert info["admissible_commands"] == first["admissible_commands"]
    with pytest.raises(InputError, match="with the content"):
        plain.restore(people.dump())
    with pytest.raises(InputError, match="human_goals needs path"):
        ALFWorldEnv(human_goals=0.5)
