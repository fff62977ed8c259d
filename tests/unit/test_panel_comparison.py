"""Folders of games beside a panel, by content: what is missing, changed, extra, renamed, or says nothing of itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from threespo import cli
from threespo.envs.alfworld import embedded, sources
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.grammar import TASK_PREFIX, replace_task_sentence
from threespo.envs.alfworld.prepare import prepare as prepare_games
from threespo.envs.alfworld.settings import AlfworldTasks
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, ALFWorldVectorEnv, WebShopEnv
from threespo.panels.comparison import compare_with_panel, nearest_panel
from threespo.panels.panel import content_hash, load_panel
from threespo.panels.prepared import compare_prepared

PANEL = load_panel("alfworld-generated")
UNSEEN = [task.task_id for task in PANEL.splits["valid_unseen"]]


@pytest.fixture(scope="module")
def games() -> list[GameRecord]:
    """The panel's games of the split valid_unseen."""
    return [embedded.generate_game("valid_unseen", 7, "full", index) for index in range(134)]


def write(
    records: list[GameRecord], folder: Path, split: str = "valid_unseen", unmarked: tuple[str, ...] = ()
) -> str:
    """Write games as alfworld-download lays them out, some without 'solvable'; return the folder."""
    for record in records:
        file = folder / split / record.game_id / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        marked = {} if record.game_id in unmarked else {"solvable": True}
        texts = {"pddl_domain": record.domain, "grammar": record.grammar, "pddl_problem": record.problem}
        file.write_text(json.dumps({**texts, **marked, "walkthrough": record.walkthrough}))
    return str(folder)


def reworded(record: GameRecord) -> GameRecord:
    sentence = "kindly " + record.goal
    return replace(
        record, goal=sentence, grammar=replace_task_sentence(record.grammar, TASK_PREFIX + sentence)
    )


def rearranged(record: GameRecord) -> GameRecord:
    """The same sentence over another layout: a fact of its scene is left out."""
    lines = record.problem.splitlines()
    gone = next(number for number, line in enumerate(lines) if "(openable" in line)
    return replace(record, problem="\n".join(lines[:gone] + lines[gone + 1 :]))


def opened(records, tmp_path, capsys):
    """An environment of a folder of games, and what was said of it."""
    env = ALFWorldEnv(split="valid_unseen", path=write(records, tmp_path / "games"))
    return env, capsys.readouterr().err


def test_a_whole_split_is_the_panels_and_nothing_is_said(games, tmp_path, capsys):
    env, said = opened(games, tmp_path, capsys)
    assert said == ""
    assert env.tasks.comparison.is_complete
    assert (env.tasks.comparison.same, env.tasks.comparison.expected) == (134, 134)


def test_missing_games_are_counted_and_named(games, tmp_path, capsys):
    env, said = opened(games[45:], tmp_path, capsys)
    assert len(env.tasks) == 89
    assert set(env.tasks.comparison.missing) == {game.game_id for game in games[:45]}
    assert "89 of 134 tasks of the panel alfworld-generated are there by content; 45 missing: " in said
    assert f"{env.tasks.comparison.missing[0]}" in said
    assert said.count("\n") == 1


def test_games_generated_again_with_other_sentences_are_not_the_panels(games, tmp_path, capsys):
    env, said = opened([reworded(game) for game in games], tmp_path, capsys)
    assert "0 of 134 tasks" in said
    assert "134 with another content under a name of the panel's: " in said
    assert set(env.tasks.comparison.changed) == set(UNSEEN)
    info = env.reset(seed=0)[1]
    assert info["content"] == content_hash(env.episode.task)
    assert info["content"] not in PANEL.with_content


def test_another_layout_under_the_same_sentence_is_another_game(games, tmp_path, capsys):
    env, said = opened(
        [rearranged(game) if place < 3 else game for place, game in enumerate(games)], tmp_path, capsys
    )
    assert set(env.tasks.comparison.changed) == {game.game_id for game in games[:3]}
    assert "131 of 134 tasks" in said


def test_an_extra_game_is_named(games, tmp_path, capsys):
    extra = replace(rearranged(games[5]), game_id=f"{games[5].game_id}-again")
    env, said = opened([*games, extra], tmp_path, capsys)
    assert env.tasks.comparison.extra == (extra.game_id,)
    assert (
        f"134 of 134 tasks of the panel {PANEL.name} are there by content; 1 not of the panel: {extra.game_id}"
        in said
    )


