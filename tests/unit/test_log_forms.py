"""Logs in the forms of other programs: each is read for what it says, or refused by the name of its form."""

import gzip
import json
import lzma

import pytest

from threespo import cli
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, WebShopEnv
from threespo.panels.audit import audit
from threespo.panels.logs import read_log
from threespo.panels.openings import find_opening
from threespo.panels.panel import load_panel

GAMES, SHOP = load_panel("alfworld-generated"), load_panel("webshop-generated")
UNSEEN = [task.task_id for task in GAMES.splits["valid_unseen"]]
GOALS = [task.task_id for task in SHOP.splits["test"]]


@pytest.fixture
def read(tmp_path):
    """Writes rows as lines and returns the episodes that are read."""

    def write(rows, panel=GAMES):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read_log(path, panel)

    return write


def summary(episodes):
    """The task, outcome and steps of each episode, in any order."""
    return sorted((one.task, one.success, one.steps) for one in episodes)


# --- ALFWorld's own environment, ids in other forms


def paths(task):
    return [
        f"/home/me/data/json_2.1.1/valid_unseen/{task}/game.tw-pddl",
        f"C:\\alfworld\\json_2.1.1\\valid_unseen\\{task.replace('/', chr(92))}\\game.tw-pddl",
        f"./json_2.1.1/valid_unseen/{task}",
        f"valid_unseen/{task}/",
        f"$ALFWORLD_DATA/json_2.1.1/valid_unseen/{task}/traj_data.json",
        f"file:///data/valid_unseen/{task}/initial_state.pddl",
        task.split("/")[1],
        task.replace("/", "_"),
        task.replace("/", "-"),
        f"  {task}\n",
    ]


@pytest.mark.parametrize("form", range(len(paths(UNSEEN[0]))))
def test_ids_as_paths_in_any_form(read, form):
    found = read([{"gamefile": paths(task)[form], "success": True} for task in UNSEEN])
    assert [one.task for one in found] == UNSEEN
    assert audit(found, GAMES).findings == ()
    assert {one.split for one in found} == ({"valid_unseen"} if form < 6 else {None})


@pytest.mark.parametrize(
    "row",
    [
        {"extra.gamefile": ["/d/valid_unseen/{}/game.tw-pddl"], "won": [True]},
        {
            "extra.gamefile": ["/d/valid_unseen/{}/game.tw-pddl"],
            "won": [1.0],
            "admissible_commands": [["look", "go"]],
        },
        {"extra.gamefile": ["{}"], "won": True, "actions": ["look"], "steps": [5.0]},
        {"infos": {"extra.gamefile": ["{}"], "won": [1]}, "steps": 5},
        {"extra.gamefile": "{}", "won": [True], "score": [None]},
    ],
)
def test_infos_of_alfreds_environment_are_lists_of_one(read, row):
    rows = [json.loads(json.dumps(row).replace("{}", task)) for task in UNSEEN]
    found = read(rows)
    assert [(one.task, one.success) for one in found] == [(task, True) for task in UNSEEN]


def test_infos_of_a_batch_are_an_episode_each(read):
    rows = [
        {"extra.gamefile": UNSEEN[i : i + 4], "won": [True, False, False, True], "steps": [1, 2, 3, 4]}
        for i in (0, 4, 8)
    ]
    found = read(rows)
    assert [one.task for one in found] == UNSEEN[:12]
    assert [one.success for one in found] == [True, False, False, True] * 3
    assert [one.steps for one in found] == [1, 2, 3, 4] * 3
    with pytest.raises(InputError, match=r"line 1: field 'extra.gamefile' has 4 values, and 'won' is"):
        read([{**rows[0], "won": [True]}])
    with pytest.raises(
        InputError, match=r"line 1: field 'extra.gamefile' is \[\['a'\]\]; expected an id, a game file"
    ):
        read([{"extra.gamefile": [[["a"]]], "won": [True]}])


