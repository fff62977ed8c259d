"""Audits of logs: planted faults are found and counted, a clean log has none, and the number is the panel's."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threespo import cli
from threespo.envs.alfworld import compile_game, embedded, sources
from threespo.envs.webshop.data import load_goals
from threespo.errors import InputError
from threespo.panels.audit import audit
from threespo.panels.logs import read_log
from threespo.panels.panel import content_hash, instruction_hash, load_panel, panel_names

GAMES, SHOP = load_panel("alfworld-official"), load_panel("webshop-1k")
UNSEEN = [task.task_id for task in GAMES.splits["valid_unseen"]]
GOALS = [task.task_id for task in SHOP.splits["test"]]


@pytest.fixture
def log(tmp_path):
    """Writes rows and returns the audit of them."""

    def write(rows, panel=GAMES, split=None):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return audit(read_log(path, panel), panel, split)

    return write


def rows(tasks=UNSEEN, seeds=(0, 1), wins=lambda place: place % 2 == 0, **more):
    return [
        {"task": task, "seed": seed, "success": bool(wins(place)), **more}
        for seed in seeds
        for place, task in enumerate(tasks)
    ]


def kinds(found):
    return {finding.kind: finding.count for finding in found.findings}


def test_a_clean_log_has_no_finding_and_its_own_number(log):
    found = log(rows(steps=50))
    assert kinds(found) == {}
    (number,) = found.numbers
    assert (number.split, number.tasks, number.played, number.seeds, number.missing) == (
        "valid_unseen",
        134,
        134,
        2,
        0,
    )
    assert number.success == found.logged == number.least == number.most == 0.5


def test_the_interval_is_wilsons_for_one_seed_and_not_narrower_for_equal_seeds(log):
    """Wilson's interval for 67 of 134, from the formula with n - 1 games, which the sample variance stands for."""
    one, two = log(rows(seeds=(0,))).numbers[0], log(rows()).numbers[0]
    z2, n = 1.959963984540054**2, 133
    half = (z2 * (0.25 / n + z2 / (4 * n * n))) ** 0.5 / (1 + z2 / n)
    assert (one.low, one.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-12)
    assert (two.low, two.high) == pytest.approx((one.low, one.high))


def test_the_interval_covers():
    """Of a thousand logs with success of 0.8 on every task, about 95 % contain it."""
    from threespo.panels.audit import _wilson_interval

    source, covered = random.Random(0), 0
    for _ in range(1000):
        low, high = _wilson_interval([float(source.random() < 0.8) for _ in range(134)])[1:]
        covered += low <= 0.8 <= high
    assert 930 <= covered <= 970


def test_certain_success_has_an_interval_too(log):
    number = log(rows(wins=lambda _: True)).numbers[0]
    assert (number.success, number.high) == (1.0, 1.0)
    assert 0.95 < number.low < 0.98


def test_repeated_and_missing_tasks_are_counted_and_the_first_episode_counts(log):
    played = rows(UNSEEN[:100], seeds=(0,), wins=lambda _: False)
    again = rows(UNSEEN[:10] * 3, seeds=(0,), wins=lambda _: True)
    found = log(played + again)
    assert kinds(found) == {"repeated": 30, "missing": 34}
    assert found.logged == 30 / 130
    number = found.numbers[0]
    assert (number.success, number.least, number.most) == (0.0, 0.0, 34 / 134)


def test_training_tasks_among_the_tested_and_tested_ones_in_training(log):
    held = [GAMES.splits[split][0].task_id for split in ("train", "calibration")]
    found = log(rows(UNSEEN + held) + rows(UNSEEN[:3], split="train"))
    assert kinds(found) == {"training_tasks": 4, "trained_on": 3}
    assert found.numbers[0].success == 0.5


def test_mixed_splits_have_a_number_each(log):
    seen = [task.task_id for task in GAMES.splits["valid_seen"]]
    found = log(rows(UNSEEN, wins=lambda _: True) + rows(seen, wins=lambda _: False))
    assert kinds(found) == {"mixed": 2 * 274}
    assert {number.split: number.success for number in found.numbers} == {
        "valid_unseen": 1.0,
        "valid_seen": 0.0,
    }
    claimed = log(rows(split="valid_seen"))
    assert kinds(claimed) == {"other_split": 268}


def test_episodes_that_are_cut(log):
    assert kinds(log(rows(steps=30))) == {"cut": 134}
    assert kinds(log(rows(steps=51))) == {"longer": 268}
    # A purchase ends an episode in a shop; that it was cut is known where the log says that it did not end.
    assert kinds(log(rows(GOALS, steps=6, score=None), SHOP)) == {}
    assert kinds(log(rows(GOALS, steps=6, ended=False), SHOP)) == {"cut": 500}