def test_a_renamed_folder_is_the_panels(games, tmp_path, capsys):
    task = games[7].game_id.split("/")[0]
    env, said = opened(
        [*games[:7], replace(games[7], game_id=f"{task}/mine"), *games[8:]], tmp_path, capsys
    )
    assert said == ""
    assert env.tasks.comparison.is_complete
    assert env.tasks.comparison.renamed == ((f"{task}/mine", games[7].game_id),)
    assert (
        env.reset(options={"task": f"{task}/mine"})[1]["content"] == PANEL.content_of[games[7].game_id]
    )


def test_a_copy_of_a_game_is_extra(games, tmp_path, capsys):
    task = games[7].game_id.split("/")[0]
    env, _ = opened([*games, replace(games[7], game_id=f"{task}/copy")], tmp_path, capsys)
    assert env.tasks.comparison.extra == (f"{task}/copy",)


def test_games_of_nobodys_panel_have_no_comparison(games, tmp_path, capsys):
    own = [
        replace(reworded(game), game_id=game.game_id.replace("trial_T", "trial_own"))
        for game in games[:3]
    ]
    env, said = opened(own, tmp_path, capsys)
    assert (env.tasks.comparison, said) == (None, "")


def test_wishes_of_two_products_are_compared_as_often_as_they_are_there():
    panel = load_panel("webshop-1k")
    twice = next(ids for ids in panel.with_content.values() if len(ids) == 2)
    split = panel.split_of[twice[0]]
    tasks = {task.task_id: task.content for task in panel.splits[split]}
    assert compare_with_panel(tasks, panel, [split]).is_complete
    assert nearest_panel("webshop", tasks) == panel
    assert nearest_panel("webshop", {"A/1": "0" * 16}) is None


def test_every_info_says_the_content():
    panels = {ALFWorldEnv: "alfworld-generated", WebShopEnv: "webshop-generated"}
    for made, name in panels.items():
        env = made()
        info = env.reset(seed=1)[1]
        assert info["content"] == load_panel(name).content_of[info["task"]]
        assert env.step("look")[-1]["content"] == info["content"]
    many = ALFWorldVectorEnv(3)
    info = many.reset(seed=1)[1]
    assert list(info["content"]) == [PANEL.content_of[task] for task in info["task"]]


# --- games that do not say whether they can be solved