@pytest.mark.parametrize(
    ("steps", "number"), [(5.0, 5), ([5.0], 5), (0, 0), (float("nan"), None), (None, None), (50, 50)]
)
def test_numbers_as_tables_with_gaps_write_them(read, steps, number):
    (found,) = read(
        [{"task": UNSEEN[0], "success": 1.0, "seed": 3.0, "steps": steps, "score": float("nan")}]
    )
    assert (found.steps, found.success, found.seed, found.score) == (number, True, "3", None)


@pytest.mark.parametrize("steps", [5.5, -1.0, float("inf"), "5", True])
def test_numbers_that_are_not_whole_are_refused(read, steps):
    with pytest.raises(InputError, match="field 'steps': expected a whole number"):
        read([{"task": UNSEEN[0], "success": True, "steps": steps}])


# --- files


ROWS = [{"task": task, "success": place % 2 == 0} for place, task in enumerate(UNSEEN)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
PRETTY = "".join(json.dumps(row, indent=2) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(ROWS).encode()),
        ("a.json", json.dumps(ROWS, indent=2).encode()),
        ("a.json", json.dumps({"episodes": ROWS, "mean": 0.5}, indent=1).encode()),
        ("a.json", json.dumps({row["task"]: row["success"] for row in ROWS}).encode()),
        (
            "a.json",
            json.dumps({row["task"]: {"success": row["success"], "steps": 3} for row in ROWS}).encode(),
        ),
        (
            "a.json",
            json.dumps({key: [row[key] for row in ROWS] for key in ("task", "success")}).encode(),
        ),
        ("a.jsonl", b"\xef\xbb\xbf" + LINES.encode()),
        ("a.jsonl", LINES.encode("utf-16")),
        ("a.jsonl", LINES.replace("\n", "\r\n\r\n").encode()),
        ("a.jsonl", PRETTY.encode()),
        ("a.jsonl.gz", gzip.compress(LINES.encode())),
        ("a.jsonl.xz", lzma.compress(LINES.encode())),
        ("a.log", gzip.compress(b"\xef\xbb\xbf" + json.dumps(ROWS).encode())),
    ],
)
def test_files_in_which_logs_come(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    found = read_log(path, GAMES)
    assert [(one.task, one.success) for one in found] == [(row["task"], row["success"]) for row in ROWS]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x28\xb5\x2f\xfd rest", "compressed by zstd; unpack it first"),
        (b"BZh9 rest", "compressed by bzip2"),
        (b"PK\x03\x04 rest", "a zip archive"),
        (b"PAR1 rest", "a parquet file; write it as lines"),
        (b"\x1f\x8b\x08 cut", "not readable as JSON lines"),
        (gzip.compress(LINES.encode())[:-30], "not readable as JSON lines"),
        (LINES[:-20].encode(), "after line 134: not readable as JSON lines"),
        (b'[{"task": "a"}, ', "after line 1: not readable as JSON lines"),
        (b"task,success\na,1\n", r"a\.jsonl: a table; write it as lines: pandas"),
        (
            b"\n\n#####\n\nEnvironment #0:\nYou are in",
            r"a\.jsonl: a text log of Reflexion, which is not read",
        ),
        (b"\n\n***** Start Trial #0 *****\n", "a text log of Reflexion"),
        (
            b"[EXP] 0: [success_rate]: True, [progress_rate]: 1.0",
            "a summary of AgentBoard .*which names no games",
        ),
        (
            b"# Notes\nwon 5\n",
            "after line 1: not readable as JSON lines .*expected a JSON object a line",
        ),
        ('{"task": "\xe4"}\n'.encode("latin-1"), "not readable .*in UTF-8"),
        (b"", "no episode in it"),
        (b"[]", "no episode in it"),
    ],
)
def test_files_that_are_no_logs_are_said_in_one_line(tmp_path, content, says):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as raised:
        read_log(path, GAMES)
    assert "\n" not in str(raised.value)


