"""Logs in the forms of other programs: each is read for what it says, or refused by the name of its form."""

import gzip
import json
import lzma
import random

import pytest

from threespo import cli
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, WebShopEnv
from threespo.panels.audit import audit
from threespo.panels.logs import read_log
from threespo.panels.openings import opening_in
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


def said(command):
    return f"<think>Now {command}.</think><action>{command}</action>"


def play(env, task, commands, won, scale=10.0, penalty=0.1):
    """The steps of an episode as verl-agent dumps them: the episode's reward in each, less a penalty where it was invalid."""
    env.reset(options={"task": task})
    rows = []
    for command in commands:
        prompt = env.prompt
        allowed = env.step(command)[-1]["admissible"]
        rows.append({"input": prompt, "output": said(command), "score": won * scale - penalty * (not allowed), "step": 7})
    assert env.episode.won == won
    return rows


def games(count, wins, history=2):
    """Steps of ALFWorld games, by episode, and what they are: every second step of a lost one is invalid."""
    env, dumped, truth = ALFWorldEnv(split="valid_unseen", order="listed", history_length=history), [], []
    for place in range(count):
        plan = env.tasks.task(place).walkthrough
        commands = plan if place < wins else ("look", "fly") * (place % 3 + 1)
        dumped.append(play(env, place, commands, place < wins))
        truth.append((UNSEEN[place], place < wins, len(commands)))
    return dumped, sorted(truth)


def flat(episodes):
    return [row for rows in episodes for row in rows]


# --- verl-agent's dumps: a line for each step


def test_steps_of_verl_agent_are_episodes_again(read):
    dumped, truth = games(40, 20)
    rows = flat(dumped)
    scores = {row["score"] for row in rows}
    assert len(rows) > 150
    assert scores == {10.0, 0.0, -0.1}
    found = read(rows)
    assert sum(one.success for one in found) == 20
    # Games that begin alike are taken for one after the other; all others have their own outcome and steps.
    assert len(found) == len({one.task for one in found}) == 40
    unlike = [task for task, opening in GAMES.openings.items() if len(GAMES.with_opening[opening]) == 1]
    assert [one for one in summary(found) if one[0] in unlike] == [one for one in truth if one[0] in unlike]


def test_steps_may_stand_in_any_order(read):
    dumped, _ = games(20, 10)
    rows = flat(dumped)
    expected = sum(one.success for one in read(rows)), len(read(rows))
    random.Random(0).shuffle(rows)
    assert (sum(one.success for one in read(rows)), len(read(rows))) == expected == (10, 20)


def test_rollouts_of_one_task_are_an_episode_each(read):
    """A group of GRPO: the same first prompt again and again, some won and some lost."""
    env = ALFWorldEnv(split="valid_unseen", order="listed")
    plan = env.tasks.task(3).walkthrough
    group = [play(env, 3, plan, True), play(env, 3, ("look",) * 4, False), play(env, 3, plan, True), play(env, 3, plan, True)]
    found = read(flat(group))
    assert sorted(one.success for one in found) == [False, True, True, True]
    assert {one.steps for one in found if not one.success} == {4}


def test_prompts_without_history_are_told_apart_by_how_games_begin(read):
    dumped, truth = games(12, 6, history=0)
    assert "already taken" not in json.dumps(dumped)
    found = read(flat(dumped))
    assert (len(found), sum(one.success for one in found)) == (12, 6)
    assert sorted(one.steps for one in found) == sorted(steps for _, _, steps in truth)


def shop(count, wins, history=2, env=None):
    """Steps in the shop: a search, a click on nothing, and a purchase of whatever is first, said to be right or wrong."""
    env = env or WebShopEnv(split="test", order="listed", history_length=history)
    dumped = []
    for place in range(count):
        env.reset(options={"task": place})
        rows = []
        for command in ("search[lamp]", "click[nothing]", "click[back to search]", "search[red]"):
            reward = 10.0 * (place < wins)
            prompt = env.prompt
            allowed = env.step(command)[-1]["admissible"]
            rows.append({"input": prompt, "output": said(command), "score": reward - 0.1 * (not allowed), "step": 7})
        dumped.append(rows)
    return dumped


