"""Games on disk: both layouts, order, limits, and what is wrong with broken ones."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from tests.alfworld_mini import GRAMMAR, OLD_GRAMMAR, mini
from threespo.envs.alfworld import Alfworld, GameRecord, compile_game, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.prepare import prepare as prepare_games
from threespo.envs.alfworld.schemas import parse_domain
from threespo.envs.alfworld.settings import AlfworldTasks
from threespo.errors import InputError
from threespo.watch.play import open_task


@pytest.fixture(scope="module")
def records() -> list[GameRecord]:
    return [*generate_games("train", 4, 0, "small"), *generate_games("valid_seen", 2, 0, "small")]


def write_official(records: list[GameRecord], folder: Path, **changes: object) -> list[Path]:
    files = []
    for record in records:
        file = folder / record.split / record.game_id / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        game = {
            "pddl_domain": record.domain,
            "grammar": record.grammar,
            "pddl_problem": record.problem,
            "solvable": True,
        }
        file.write_text(json.dumps({**game, "walkthrough": record.walkthrough, **changes}))
        files.append(file)
    return files


def by_id(records: list[GameRecord], split: str) -> list[GameRecord]:
    return sorted(
        (record for record in records if record.split == split), key=lambda record: record.game_id
    )


def test_compact_form_gives_back_what_was_written(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    assert sources.find_splits(tmp_path) == ["train", "valid_seen"]
    for split in ("train", "valid_seen"):
        assert sources.load_games(tmp_path, split) == by_id(records, split)


def test_compact_form_is_the_same_bytes_whatever_the_order(
    records: list[GameRecord], tmp_path: Path
) -> None:
    sources.write_compact(records, tmp_path / "a")
    sources.write_compact(records[::-1], tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_compact_form_may_be_uncompressed(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    (tmp_path / "train.jsonl").write_bytes(lzma.decompress((tmp_path / "train.jsonl.xz").read_bytes()))
    (tmp_path / "train.jsonl.xz").unlink()
    assert sources.load_games(tmp_path, "train") == by_id(records, "train")


@pytest.mark.parametrize("nested", ["", "json_2.1.1"])
def test_official_layout(records: list[GameRecord], tmp_path: Path, nested: str) -> None:
    write_official(records, tmp_path / nested)
    assert sources.find_splits(tmp_path) == ["train", "valid_seen"]
    assert sources.load_games(tmp_path, "train") == by_id(records, "train")


def test_task_type_is_read_from_the_description_beside_the_game(
    records: list[GameRecord], tmp_path: Path
) -> None:
    file = write_official(records[:1], tmp_path)[0]
    file.with_name("traj_data.json").write_text('{"task_type": "look_at_obj_in_light"}')
    assert sources.load_games(tmp_path, "train")[0].task_type == "look_at_obj_in_light"


def test_games_not_marked_solvable_are_left_out(records: list[GameRecord], tmp_path: Path) -> None:
    file, *_ = write_official(by_id(records, "train"), tmp_path)
    game = json.loads(file.read_text())
    file.write_text(json.dumps({**game, "solvable": False}))
    assert sources.load_games(tmp_path, "train") == by_id(records, "train")[1:]


def test_limit_and_task_types(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    expected = by_id(records, "train")
    assert sources.load_games(tmp_path, "train", limit=2) == expected[:2]
    kind = expected[0].task_type
    only = sources.load_games(tmp_path, "train", task_types=[kind])
    assert only == [record for record in expected if record.task_type == kind]
    with pytest.raises(InputError, match="unknown task type 'pick'"):
        sources.load_games(tmp_path, "train", task_types=["pick"])
    absent = sorted(set(sources.TASK_TYPES) - {record.task_type for record in expected})
    with pytest.raises(InputError, match=f"no solvable game of the task types {absent[0]}"):
        sources.load_games(tmp_path, "train", task_types=absent[:1])


def test_missing_split_names_those_that_are_there(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    with pytest.raises(InputError, match=r"no split 'test' there \(splits found: train, valid_seen\)"):
        sources.load_games(tmp_path, "test")
    with pytest.raises(InputError, match="splits found: none"):
        sources.load_games(tmp_path / "nowhere", "test")


def test_empty_split(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match="holds no solvable game"):
        sources.load_games(tmp_path, "train")


def test_truncated_compact_file(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    file = tmp_path / "train.jsonl.xz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"train\.jsonl\.xz, after line \d+: broken or truncated"):
        sources.load_games(tmp_path, "train")


@pytest.mark.parametrize("name", ["alfred.pddl", "grammar.twl2"])
def test_compact_file_without_its_shared_texts(
    records: list[GameRecord], tmp_path: Path, name: str
) -> None:
    sources.write_compact(records, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=name):
        sources.load_games(tmp_path, "train")


def test_missing_key_and_unknown_task_type_in_a_compact_file(
    records: list[GameRecord], tmp_path: Path
) -> None:
    sources.write_compact(records, tmp_path)
    row = json.loads(lzma.decompress((tmp_path / "train.jsonl.xz").read_bytes()).splitlines()[0])
    (tmp_path / "valid.jsonl").write_text(json.dumps({**row, "task_type": "dance"}) + "\n")
    with pytest.raises(InputError, match=r"valid\.jsonl, line 1: unknown task type 'dance'"):
        sources.load_games(tmp_path, "valid")
    row.pop("pddl_problem")
    (tmp_path / "valid.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=r"valid\.jsonl, line 1: no text field 'pddl_problem'"):
        sources.load_games(tmp_path, "valid")


def test_two_games_of_one_name_and_an_odd_walkthrough(records: list[GameRecord], tmp_path: Path) -> None:
    sources.write_compact(records, tmp_path)
    line = lzma.decompress((tmp_path / "train.jsonl.xz").read_bytes()).splitlines()[0].decode()
    (tmp_path / "valid.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(InputError, match=r"valid\.jsonl, line 2: a second game"):
        sources.load_games(tmp_path, "valid")
    (tmp_path / "valid.jsonl").write_text(json.dumps({**json.loads(line), "walkthrough": 7}) + "\n")
    with pytest.raises(InputError, match=r"valid\.jsonl, line 1: 'walkthrough' is not a list"):
        sources.load_games(tmp_path, "valid")


def test_broken_official_files(records: list[GameRecord], tmp_path: Path) -> None:
    file = write_official(records[:1], tmp_path)[0]
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"game\.tw-pddl: broken or truncated"):
        sources.load_games(tmp_path, "train")
    file.write_text(f"[{whole}]")
    with pytest.raises(InputError, match=r"game\.tw-pddl: a list, where a game is a JSON object"):
        sources.load_games(tmp_path, "train")
    game = json.loads(whole)
    del game["grammar"]
    file.write_text(json.dumps(game))
    with pytest.raises(InputError, match=r"game\.tw-pddl: no text field 'grammar'"):
        sources.load_games(tmp_path, "train")
    file.write_text(json.dumps({**game, "grammar": GRAMMAR.replace("Your task is to: ", "Do: ")}))
    with pytest.raises(InputError, match="expected it to begin with 'Your task is to: '"):
        sources.load_games(tmp_path, "train")


def test_folder_of_an_unknown_task_type(tmp_path: Path) -> None:
    record = mini()
    file = tmp_path / "train" / "dance-Mug-None-Shelf-1" / "trial_1" / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    texts = {
        "pddl_domain": record.domain,
        "grammar": record.grammar,
        "pddl_problem": record.problem,
        "solvable": True,
    }
    file.write_text(json.dumps(texts))
    with pytest.raises(InputError, match="unknown task type 'dance'"):
        sources.load_games(tmp_path, "train")


def test_games_with_different_grammars_cannot_share_a_folder(
    records: list[GameRecord], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot share a folder"):
        sources.write_compact(
            [*records, mini(grammar=GRAMMAR.replace("You arrive", "You come"))], tmp_path
        )
    sources.write_compact(records, tmp_path)
    other = mini(grammar=GRAMMAR.replace("You arrive", "You come"))
    before = sources.load_games(tmp_path, "valid_seen")
    with pytest.raises(InputError, match="belongs to other games"):
        sources.write_compact([other], tmp_path)
    assert sources.load_games(tmp_path, "valid_seen") == before


def test_a_game_to_play_is_found_by_file_folder_and_name(
    records: list[GameRecord], tmp_path: Path
) -> None:
    files = write_official(records, tmp_path / "official")
    sources.write_compact(records, tmp_path / "compact")
    wanted = by_id(records, "train")[1]
    places = [
        (files[records.index(wanted)], None),
        (files[records.index(wanted)].parent, None),
        (tmp_path / "official", wanted.game_id),
        (tmp_path / "compact", wanted.game_id),
        (tmp_path / "compact" / "train.jsonl.xz", wanted.game_id),
    ]
    for path, name in places:
        assert open_task(path, name)[1].record == wanted
    with pytest.raises(InputError, match="no task 'nothing' there"):
        open_task(tmp_path / "compact", "nothing")
    with pytest.raises(InputError, match="nothing to play there; expected a game"):
        open_task(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("whole", "damaged"), [(":parameters", "(parameters)"), ("(:action ", "(:action (a) ")]
)
def test_an_action_whose_parts_have_no_names_is_refused(whole, damaged):
    domain = generate_games("train", 1, 0, "small")[0].domain
    parse_domain(domain)
    with pytest.raises(InputError, match="not a name with named parts"):
        parse_domain(domain.replace(whole, damaged, 1))


def test_what_a_task_is_about_is_read_beside_the_game_and_kept(
    records: list[GameRecord], tmp_path: Path
) -> None:
    """Where it is what the id says, nothing is added; where it is not, the compact form keeps it."""
    (file,) = write_official(records[:1], tmp_path)
    (named,) = sources.load_games(tmp_path, "train")
    said = {
        "task_type": named.task_type,
        "pddl_params": {**named.targets._asdict(), "object_sliced": False},
    }
    file.with_name("traj_data.json").write_text(json.dumps(said))
    assert sources.load_games(tmp_path, "train") == [named]

    said["pddl_params"]["object_target"] = "Zebra"
    file.with_name("traj_data.json").write_text(json.dumps(said))
    (found,) = sources.load_games(tmp_path, "train")
    assert found.targets == named.targets._replace(object_target="Zebra")
    sources.write_compact([found], tmp_path / "compact")
    assert sources.load_games(tmp_path / "compact", "train") == [found]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"pddl_params": ["Mug"]}, "targets are not an object"),
        ({"pddl_params": {"object_target": 3}}, "targets are not an object"),
        ({"turk_annotations": {"anns": "all"}}, "'anns' of objects"),
        (
            {"turk_annotations": {"anns": [{"task_desc": 4}]}},
            "'task_desc' of 'turk_annotations': not a list of texts",
        ),
        ({"turk_annotations": 7}, "'anns' of objects"),
        ({"turk_annotations": [{"task_desc": "Put a mug away."}]}, "'anns' of objects"),
    ],
)
def test_broken_descriptions_are_said(
    said: dict[str, object], message: str, records: list[GameRecord], tmp_path: Path
) -> None:
    (file,) = write_official(records[:1], tmp_path)
    beside = file.with_name("traj_data.json")
    beside.write_text(json.dumps({"task_type": records[0].task_type, **said}))
    with pytest.raises(InputError, match=message) as raised:
        sources.load_games(tmp_path, "train")
    assert str(beside) in str(raised.value)


def test_a_game_says_its_wording_and_it_is_that_of_its_commands() -> None:
    held = ("go to shelf 1", "take mug 2 from shelf 1")
    put = (("move", GRAMMAR, "move mug 2 to shelf 1"), ("put", OLD_GRAMMAR, "put mug 2 in/on shelf 1"))
    for wording, grammar, command in put:
        game, engine = compile_game(mini(grammar=grammar)), Alfworld()
        state = engine.initial(game)
        for action in held:
            state = engine.step(state, action).state
        assert command in engine.admissible(state)
        assert game.wording == game.record.wording == wording
    assert mini(grammar=GRAMMAR.replace("move {o} to {r}", "drop {o} at {r}")).wording == "other"


def test_a_folder_of_two_wordings_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = replace(mini(grammar=OLD_GRAMMAR), game_id="pick_two_obj_and_place-Mug-None-Shelf-1/trial_2")
    write_official([mini(), old], tmp_path)
    for _ in range(2):
        assert {record.wording for record in sources.load_games(tmp_path, "train")} == {"put", "move"}
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(tmp_path / "train") in said
    assert "1 'move', 1 'put'" in said
    assert sources.load_games(tmp_path, "train", limit=1)
    assert capsys.readouterr().err == ""


def test_prepared_games_name_their_wording(tmp_path: Path) -> None:
    games = {"train": 2, "calibration": 1, "valid_seen": 1, "valid_unseen": 1}
    prepare_games(
        AlfworldTasks.model_validate({"source": "embedded", "games": games}), tmp_path / "games"
    )
    assert json.loads((tmp_path / "games" / "manifest.json").read_text())["wording"] == "move"