def test_games_without_the_key_are_played_and_named(games, tmp_path, capsys):
    """One rule for both forms: only what a file marks as not solvable is left out."""
    silent = (games[3].game_id, games[90].game_id)
    env = ALFWorldEnv(split="valid_unseen", path=write(games, tmp_path / "official", unmarked=silent))
    said = capsys.readouterr().err
    assert len(env.tasks) == 134
    assert env.tasks.comparison.is_complete
    assert "2 game(s) do not say whether they can be solved (no field 'solvable'): " in said
    assert all(name in said for name in silent)
    assert said.count("\n") == 1

    sources.write_compact(games, tmp_path / "compact")
    assert sources.load_games(tmp_path / "compact", "valid_unseen") == sources.load_games(
        tmp_path / "official", "valid_unseen"
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", ["official", "compact"])
@pytest.mark.parametrize(
    ("marks", "left", "silent"),
    [
        ([False, True, True], 2, 0),
        ([None, True, None], 3, 2),
        ([0, 1, False], 1, 0),
        ([None, False, False], 1, 1),
        ([True, True, True], 3, 0),
    ],
)
def test_what_games_say_of_themselves_counts_alike_in_both_forms(
    form, marks, left, silent, games, tmp_path, capsys
):
    if form == "official":
        write(games[:3], tmp_path)
        files = sorted((tmp_path / "valid_unseen").glob("*/*/game.tw-pddl"))
        for file, mark in zip(files, marks, strict=True):
            file.write_text(json.dumps({**json.loads(file.read_text()), "solvable": mark}))
    else:
        sources.write_compact(games[:3], tmp_path)
        packed = tmp_path / "valid_unseen.jsonl.xz"
        with sources.open_text(packed) as lines:
            rows = [json.loads(line) for line in lines]
        packed.unlink()
        marked = (json.dumps({**row, "solvable": mark}) for row, mark in zip(rows, marks, strict=True))
        (tmp_path / "valid_unseen.jsonl").write_text("\n".join(marked))
    assert len(sources.load_games(tmp_path, "valid_unseen")) == left
    said = capsys.readouterr().err
    assert f"{silent} game(s) do not say" in said if silent else said == ""


@pytest.mark.parametrize("mark", ["false", "yes", 2, [], {}])
def test_marks_that_say_neither_are_refused(mark, games, tmp_path):
    file = Path(write(games[:1], tmp_path)) / "valid_unseen" / games[0].game_id / "game.tw-pddl"
    file.write_text(json.dumps({**json.loads(file.read_text()), "solvable": mark}))
    with pytest.raises(InputError, match=r"game\.tw-pddl: field 'solvable' is .*expected true or false"):
        sources.load_games(tmp_path, "valid_unseen")


# --- studies, and threespo data


def prepared(folder: Path, out: Path, **counts: int):
    counts = {"calibration": 2, "train": 3, **counts}
    tasks = AlfworldTasks.model_validate({"source": "path", "path": folder, "games": counts})
    prepare_games(tasks, out)
    return compare_prepared("alfworld", tasks, out), json.loads((out / "manifest.json").read_text())


def test_a_study_of_real_games_says_and_keeps_what_is_not_the_panels(games, tmp_path, capsys):
    folder = tmp_path / "games"
    for split in ("train", "valid_seen"):
        some = [embedded.generate_game(split, 7, "full", index) for index in range(8)]
        write([reworded(some[0]), *some[1:]] if split == "train" else some, folder, split)
    write([rearranged(game) if place == 4 else game for place, game in enumerate(games[:130])], folder)
    found, manifest = prepared(folder, tmp_path / "data", train=6)
    said = capsys.readouterr().err
    assert (
        f"{folder}, valid_unseen: 129 of 134 tasks of the panel alfworld-generated are there by content"
        in said
    )
    assert f"{folder}, valid_seen: 8 of 140 tasks" in said
    assert f"{folder}, train: 7 of 8 tasks of the panel alfworld-generated" in said
    assert manifest["panel"] == {
        split: json.loads(json.dumps(one.values())) for split, one in found.items()
    }
    assert manifest["panel"]["valid_unseen"]["changed"] == [games[4].game_id]
    assert set(manifest["panel"]["valid_unseen"]["missing"]) == {game.game_id for game in games[130:]}

    # Where a study asks for fewer, as many of the panel's are expected, whichever.
    found, _ = prepared(folder, tmp_path / "fewer", valid_unseen=20, valid_seen=3)
    assert (found["valid_unseen"].expected, found["valid_unseen"].missing) == (20, ())
    assert found["valid_unseen"].same == 20 - (games[4].game_id in found["valid_unseen"].changed)
    assert found["valid_seen"].is_complete


def test_generated_games_are_prepared_as_before(tmp_path):
    tasks = AlfworldTasks.model_validate(
        {"games": dict.fromkeys(("train", "calibration", "valid_seen", "valid_unseen"), 2)}
    )
    prepare_games(tasks, tmp_path / "data")
    before = (tmp_path / "data" / "manifest.json").read_bytes()
    assert compare_prepared("alfworld", tasks, tmp_path / "data") == {}
    assert (tmp_path / "data" / "manifest.json").read_bytes() == before


def released(shared, split: str) -> list[GameRecord]:
    return sources.load_games(shared / "data" / "alfworld", split, limit=205)


def test_the_release_is_its_panel(shared, capsys):
    folder = str(shared / "data" / "alfworld")
    for split, count in (("valid_seen", 140), ("valid_unseen", 134)):
        env = ALFWorldEnv(split=split, path=folder)
        assert env.tasks.comparison.is_complete
        assert (env.tasks.comparison.panel.name, env.tasks.comparison.same) == (
            "alfworld-official",
            count,
        )
    assert capsys.readouterr().err == ""


def test_a_damaged_copy_of_the_release_is_named_by_threespo_data(shared, tmp_path, capsys):
    """A third of the unseen games gone, and two seen ones without the key."""
    folder, out = tmp_path / "copy", tmp_path / "out"
    seen, unseen = released(shared, "valid_seen"), released(shared, "valid_unseen")
    write(seen, folder, "valid_seen", unmarked=(seen[0].game_id, seen[-1].game_id))
    write(unseen[44:], folder)
    write(released(shared, "train"), folder, "train")
    assert cli.main(["data", "alfworld", "--from", str(folder), "--to", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"{seen[0].game_id}, {seen[-1].game_id}; they are played here" in said
    assert (
        f"{folder}, valid_unseen: 90 of 134 tasks of the panel alfworld-official are there by content; 44 missing"
        in said
    )
    assert f"{folder}, train: 205 of 3553 tasks" in said
    assert f"{folder}, valid_seen" not in said.replace("valid_seen: 2 game(s)", "").replace(
        f"{folder}/valid_seen", ""
    )
    kept = json.loads((out / "manifest.json").read_text())["panel"]
    assert set(kept["valid_unseen"]["missing"]) == {game.game_id for game in unseen[:44]}
    assert (kept["valid_seen"]["same"], kept["valid_seen"]["missing"]) == (140, [])
