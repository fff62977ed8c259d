"""Dumps of verl-agent, a line for each step: episodes again, whatever their order, or refused; and thoughts in them."""

import json
import random

import pytest

from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, WebShopEnv
from threespo.panels.audit import audit
from threespo.panels.logs import read_log
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
    """The steps of an episode as verl-agent dumps them, each with the episode's reward, less a penalty if it is invalid."""
    env.reset(options={"task": task})
    rows = []
    for command in commands:
        prompt = env.prompt
        allowed = env.step(command)[-1]["admissible"]
        rows.append(
            {
                "input": prompt,
                "output": said(command),
                "score": won * scale - penalty * (not allowed),
                "step": 7,
            }
        )
    assert env.episode.won == won
    return rows


def games(count, wins, history=2):
    """Steps of ALFWorld games, by episode, and what they are: every second step of a lost one is invalid."""
    env, dumped, truth = (
        ALFWorldEnv(split="valid_unseen", order="listed", history_length=history),
        [],
        [],
    )
    for place in range(count):
        plan = env.tasks.task(place).walkthrough
        commands = plan if place < wins else ("look", "fly") * (place % 3 + 1)
        dumped.append(play(env, place, commands, place < wins))
        truth.append((UNSEEN[place], place < wins, len(commands)))
    return dumped, sorted(truth)


def flat(episodes):
    return [row for rows in episodes for row in rows]


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
    assert [one for one in summary(found) if one[0] in unlike] == [
        one for one in truth if one[0] in unlike
    ]


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
    won, lost = play(env, 3, plan, True), play(env, 3, ("look",) * 4, False)
    group = [won, lost, won, won]
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
            rows.append(
                {
                    "input": prompt,
                    "output": said(command),
                    "score": reward - 0.1 * (not allowed),
                    "step": 7,
                }
            )
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
        prompt = (
            f"Your task is to: {env.tasks.task(place).goal}.\nYour current observation is: 'Search'."
        )
        rows += [
            {
                "input": prompt,
                "output": said("search[a]"),
                "score": 10.0 * (place < 20) - source.choice((0, 0.1)),
                "step": 1,
            }
            for _ in range(length)
        ]
    assert len(rows) == 300
    found = read(rows, SHOP)
    assert (len(found), sum(one.success for one in found)) == (40, 20)
    assert sorted(one.steps for one in found) == lengths
    assert "repeated" not in {finding.kind for finding in audit(found, SHOP).findings}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("said", ["in prompts", "nowhere else"])
def test_a_field_step_that_counts_the_steps_of_an_episode_is_no_training_step(read, first, said):
    dumped, truth = games(12, 5)
    for (task, _, _), rows in zip([(UNSEEN[place], 0, 0) for place in range(12)], dumped, strict=True):
        for place, row in enumerate(rows):
            row |= {"step": place + first, "gamefile": f"/d/valid_unseen/{task}/game.tw-pddl"}
            row["input"] = row["input"] if said == "in prompts" else "What now?"
    assert summary(read(flat(dumped))) == truth


def test_ids_of_trajectories_put_steps_together(read):
    env = WebShopEnv(split="test")
    prompts = [f"Your task is to: {env.tasks.task(place % 2).goal}.\n" for place in range(6)]
    rows = [
        {
            "input": prompts[place],
            "output": said("a"),
            "score": 10.0 * (place < 4),
            "step": 1,
            "traj_uid": f"t{place}",
        }
        for _ in range(3)
        for place in range(6)
    ]
    found = read(rows, SHOP)
    assert (len(found), sum(one.success for one in found), {one.steps for one in found}) == (6, 4, {3})


def test_whole_episodes_of_verl_are_a_line_each_whatever_penalties_they_sum_up(read):
    env = WebShopEnv(split="test")
    several = said("search[a]") + " page " + said("click[buy now]")
    rows = [
        {
            "input": f"Your task is to: {env.tasks.task(place).goal}.\n",
            "output": several,
            "score": score,
            "step": 1,
        }
        for place, score in enumerate((10.0, 9.7, 0.0, -0.3, 9.9))
    ]
    assert [one.success for one in read(rows, SHOP)] == [True, True, False, False, True]
    # A group of the same task is as many episodes.
    assert len(read([rows[0]] * 4, SHOP)) == 4


def test_steps_that_were_left_out_or_copied_are_refused(read):
    dumped, _ = games(3, 3)
    for broken in (dumped[0][1:], dumped[0] + [dumped[0][2]], dumped[1][:1] + dumped[1][3:]):
        with pytest.raises(
            InputError, match=r"line 1: the lines are steps, and more .* left out or copied"
        ):
            read(broken)
    (rows,), (bare,) = shop(1, 1), shop(1, 1, history=0)
    with pytest.raises(InputError, match="left out or copied"):
        read([rows[1], bare[1], bare[2]], SHOP)


@pytest.mark.parametrize("score", [4, 1.0, 11, -7, None, "10", True, float("nan")])
def test_scores_of_no_episode_are_refused_in_true_words(read, score):
    with pytest.raises(
        InputError, match=r"line 1: field 'score' is .*the episode's reward, 10 or 0, less a penalty"
    ):
        read([{"input": "Your task is to: x.\n", "output": "", "score": score, "step": 1}])


def test_lines_of_steps_in_our_own_names_are_refused(read):
    rows = [{"gamefile": UNSEEN[0], "won": step == 3, "step": step} for step in (1, 2, 3)]
    with pytest.raises(
        InputError, match=r"line 2: field 'step' goes on from .*line 1.*one line for each episode"
    ):
        read(rows)
    # A number of training steps, and rounds of other tasks, are none.
    assert (
        len(
            read(
                [
                    {"task": task, "success": True, "step": 100 + place}
                    for place, task in enumerate(UNSEEN)
                ]
            )
        )
        == 134
    )


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
    assert "opened_thought" not in {
        finding.kind for finding in audit(read(flat(dumped)), GAMES).findings
    }