def test_a_compressed_log_must_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("threespo.files._ALWAYS_ALLOWED_EXPANSION", 1 << 16)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 20)))
    with pytest.raises(InputError, match="expands to more than any honest file"):
        read_log(path, GAMES)


def test_a_file_that_is_not_there_is_one_clean_line(tmp_path, capsys):
    assert cli.main(["audit", str(tmp_path / "nolog.jsonl"), "--panel", "alfworld-official"]) == 2
    said = capsys.readouterr().err
    assert (
        f"{tmp_path}/nolog.jsonl: no such file; expected a log of episodes, such as JSON lines" in said
    )
    assert "Errno" not in said
    assert said.count("\n") == 1
    assert cli.main(["audit", str(tmp_path), "--panel", "alfworld-official"]) == 2
    assert f"{tmp_path}: a folder; give one file" in capsys.readouterr().err


# --- results of other benchmarks


def agentboard(place, done):
    env = ALFWorldEnv(split="valid_unseen", order="listed")
    env.reset(options={"task": place})
    goal = env.episode.task.goal
    turns = {
        "Interaction Turn 0": {
            "Goal": goal,
            "Observation": "You arrive.",
            "Action": "go to shelf 1",
            "Progress Rate": 0,
        },
        "Interaction Turn 1": {
            "Action": "look",
            "Observation": "Nothing happens.",
            "Progress Rate": float(done),
        },
    }
    task = UNSEEN[place].split("/")[0]
    return {
        "id": place,
        "task_name": task,
        "goal": goal,
        "difficulty": "hard",
        "is_done": done,
        "progress_rate": 0.5,
    } | {
        "grounding_acc": 0.5,
        "score_change_record": [[1, 0.5]],
        "trajectory": turns,
    }


def test_logs_of_agentboard_are_read(tmp_path):
    """Objects over several lines; games are named by their folder and goal."""
    path = tmp_path / "alfworld.jsonl"
    rows = [agentboard(place, place % 2 == 0) for place in range(30)]
    path.write_text("".join(json.dumps(row, indent=2) + "\n" for row in rows))
    found = read_log(path, GAMES)
    assert [one.task for one in found] == UNSEEN[:30]
    assert [one.success for one in found] == [place % 2 == 0 for place in range(30)]
    assert {(one.steps, one.score) for one in found} == {(2, None)}
    rows[3]["goal"] = "put a sentence that is another one."
    path.write_text(json.dumps(rows))
    assert [one.line for one in read_log(path, GAMES) if one.changed] == [4]


def test_a_shops_log_of_agentboard_is_read(read):
    env = WebShopEnv(split="test")
    rows = [
        {
            **agentboard(0, place == 1),
            "task_name": "webshop",
            "goal": f"Instruction: \n{env.tasks.task(place).goal}",
        }
        for place in range(3)
    ]
    assert [(one.task, one.success) for one in read(rows, SHOP)] == [
        (GOALS[place], place == 1) for place in range(3)
    ]


def agentbench(place, won, *, error=None):
    env = ALFWorldEnv(split="valid_unseen", order="listed")
    text, _ = env.reset(options={"task": place})
    began = text.split("\n\n", 1)[1].replace("\n\n", "\n")
    begin = f"Here is your task. {began} AVAILABLE ACTIONS: look\ngo to shelf 1\n"
    room = "You are in the middle of a room. Looking quickly around you, you see a bed 1."
    example = f"{room}\nYour task is to: put a x on y.\n"
    log = [
        {"round": turn, "output": "ACTION: look", "action": "look", "observation": "", "done": won}
        for turn in (1, 2, 3)
    ]
    output = {
        "index": place,
        "status": "completed",
        "result": {"log": log, "init_prompt": begin, "result": int(won)},
        "history": [{"role": "user", "content": example}, {"role": "agent", "content": "OK"}],
    }
    return {
        "index": place,
        "error": error,
        "info": None,
        "output": output,
        "time": {"timestamp": 1, "str": "now"},
    }