def test_buying_anything_is_no_success(log):
    won = rows(GOALS, wins=lambda _: True)
    bought = [{**row, "score": 1.0 if place % 4 == 0 else 0.5} for place, row in enumerate(won)]
    found = log(bought, SHOP)
    assert kinds(found) == {"bought_anything": 750}
    assert (found.logged, found.numbers[0].success) == (1.0, 0.25)


def test_unknown_tasks_are_counted_and_named(log):
    found = log([*rows(seeds=(0,)), {"task": "no/such", "success": 1}])
    assert kinds(found) == {"unknown": 1}
    assert "no/such" in found.findings[0].text


def test_verl_agents_infos(log):
    path = "/data/json_2.1.1/valid_unseen/{}/game.tw-pddl"
    wins = [
        {"extra.gamefile": path.format(task), "won": place < 67} for place, task in enumerate(UNSEEN)
    ]
    found = log(wins)
    assert kinds(found) == {}
    assert found.numbers[0].success == 0.5
    moved = [
        {**row, "extra.gamefile": row["extra.gamefile"].replace("valid_unseen", "valid_seen")}
        for row in wins
    ]
    assert kinds(log(moved)) == {"other_split": 134}


def _goal_texts(shared):
    from threespo.gym import open_tasks

    tasks = open_tasks("webshop", split="test", path=str(shared / "data" / "webshop_1k"))
    return [tasks.task(place).goal for place in range(len(tasks))]


def test_verls_dumps_and_agentgyms_results_name_goals_by_their_texts(log, shared):
    """Whatever bound a process drew; texts that two products share are taken for one after the other."""
    bound = ", and price lower than "
    texts = [f"{text.split(bound)[0]}{bound}990.00 dollars" for text in _goal_texts(shared)]
    prompt = "\nYou are an agent. \nYour task is to: {}.\nYour current observation is: 'Search'."
    dumps = [{"input": prompt.format(text), "output": "", "score": 10.0, "step": 1} for text in texts]
    gym = [
        {
            "conversations": [
                {"from": "human", "value": f"WebShop [SEP] Instruction: [SEP] {text} [SEP] Search"}
            ],
            "item_id": f"webshop_{place}",
            "reward": 0.25,
            "success": 0,
        }
        for place, text in enumerate(texts)
    ]
    for logged, success in ((dumps, 1.0), (gym, 0.0)):
        found = log(logged, SHOP)
        assert kinds(found) == {}
        assert (found.numbers[0].played, found.numbers[0].success) == (500, success)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("[1]", "entry 1: expected a JSON object, found int"),
        ("{", "after line 1: not readable"),
        ('{"task": "a"}', "line 1: no field 'success'"),
        ('{"success": true}', "line 1: no field that names the task"),
        ('{"task": "a", "success": "yes"}', "field 'success': expected true or false.*found 'yes'"),
        ('{"task": "a", "success": 0.5}', "field 'success'.*found 0.5"),
        (
            '{"task": "a", "success": 1, "score": 3}',
            "field 'score': expected a number from 0 to 1, found 3",
        ),
        (
            '{"task": "a", "success": 1, "steps": "ten"}',
            "field 'steps': expected a whole number, found 'ten'",
        ),
        ('{"task": "a", "success": 1, "ended": 7}', "field 'ended'"),
        ('{"input": "Your task is to: x.\\n", "output": "", "score": 4}', "field 'score' is 4"),
        ('{"task": "a", "success": 1}', "none of 1 episodes is of a task of valid_seen, valid_unseen"),
        ("", "no episode in it"),
    ],
)
def test_broken_logs_are_said(row, says, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(InputError, match=says):
        audit(read_log(path, GAMES), GAMES)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
LOGGED = ("task", "seed", "success", "won", "score", "steps", "ended", "split")
TEXTS = (
    "input",
    "output",
    "conversations",
    "item_id",
    "extra.gamefile",
    "goal",
    "actions",
    "texts",
    "responses",
)
OTHERS = (
    "content",
    "meta",
    "info",
    "is_done",
    "trajectory",
    "index",
    "time",
    "name",
    "memory",
    "traj_uid",
    "wordings",
)
FIELDS = (*LOGGED, *TEXTS, *OTHERS)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), values, max_size=6), max_size=4))
def test_any_log_is_audited_or_refused(tmp_path_factory, logged):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [*logged, *rows(UNSEEN[:2])]), encoding="utf-8"
    )
    try:
        found = audit(read_log(path, GAMES), GAMES)
    except InputError:
        return
    assert all(0 <= number.low <= number.success <= number.high <= 1 for number in found.numbers)


