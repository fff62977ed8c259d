"""The Gymnasium form: its own checker, forks and snapshots that are exact, streams without repeats, and clear errors."""

import json
import pickle
import random
import subprocess
import sys
import threading
import time
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import threespo.gym
from threespo.envs.alfworld import Alfworld, compile_game, sources
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, ALFWorldVectorEnv, WebShopEnv, WebShopVectorEnv
from threespo.gym.stream import pick_task
from threespo.panels.panel import load_panel

NAMES = ("threespo/ALFWorld-v0", "threespo/WebShop-v0")
ENVIRONMENTS = {"ALFWorld": ALFWorldEnv, "WebShop": WebShopEnv}
TESTED = {"ALFWorld": "valid_unseen", "WebShop": "test"}


@pytest.fixture(params=ENVIRONMENTS)
def env(request):
    """An environment of either kind, at the start of an episode."""
    made = ENVIRONMENTS[request.param](split=TESTED[request.param])
    made.reset(seed=3)
    return made


def _choice(env, source):
    commands = [command for command in env.render().splitlines() if command.startswith("  ")]
    return source.choice(commands).strip().replace("<your query>", "red lamp")


def _walk(env, steps, seed):
    """Return everything that is seen on a random walk that ends with the episode."""
    source, seen = random.Random(seed), []
    for _ in range(steps):
        if env.episode.done:
            break
        seen.append(env.step(_choice(env, source)))
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_own_checker_finds_nothing(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gymnasium.make(name).unwrapped)
    assert not [one for one in caught if "gymnasium" in str(one.filename)]


@pytest.mark.parametrize("name", NAMES)
def test_the_registered_names_make_both_forms(name):
    one, many = (
        gymnasium.make(name),
        gymnasium.make_vec(name, num_envs=3, vectorization_mode="vector_entry_point"),
    )
    text, info = one.reset(seed=5)
    texts, infos = many.reset(seed=5)
    assert (texts[0], infos["task"][0]) == (text, info["task"])
    assert len(set(infos["task"])) == 3
    assert texts in many.observation_space


def test_a_game_is_played_as_the_engine_plays_it():
    """Observations, commands, score and end along every walkthrough of a few games."""
    env, engine = ALFWorldEnv(split="valid_seen", order="listed"), Alfworld()
    for _ in range(5):
        text, info = env.reset()
        game = env.episode.task
        state = engine.initial(game)
        assert (text, info["admissible_commands"]) == (state.observation, list(engine.admissible(state)))
        for number, command in enumerate(game.walkthrough, start=1):
            text, reward, ended, cut, info = env.step(command)
            state = engine.step(state, command).state
            assert (text, info["admissible_commands"], info["won"]) == (
                state.observation,
                list(engine.admissible(state)),
                engine.won(state),
            )
            assert (reward, ended, cut) == (
                float(number == len(game.walkthrough)),
                number == len(game.walkthrough),
                False,
            )
            assert info["admissible"]


def test_the_step_limit_truncates_and_is_no_end():
    env = ALFWorldEnv(max_steps=2)
    env.reset(seed=0)
    assert env.step("look")[2:4] == (False, False)
    assert env.step("look")[2:4] == (False, True)


def test_a_stream_plays_every_task_once_before_any_again():
    for seed, sweep in ((0, 0), (0, 2), (7, 1)):
        drawn = [pick_task(seed, sweep * 23 + number, 23, "shuffled") for number in range(23)]
        assert sorted(drawn) == list(range(23))
    assert [pick_task(9, number, 4, "listed") for number in range(6)] == [0, 1, 2, 3, 0, 1]


def test_many_environments_share_one_stream_without_repeats():
    env = ALFWorldVectorEnv(5, split="valid_unseen", autoreset=False)
    played = list(env.reset(seed=1)[1]["task"])
    for _ in range(3):
        played += list(env.reset(options={"reset_mask": np.ones(5, dtype=bool)})[1]["task"])
    assert len(set(played)) == 20
    one = ALFWorldEnv(split="valid_unseen")
    assert [one.reset(seed=1)[1]["task"], *(one.reset()[1]["task"] for _ in range(19))] == played


def test_the_panel_is_what_is_played():
    env = WebShopEnv(split="test", order="listed")
    tasks = load_panel("webshop-generated").splits["test"]
    assert [env.reset()[1]["task"] for _ in range(3)] == [task.task_id for task in tasks[:3]]