def test_runs_of_agentbench_are_read(read):
    places = [
        place for place in range(60) if len(GAMES.with_opening[GAMES.openings[UNSEEN[place]]]) == 1
    ][:20]
    found = read([agentbench(place, place % 3 == 0) for place in places])
    assert summary(found) == sorted((UNSEEN[place], place % 3 == 0, 3) for place in places)
    assert {one.ended for one in found} == {True, False}


def test_a_shops_runs_of_agentbench_are_read(read):
    env, rows = WebShopEnv(split="test"), []
    for place, reward in enumerate((1.0, 0.5, 0)):
        page = f"WebShop [SEP] Instruction: [SEP] {env.tasks.task(place).goal} [SEP] Search"
        turns = [{"role": "user", "content": page}, {"role": "agent", "content": "Action: search[a]"}]
        output = {"index": place, "status": "completed", "result": {"reward": reward}, "history": turns}
        rows.append({"index": place, "error": None, "info": None, "output": output, "time": {}})
    found = read(rows, SHOP)
    assert [(one.task, one.success, one.score) for one in found] == [
        (GOALS[0], True, 1.0),
        (GOALS[1], False, 0.5),
        (GOALS[2], False, 0.0),
    ]


def test_states_of_eto_and_wkm_are_read(read):
    """Turns after worked examples, and the outcome in 'meta'."""
    rows = []
    for place in range(10):
        began = agentbench(place, True)["output"]
        example = f"An example: {began['history'][0]['content']}> look"
        turns = [{"from": "human", "value": example}, {"from": "gpt", "value": "OK"}]
        turns += [
            {"from": "human", "value": began["result"]["init_prompt"]},
            {"from": "gpt", "value": "Action: look"},
        ]
        meta = {
            "steps": 9,
            "reward": float(place < 4),
            "finished": True,
            "success": place < 4,
            "terminate_reason": None,
        }
        rows.append({"meta": {**meta, "error": None}, "conversations": turns})
    found = read(rows)
    assert [one.success for one in found] == [place < 4 for place in range(10)]
    assert {GAMES.openings[one.task] for one in found} == {GAMES.openings[task] for task in UNSEEN[:10]}
    assert {one.steps for one in found} == {9}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"name": "env_0", "memory": [], "is_success": True, "skip": False},
            "of Reflexion .* not read: 'env_0' names",
        ),
        ({"name": "env_1", "memory": ["I was stuck."], "is_success": False}, "a result of Reflexion"),
        (
            {"task_name": "alfworld", "success_rate": 0.4, "progress_rate": 0.6},
            "a summary of AgentBoard .*no episodes",
        ),
        (
            {"total": 50, "validation": {}, "custom": {"overall": {}}},
            "a summary of AgentBench .* give runs.jsonl",
        ),
        ({"overall": {"total": 50, "pass": 20}}, "a summary of AgentBench"),
        (
            agentbench(0, False, error="AGENT_FAILED"),
            "a run of AgentBench that has failed .*not error.jsonl",
        ),
        (
            agentbench(0, False) | {"output": {"result": {"score": 1}}},
            "a run of AgentBench without ALFWorld's result",
        ),
        (agentboard(0, True) | {"trajectory": [1]}, "the turns of an AgentBoard log"),
        ({"id": 3, "answer": "x"}, "no field that names the task; .*found: answer, id"),
    ],
)
def test_forms_that_are_not_read_are_named(read, row, says):
    for rows in ([row], [[row]]):
        with pytest.raises(InputError, match=says) as raised:
            read(rows)
        assert "\n" not in str(raised.value)


def test_a_result_of_reflexion_with_its_game_is_read(read):
    row = {
        "name": "env_0",
        "memory": [],
        "is_success": True,
        "gamefile": f"/d/valid_unseen/{UNSEEN[0]}/game.tw-pddl",
    }
    assert [(one.task, one.success) for one in read([row])] == [(UNSEEN[0], True)]


# --- by content