def test_the_command_says_it_and_exits_with_one_where_something_is_found(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    assert cli.main(["audit", str(path), "--panel", "alfworld-official"]) == 0
    assert "on valid_unseen: 50.0% (" in capsys.readouterr().out
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(UNSEEN[1:])))
    assert cli.main(["audit", str(path), "--panel", "alfworld-official", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "missing"


# --- the panels themselves


def test_panels_have_disjoint_splits_and_each_task_once():
    assert panel_names() == [
        "alfworld-generated",
        "alfworld-official",
        "webshop-1k",
        "webshop-generated",
    ]
    for name in panel_names():
        panel = load_panel(name)
        ids = [task.task_id for tasks in panel.splits.values() for task in tasks]
        assert len(ids) == len(set(ids))
        if panel.environment == "alfworld":
            contents = [task.content for tasks in panel.splits.values() for task in tasks]
            assert len(contents) == len(set(contents))
    sizes = {split: len(tasks) for split, tasks in GAMES.splits.items()}
    assert sizes == {"calibration": 200, "train": 3353, "valid_seen": 140, "valid_unseen": 134}
    with pytest.raises(InputError, match="no panel 'alfworld'; there are: alfworld-generated"):
        load_panel("alfworld")


def test_panels_hold_ids_and_hashes_and_no_texts():
    for name in panel_names():
        for tasks in load_panel(name).splits.values():
            assert all(" " not in task.task_id and len(task.content) == 16 for task in tasks)


def test_generated_games_are_those_of_the_panel():
    panel = load_panel("alfworld-generated")
    for split, tasks in panel.splits.items():
        for index in (0, len(tasks) - 1):
            game = compile_game(embedded.generate_game(split, 7, "full", index))
            assert (game.task_id, content_hash(game)) == tuple(tasks[index])


def test_a_wish_is_the_same_whatever_bound_was_drawn():
    text = "Find me red shoes with color: red"
    bounds = ("", ", and price lower than 40.00 dollars", ", and price lower than 110.00 dollars ", ".")
    assert len({instruction_hash(text + bound) for bound in bounds}) == 1
    assert instruction_hash(text) != instruction_hash(text + " and size: 9")


def test_a_shop_is_prepared_without_a_study(tmp_path, capsys):
    folder = tmp_path / "shop"
    assert cli.main(["data", "webshop", "--to", str(folder)]) == 0
    for split, tasks in load_panel("webshop-generated").splits.items():
        assert [goal.task_id for goal in load_goals(folder, split)] == [task.task_id for task in tasks]
    assert cli.main(["data", "webshop", "--to", str(folder)]) == 2
    assert "there is something already" in capsys.readouterr().err


PUT, MOVE = "put mug 1 in/on shelf 2", "move mug 1 to shelf 2"


def turns(*commands):
    """A conversation of AgentGym; what the environment lists is no command of the agent."""
    listed = f"AVAILABLE ACTIONS: {PUT}, {MOVE}"
    return [
        turn
        for text in commands
        for turn in ({"from": "human", "value": listed}, {"from": "gpt", "value": text})
    ]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([{"actions": ["look", MOVE]}, {"output": f"I move on. <action>{MOVE}</action>"}], {}),
        ([{"actions": ["look", PUT]}, {"commands": [MOVE]}], {"mixed_wordings": 1, "other_wording": 1}),
        ([{"actions": [PUT]}, {"actions": ["inventory"]}], {"other_wording": 1}),
        ([{"conversations": turns("Thought: now.\nAction:\n" + PUT)}] * 2, {"other_wording": 2}),
        ([{"output": f"<think>Now {PUT}.</think><action>{MOVE}</action>"}, {"actions": [MOVE]}], {}),
        (
            [{"output": f"Now {MOVE}. <action>look</action> <ACTION>{PUT}</ACTION>"}, {"output": PUT}],
            {"other_wording": 2},
        ),
        ([{"conversations": turns(f"Thought: {PUT}.\nAction:\n{MOVE}")}] * 2, {}),
        ([{"conversations": turns("put it in/on a shelf", "move to shelf 1")}] * 2, {}),
    ],
)
def test_wordings_of_commands_are_compared_with_the_panels(fields, found, log):
    two = [{"task": task, "success": True, **more} for task, more in zip(UNSEEN, fields, strict=False)]
    assert {kind: count for kind, count in kinds(log(two)).items() if kind != "missing"} == found


def test_the_wording_of_a_panel_is_that_of_its_games(shared):
    games = sources.load_games(shared / "data" / "alfworld", "valid_unseen", limit=1)
    generated = embedded.generate_game("train", 7, "full", 0)
    assert {GAMES.wording, games[0].wording, generated.wording} == {"move"}
    assert SHOP.wording is None


def test_tasks_of_another_content_are_found(log):
    """A goal by people leaves the id and changes the content."""
    contents = [task.content for task in GAMES.splits["valid_unseen"]]
    two = [
        {"task": task, "success": True, "content": content}
        for task, content in zip(UNSEEN, contents, strict=True)
    ]
    assert kinds(log(two)) == {}
    two[3]["content"] = two[5]["content"] = "0" * 16
    assert kinds(log(two)) == {"other_content": 2, "missing": 2}
    with pytest.raises(InputError, match="line 4: field 'content': expected 16 hexadecimal digits"):
        log([*two[:3], {**two[3], "content": 7}])