def test_a_fork_goes_its_own_way(env):
    _walk(env, 4, 1)
    before = env.dump()
    twin = env.fork()
    there = _walk(twin, 6, 2)
    assert env.dump() == before
    assert repr(_walk(env, 6, 2)) == repr(there)
    # The next tasks of their streams are the same, too.
    assert env.reset()[1]["task"] == twin.reset()[1]["task"]


def test_a_snapshot_is_gone_back_to_also_after_the_end(env):
    start = env.snapshot()
    first = _walk(env, 60, 4)
    assert env.episode.done
    env.restore(start)
    assert repr(_walk(env, 60, 4)) == repr(first)


def test_bytes_are_gone_on_from_at_every_step(env):
    source = random.Random(8)
    while not env.episode.done:
        other = type(env)(split=env.tasks.split)
        other.restore(env.dump())
        assert other.episode == env.episode
        assert other.dump() == env.dump()
        assert (other.render(), other.prompt) == (env.render(), env.prompt)
        action = _choice(env, source)
        assert repr(other.step(action)) == repr(env.step(action))


IN_ANOTHER_PROCESS = """
import sys
from threespo.gym import ALFWorldEnv, WebShopEnv
env = {made}(split={split!r})
env.restore(sys.stdin.buffer.read())
env.step("look")
sys.stdout.buffer.write(env.dump())
"""


def test_bytes_are_gone_on_from_in_another_process(env):
    _walk(env, 3, 5)
    code = IN_ANOTHER_PROCESS.format(made=type(env).__name__, split=env.tasks.split)
    done = subprocess.run(
        [sys.executable, "-c", code], input=env.dump(), capture_output=True, check=True
    )
    env.step("look")
    assert done.stdout == env.dump()


def test_threads_that_share_a_game_see_what_one_sees(env):
    start, seen = env.snapshot(), {}

    def play(name):
        own = env.fork()
        own.restore(start)
        seen[name] = repr(_walk(own, 25, 6))

    threads = [threading.Thread(target=play, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen.values())) == 1


def test_episodes_of_a_vector_are_those_of_single_environments():
    many = WebShopVectorEnv(3, split="test", autoreset=False)
    _, info = many.reset(seed=2)
    singles = [WebShopEnv(split="test") for _ in range(3)]
    for place, single in enumerate(singles):
        single.reset(options={"task": info["task"][place]})
    source, steps = random.Random(0), 0
    while not any(single.episode.done for single in singles):
        steps += 1
        actions = [_choice(single, source) for single in singles]
        texts, rewards, ended, cut, info = many.step(actions)
        for place, single in enumerate(singles):
            text, reward, *ends, own = single.step(actions[place])
            assert (texts[place], rewards[place], ended[place], cut[place]) == (text, reward, *ends)
            assert {key: info[key][place] for key in own} == own
    assert steps > 1


def _made():
    return gymnasium.make(NAMES[0], split="valid_unseen")


def test_gymnasiums_processes_need_shared_memory_false():
    """Texts have any characters and length, so they are no arrays of fixed size; the other way they are exact."""
    many = AsyncVectorEnv([_made, _made], shared_memory=False)
    singles = [_made() for _ in range(2)]
    try:
        texts, info = many.reset(seed=[3, 4])
        assert list(texts) == [
            env.reset(seed=seed)[0] for env, seed in zip(singles, (3, 4), strict=True)
        ]
        actions = [row[0] for row in info["admissible_commands"]]
        texts, _, _, _, info = many.step(actions)
        expected = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        assert list(texts) == [step[0] for step in expected]
        assert list(info["content"]) == [step[-1]["content"] for step in expected]
    finally:
        many.close()

    shared = AsyncVectorEnv([_made])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError, match="shared_memory=False"):
            shared.reset(seed=3)
    shared.close(terminate=True)


def test_a_vector_begins_the_next_task_a_step_after_the_end():
    env = ALFWorldVectorEnv(2, split="valid_seen", max_steps=1)
    first = env.reset(seed=0)[1]["task"]
    assert list(env.step(["look", "look"])[3]) == [True, True]
    _, rewards, ended, cut, info = env.step(["look", "look"])
    assert (list(rewards), list(ended), list(cut), list(info["steps"])) == (
        [0, 0],
        [False] * 2,
        [False] * 2,
        [0, 0],
    )
    assert not set(first) & set(info["task"])