@pytest.mark.parametrize("history", [0, 2])
def test_steps_in_a_shop_are_episodes_again(read, history):
    rows = flat(shop(30, 12, history))
    found = read(rows, SHOP)
    assert {one.steps for one in found} == {4}
    wins = {one.task: one.success for one in found}
    assert wins == {task: place < 12 for place, task in enumerate(GOALS[:30])}
    assert {finding.kind for finding in audit(found, SHOP).findings} == {"missing"}


def test_a_long_prompt_of_a_shop_has_no_number_and_is_no_first_step(read):
    (rows,) = shop(1, 1)
    (bare,) = shop(1, 1, history=0)
    for place in (1, 2):
        (found,) = read([bare[i] if i == place else row for i, row in enumerate(rows)], SHOP)
        assert (found.success, found.task) == (True, GOALS[0])


def test_equal_prompts_of_one_task_are_steps_where_a_score_is_less_a_penalty(read):
    """Prompts of somebody's own, which do not count steps: 300 lines, 40 episodes, 20 of them won."""
    env, rows, source = WebShopEnv(split="test"), [], random.Random(1)
    lengths = [7] * 20 + [8] * 20
    for place, length in enumerate(lengths):
        prompt = f"Your task is to: {env.tasks.task(place).goal}.\nYour current observation is: 'Search'."
        rows += [
            {"input": prompt, "output": said("search[a]"), "score": 10.0 * (place < 20) - source.choice((0, 0.1)), "step": 1}
            for _ in range(length)
        ]
    assert len(rows) == 300
    found = read(rows, SHOP)
    assert (len(found), sum(one.success for one in found)) == (40, 20)
    assert sorted(one.steps for one in found) == lengths
    assert "repeated" not in {finding.kind for finding in audit(found, SHOP).findings}


def test_ids_of_trajectories_put_steps_together(read):
    env = WebShopEnv(split="test")
    prompts = [f"Your task is to: {env.tasks.task(place % 2).goal}.\n" for place in range(6)]
    rows = [
        {"input": prompts[place], "output": said("a"), "score": 10.0 * (place < 4), "step": 1, "traj_uid": f"t{place}"}
        for _ in range(3)
        for place in range(6)
    ]
    found = read(rows, SHOP)
    assert (len(found), sum(one.success for one in found), {one.steps for one in found}) == (6, 4, {3})


def test_whole_episodes_of_verl_are_a_line_each_whatever_penalties_they_sum_up(read):
    env = WebShopEnv(split="test")
    several = said("search[a]") + " page " + said("click[buy now]")
    rows = [
        {"input": f"Your task is to: {env.tasks.task(place).goal}.\n", "output": several, "score": score, "step": 1}
        for place, score in enumerate((10.0, 9.7, 0.0, -0.3, 9.9))
    ]
    assert [one.success for one in read(rows, SHOP)] == [True, True, False, False, True]
    # A group of the same task is as many episodes.
    assert len(read([rows[0]] * 4, SHOP)) == 4


def test_steps_that_were_left_out_or_copied_are_refused(read):
    dumped, _ = games(3, 3)
    for broken in (dumped[0][1:], dumped[0] + [dumped[0][2]], dumped[1][:1] + dumped[1][3:]):
        with pytest.raises(InputError, match=r"line 1: the lines are steps, and more .* left out or copied"):
            read(broken)


@pytest.mark.parametrize("score", [4, 1.0, 11, -7, None, "10", True, float("nan")])
def test_scores_of_no_episode_are_refused_in_true_words(read, score):
    with pytest.raises(InputError, match=r"line 1: field 'score' is .*the episode's reward, 10 or 0, less a penalty"):
        read([{"input": "Your task is to: x.\n", "output": "", "score": score, "step": 1}])


def test_lines_of_steps_in_our_own_names_are_refused(read):
    rows = [{"gamefile": UNSEEN[0], "won": step == 3, "step": step} for step in (1, 2, 3)]
    with pytest.raises(InputError, match="line 2: field 'step' goes on from .*line 1.*one line for each episode"):
        read(rows)
    # A number of training steps, and rounds of other tasks, are none.
    assert len(read([{"task": task, "success": True, "step": 100 + place} for place, task in enumerate(UNSEEN)])) == 134


# --- thoughts that the chat template has opened