def test_episodes_are_named_by_how_games_begin():
    env = ALFWorldEnv(split="valid_seen", order="listed")
    for place in range(0, 140, 23):
        text, info = env.reset(options={"task": place})
        assert find_opening(text) == GAMES.openings[info["task"]]
        assert find_opening(env.prompt) == GAMES.openings[info["task"]]
        env.step("look")
        assert find_opening(env.prompt) == GAMES.openings[info["task"]]


def logged(**changes):
    """Lines as of infos of our own environment, some fields changed by a function of the place."""
    env, rows = ALFWorldEnv(split="valid_unseen", order="listed"), []
    for place in range(6):
        info = env.reset()[1]
        row = {"task": info["task"], "content": info["content"], "goal": info["goal"], "success": True}
        rows.append(row | {name: change(place, row) for name, change in changes.items()})
    return rows


OTHER = "0123456789abcdef"


@pytest.mark.parametrize(
    ("changes", "known", "changed"),
    [
        ({}, 6, 0),
        ({"content": lambda *_: None}, 6, 0),
        # Generated again with other sentences, under the same names: by content, and where that is not logged, by the goal.
        ({"content": lambda *_: OTHER, "goal": lambda *_: "Kindly put a mug away."}, 0, 6),
        ({"content": lambda *_: None, "goal": lambda place, _: f"Kindly put mug {place} away."}, 0, 6),
        # The same sentence, another layout.
        ({"content": lambda place, row: OTHER if place < 2 else row["content"]}, 4, 2),
        # Renamed folders with the panel's contents.
        ({"task": lambda place, _: f"mine/{place}"}, 6, 0),
        # Other games under other names.
        ({"task": lambda place, _: f"mine/{place}", "content": lambda *_: OTHER}, 0, 0),
    ],
)
def test_logs_are_compared_by_content(read, changes, known, changed):
    found = read(logged(**changes))
    assert (sum(one.known for one in found), sum(one.changed for one in found)) == (known, changed)
    if known == 6:
        assert [one.task for one in found] == UNSEEN[:6]
        assert audit(found, GAMES).numbers[0].played == 6
    if changed:
        judged = audit(found, GAMES)
        assert judged.findings[-1].kind == "other_content"
        assert judged.findings[-1].count == changed
        assert sum(number.played for number in judged.numbers) == known
        assert any("another goal sentence or layout" in line for line in judged.lines())
        assert known or judged.lines()[-1] == "on no split: no episode is of a task of the panel"


def test_a_task_that_is_known_by_name_alone_is_said_to_be(read, capsys, tmp_path):
    by_name = audit(read([{**row, "content": None} for row in logged()]), GAMES)
    assert by_name.by_name == 6
    assert any(
        "6 episodes are taken for the panel's by ids or words" in line for line in by_name.lines()
    )
    by_content = audit(read(logged()), GAMES)
    assert by_content.by_name == 0
    assert not any("taken for" in line for line in by_content.lines())


def test_the_command_counts_nothing_of_games_that_were_generated_again(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in logged(content=lambda *_: OTHER)))
    assert cli.main(["audit", str(path), "--panel", "alfworld-generated"]) == 1
    said = capsys.readouterr().out
    assert "6 episodes have the name of a task of the panel and another content, such as " in said
    assert said.endswith("on no split: no episode is of a task of the panel\n")
    assert cli.main(["audit", str(path), "--panel", "alfworld-generated", "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["numbers"], values["by_name"], values["findings"][-1]["count"]) == ([], 0, 6)


def test_wishes_that_are_logged_beside_an_id_are_compared(read):
    env = WebShopEnv(split="test", order="listed")
    infos = [env.reset()[1] for _ in range(3)]
    rows = [{"task": info["task"], "goal": info["goal"], "success": True} for info in infos]
    assert [(one.known, one.by_content) for one in read(rows, SHOP)] == [(True, True)] * 3
    rows[1]["goal"] = "Find me another thing with other attributes"
    assert [one.changed for one in read(rows, SHOP)] == [False, True, False]