@pytest.mark.parametrize("autoreset", [True, False])
def test_a_vector_judges_only_actions_that_were_taken(autoreset):
    mode = AutoresetMode.NEXT_STEP if autoreset else AutoresetMode.DISABLED
    ours = ALFWorldVectorEnv(2, split="valid_seen", max_steps=2, autoreset=autoreset)
    ours.reset(seed=0)
    ours.step(["look", "look"])
    # The first environment has a step left, the second begins again.
    ours.reset(options={"reset_mask": np.array([False, True])})

    masks = []
    judged = []
    for _ in range(2):
        info = ours.step(["no such command", "look"])[-1]
        masks.append(list(info["_admissible"]))
        judged.append(list(info["admissible"][info["_admissible"]]))
    # In the second of these steps the action of the first environment, whose episode has ended, is ignored.
    assert masks == [[True, True], [False, True]]
    assert judged == [[False, True], [True]]

    # Gymnasium's own vector environment leaves out the same value.
    theirs = SyncVectorEnv([lambda: ALFWorldEnv(split="valid_seen", max_steps=1)], autoreset_mode=mode)
    theirs.reset(seed=0)
    assert list(theirs.step(["look"])[-1]["_admissible"]) == [True]
    if autoreset:
        assert "admissible" not in theirs.step(["look"])[-1]


def test_a_vectors_episode_is_put_into_other_places():
    env = ALFWorldVectorEnv(3, autoreset=False)
    env.reset(seed=0)
    env.step(["look", "inventory", "look"])
    env.fork(1, onto=[0, 2])
    assert len(set(env.episodes)) == 1
    twin = env.fork()
    twin.step(["look"] * 3)
    assert [episode.steps for episode in env.episodes] == [1, 1, 1]
    other = ALFWorldVectorEnv(3, autoreset=False)
    other.restore(twin.dump())
    assert other.episodes == twin.episodes


def test_a_fork_takes_microseconds():
    """The bound is ten times what a quiet machine takes; copying a game would take thousands."""
    env = ALFWorldEnv()
    env.reset(seed=0)
    took = []
    for _ in range(200):
        begun = time.perf_counter()
        for _ in range(10):
            env.fork()
        took.append((time.perf_counter() - begun) / 10)
    assert sorted(took)[20] < 20e-6


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.integers(0, 3))
def test_any_text_is_an_action(text, stretched):
    for made in ENVIRONMENTS.values():
        env = made()
        env.reset(seed=1)
        seen, reward, ended, cut, info = env.step(text * 10**stretched)
        assert isinstance(seen, str)
        assert (reward, ended, cut) == (0.0, False, False)
        assert info["admissible_commands"]
        other = made()
        other.restore(env.dump())
        assert other.episode == env.episode


@pytest.mark.parametrize("action", [None, 5, b"look", ["look"], 1.5])
def test_what_is_no_text_is_refused(env, action):
    with pytest.raises(InputError, match="expected a text"):
        env.step(action)


def test_misuse_is_said(env):
    with pytest.raises(InputError, match="split: expected one value, found a list"):
        type(env)(split=["train"])
    fresh = type(env)()
    with pytest.raises(InputError, match=r"no episode yet: call reset\(\)"):
        fresh.step("look")
    with pytest.raises(InputError, match="no task 'nothing'; expected an index from 0 to"):
        env.reset(options={"task": "nothing"})
    with pytest.raises(InputError, match="no task 10000000"):
        env.reset(options={"task": 10_000_000})
    with pytest.raises(InputError, match="no option 'tusk'"):
        env.reset(options={"tusk": 1})
    _walk(env, 60, 0)
    for ended in (env, env.fork()):
        with pytest.raises(InputError, match=r"is over after \d+ steps"):
            ended.step("look")
    twin = env.fork()
    env.close()
    env.close()
    for call in (lambda: env.step("look"), env.reset, lambda: env.restore(twin.snapshot())):
        with pytest.raises(InputError, match="closed"):
            call()
    twin.reset(seed=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"split": "tests"}, "no split 'tests'"),
        ({"max_steps": 0}, "max_steps: .* greater than or equal to 1"),
        ({"max_steps": "many"}, "max_steps: .*found 'many'"),
        ({"order": "random"}, "order: expected one of shuffled, listed"),
        ({"render_mode": "human"}, "render_mode"),
        ({"max_step": 5}, "unexpected keyword argument 'max_step'"),
        ({"path": "/nowhere"}, "/nowhere"),
    ],
)
def test_wrong_options_are_said(options, says):
    for made in ENVIRONMENTS.values():
        with pytest.raises(InputError, match=says):
            made(**options)