@pytest.mark.parametrize(
    ("response", "wordings"),
    [
        ("I put mug 1 in/on shelf 2.</think><action>move mug 1 to shelf 2</action>", {"move"}),
        ("I put mug 1 in/on shelf 2.\n</think>\nmove mug 1 to shelf 2", {"move"}),
        ("I put mug 1 in/on shelf 2.\n</think>\nAction: look", set()),
        ("<think>I put mug 1 in/on shelf 2.</think> move mug 1 to shelf 2", {"move"}),
        ("put mug 1 in/on shelf 2", {"put"}),
    ],
)
def test_a_thought_ends_where_it_is_closed_also_where_the_template_opened_it(read, response, wordings):
    (found,) = read([{"task": UNSEEN[0], "success": True, "output": response}])
    assert found.wordings == wordings


def test_responses_that_were_penalised_for_the_templates_tag_are_counted(read):
    dumped, _ = games(3, 3)
    for row in flat(dumped):
        row["output"], row["score"] = row["output"].removeprefix("<think>"), 9.9
    found = audit(read(flat(dumped)), GAMES)
    kinds = {finding.kind: finding.count for finding in found.findings}
    assert kinds["opened_thought"] == len(flat(dumped))
    assert found.logged == 1.0
    for row in flat(dumped):
        row["score"] = 10.0
    assert "opened_thought" not in {finding.kind for finding in audit(read(flat(dumped)), GAMES).findings}


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
        {"extra.gamefile": ["/d/valid_unseen/{}/game.tw-pddl"], "won": [1.0], "admissible_commands": [["look", "go"]]},
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
        {"extra.gamefile": UNSEEN[i : i + 4], "won": [True, False, False, True], "steps": [1, 2, 3, 4]} for i in (0, 4, 8)
    ]
    found = read(rows)
    assert [one.task for one in found] == UNSEEN[:12]
    assert [one.success for one in found] == [True, False, False, True] * 3
    assert [one.steps for one in found] == [1, 2, 3, 4] * 3
    with pytest.raises(InputError, match="line 1: field 'extra.gamefile' has 4 values, and 'won' is"):
        read([{**rows[0], "won": [True]}])
    with pytest.raises(InputError, match=r"line 1: field 'extra.gamefile' is \[\['a'\]\]; expected an id, a game file"):
        read([{"extra.gamefile": [[["a"]]], "won": [True]}])


@pytest.mark.parametrize(("steps", "number"), [(5.0, 5), ([5.0], 5), (0, 0), (float("nan"), None), (None, None), (50, 50)])
def test_numbers_as_tables_with_gaps_write_them(read, steps, number):
    (found,) = read([{"task": UNSEEN[0], "success": 1.0, "seed": 3.0, "steps": steps, "score": float("nan")}])
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
        ("a.json", json.dumps({row["task"]: {"success": row["success"], "steps": 3} for row in ROWS}).encode()),
        ("a.json", json.dumps({key: [row[key] for row in ROWS] for key in ("task", "success")}).encode()),
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
        (b"task,success\na,1\n", "after line 1: not readable as JSON lines .*expected a JSON object a line"),
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
    monkeypatch.setattr("threespo.files._SMALL", 1 << 16)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 20)))
    with pytest.raises(InputError, match="expands to more than any honest file"):
        read_log(path, GAMES)