def _broken(data):
    head, body = data.split(b"\n", 1)
    name, _, checksum = head.split(b" ")
    values = json.loads(body)
    yield b"", "not a snapshot"
    yield pickle.dumps(values), "not a snapshot"
    yield b"\n".join([b" ".join([name, b"9", checksum]), body]), "version 9, expected 1"
    yield data[:-1], "damaged or cut off"
    yield data.replace(b'"won":false', b'"won":true'), "damaged or cut off"


def test_damaged_snapshots_are_refused_and_change_nothing(env):
    _walk(env, 2, 0)
    before = env.dump()
    for data, says in _broken(before):
        with pytest.raises(InputError, match=says):
            env.restore(data)
        assert env.dump() == before


def test_snapshots_of_others_are_refused(env):
    for other in (ALFWorldEnv(max_steps=7), WebShopEnv(fidelity="original")):
        other.reset(seed=0)
        with pytest.raises(InputError, match="but this environment is"):
            env.restore(other.dump())
        with pytest.raises(InputError, match="made in another way"):
            env.restore(other.snapshot())


def test_official_games_are_split_as_the_panel_says(shared, tmp_path):
    """A folder without calibration games has them held out of its training games."""
    folder = str(shared / "data" / "alfworld")
    panel = load_panel("alfworld-official")
    for split, tasks in panel.splits.items():
        assert threespo.gym.open_tasks("alfworld", split=split, path=folder).ids == tuple(
            task.task_id for task in tasks
        )


def test_official_games_have_the_content_that_the_panel_says(shared):
    tasks = threespo.gym.open_tasks(
        "alfworld", split="valid_unseen", path=str(shared / "data" / "alfworld")
    )
    listed = load_panel("alfworld-official").splits["valid_unseen"]
    assert [tasks.content(place) for place in range(0, 134, 9)] == [task.content for task in listed[::9]]


def test_the_original_shop_is_split_as_the_panel_says(shared):
    folder = str(shared / "data" / "webshop_1k")
    for split, listed in load_panel("webshop-1k").splits.items():
        tasks = threespo.gym.open_tasks("webshop", split=split, path=folder)
        assert tasks.ids == tuple(task.task_id for task in listed)
        assert [tasks.content(place) for place in range(50)] == [task.content for task in listed[:50]]


def test_the_engine_says_the_same_through_the_environment_as_in_the_reference(shared):
    """Steps of the reference traces, up to the end of the episode, where Gymnasium stops."""
    from threespo.verify import read_cases

    folder, compared = shared / "data" / "alfworld", 0
    envs = {
        split: ALFWorldEnv(split=split, path=str(folder)) for split in ("valid_seen", "valid_unseen")
    }
    for case in read_cases(
        shared / "golden" / "alfworld_traces.jsonl.xz", ("game_id", "split", "steps")
    ):
        if case["split"] not in envs:
            continue
        env = envs[case["split"]]
        text, info = env.reset(options={"task": case["game_id"]})
        for step in case["steps"]:
            if step["command"] is not None:
                text, _, ended, _, info = env.step(step["command"])
                assert ended == step["won"]
            assert (text, info["admissible_commands"]) == (
                step["observation"],
                step["admissible_commands"],
            )
            compared += 1
            if env.episode.done:
                break
    assert compared > 500


def test_games_of_the_release_are_compiled_only_when_they_are_played(shared, monkeypatch):
    compiled = []
    monkeypatch.setattr(
        "threespo.gym.tasks.compile_game", lambda record: compiled.append(record) or compile_game(record)
    )
    assert sources.find_splits(shared / "data" / "alfworld")
    env = ALFWorldEnv(split="valid_seen", path=str(shared / "data" / "alfworld"), max_steps=49)
    env.reset(seed=0)
    assert len(compiled) == 1


def test_a_refused_call_changes_no_episode():
    many = ALFWorldVectorEnv(2, split="valid_seen", order="listed")
    many.reset(seed=1)
    before = many.snapshot()
    with pytest.raises(InputError, match=r"actions\[1\]: expected a text"):
        many.step(["look", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="no task 'nothing'"):
        many.reset(seed=2, options={"tasks": [0, "nothing"]})
    assert many.snapshot() == before