def test_a_file_that_is_not_there_is_one_clean_line(tmp_path, capsys):
    assert cli.main(["audit", str(tmp_path / "nolog.jsonl"), "--panel", "alfworld-official"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/nolog.jsonl: no such file; expected a log of episodes, such as JSON lines" in said
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
        "Interaction Turn 0": {"Goal": goal, "Observation": "You arrive.", "Action": "go to shelf 1", "Progress Rate": 0},
        "Interaction Turn 1": {"Action": "look", "Observation": "Nothing happens.", "Progress Rate": float(done)},
    }
    task = UNSEEN[place].split("/")[0]
    return {"id": place, "task_name": task, "goal": goal, "difficulty": "hard", "is_done": done, "progress_rate": 0.5} | {
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
        {**agentboard(0, place == 1), "task_name": "webshop", "goal": f"Instruction: \n{env.tasks.task(place).goal}"}
        for place in range(3)
    ]
    assert [(one.task, one.success) for one in read(rows, SHOP)] == [(GOALS[place], place == 1) for place in range(3)]


def agentbench(place, won, *, error=None):
    env = ALFWorldEnv(split="valid_unseen", order="listed")
    text, _ = env.reset(options={"task": place})
    begin = "Here is your task. " + text.split("\n\n", 1)[1].replace("\n\n", "\n") + " AVAILABLE ACTIONS: look\ngo to shelf 1\n"
    example = "You are in the middle of a room. Looking quickly around you, you see a bed 1.\nYour task is to: put a x on y.\n"
    log = [{"round": turn, "output": "ACTION: look", "action": "look", "observation": "", "done": won} for turn in (1, 2, 3)]
    output = {
        "index": place,
        "status": "completed",
        "result": {"log": log, "init_prompt": begin, "result": int(won)},
        "history": [{"role": "user", "content": example}, {"role": "agent", "content": "OK"}],
    }
    return {"index": place, "error": error, "info": None, "output": output, "time": {"timestamp": 1, "str": "now"}}


def test_runs_of_agentbench_are_read(read):
    places = [place for place in range(60) if len(GAMES.with_opening[GAMES.openings[UNSEEN[place]]]) == 1][:20]
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
        turns += [{"from": "human", "value": began["result"]["init_prompt"]}, {"from": "gpt", "value": "Action: look"}]
        meta = {"steps": 9, "reward": float(place < 4), "finished": True, "success": place < 4, "terminate_reason": None}
        rows.append({"meta": {**meta, "error": None}, "conversations": turns})
    found = read(rows)
    assert [one.success for one in found] == [place < 4 for place in range(10)]
    assert {GAMES.openings[one.task] for one in found} == {GAMES.openings[task] for task in UNSEEN[:10]}
    assert {one.steps for one in found} == {9}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"name": "env_0", "memory": [], "is_success": True, "skip": False}, "a result of Reflexion .* not read: 'env_0' names"),
        ({"name": "env_1", "memory": ["I was stuck."], "is_success": False}, "a result of Reflexion"),
        ({"task_name": "alfworld", "success_rate": 0.4, "progress_rate": 0.6}, "a summary of AgentBoard .*no episodes"),
        ({"total": 50, "validation": {}, "custom": {"overall": {}}}, "a summary of AgentBench .* give runs.jsonl"),
        ({"overall": {"total": 50, "pass": 20}}, "a summary of AgentBench"),
        (agentbench(0, False, error="AGENT_FAILED"), "a run of AgentBench that has failed .*not error.jsonl"),
        (agentbench(0, False) | {"output": {"result": {"score": 1}}}, "a run of AgentBench without ALFWorld's result"),
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
    row = {"name": "env_0", "memory": [], "is_success": True, "gamefile": f"/d/valid_unseen/{UNSEEN[0]}/game.tw-pddl"}
    assert [(one.task, one.success) for one in read([row])] == [(UNSEEN[0], True)]


# --- by content


def test_episodes_are_named_by_how_games_begin():
    env = ALFWorldEnv(split="valid_seen", order="listed")
    for place in range(0, 140, 23):
        text, info = env.reset(options={"task": place})
        assert opening_in(text) == GAMES.openings[info["task"]]
        assert opening_in(env.prompt) == GAMES.openings[info["task"]]
        env.step("look")
        assert opening_in(env.prompt) == GAMES.openings[info["task"]]


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
    assert any("6 episodes are taken for the panel's by ids or words" in line for line in by_name.lines())
    by_content = audit(read(logged()), GAMES)
    assert by_content.by_name == 0
    assert not any("taken for" in line for line in by_content.lines())


def test_wishes_that_are_logged_beside_an_id_are_compared(read):
    env = WebShopEnv(split="test", order="listed")
    infos = [env.reset()[1] for _ in range(3)]
    rows = [{"task": info["task"], "goal": info["goal"], "success": True} for info in infos]
    assert [(one.known, one.by_content) for one in read(rows, SHOP)] == [(True, True)] * 3
    rows[1]["goal"] = "Find me another thing with other attributes"
    assert [one.changed for one in read(rows, SHOP)] == [False, True, False]
