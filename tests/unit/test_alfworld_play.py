"""Terminal play, and a policy's choices in its place."""

import io
from collections.abc import Sequence
from pathlib import Path

from tests.alfworld_mini import mini
from tests.followed import study_in
from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.sources import write_compact
from threespo.envs.alfworld.text import alfworld_prompt
from threespo.envs.episode import Episode, EpisodeSetup, start_episode
from threespo.protocol import Sample, SampleRequest
from threespo.watch.play import list_tasks, make_human_player, make_sampling_player, open_task, play_task

GOAL = "(opened Drawer_bar_1)"


def start() -> Episode:
    return start_episode(EpisodeSetup(Alfworld(), 99, 0), compile_game(mini(GOAL)))


def test_a_person_plays_to_the_win() -> None:
    out = io.StringIO()
    won = play_task(
        start(), make_human_player(iter(["go to drawer 1\n", "dance\n", "open drawer 1\n"]), out), out
    )
    assert won
    shown = out.getvalue()
    assert "You arrive at drawer 1. The drawer 1 is closed." in shown
    assert "Nothing happens." in shown
    assert "Step 1 of 99. Admissible: 1 go to drawer 1, 2 go to shelf 1," in shown
    assert shown.endswith("Won after 3 steps.\n")


def test_an_action_may_be_named_by_its_number() -> None:
    out = io.StringIO()
    episode = start()
    choose = make_human_player(iter(["1\n", "99\n", "0\n"]), out)
    assert [choose(episode) for _ in range(3)] == ["go to drawer 1", "99", "0"]


def test_a_person_has_the_step_limit_of_the_study_whose_data_it_is(tmp_path: Path) -> None:
    write_compact([mini(GOAL)], tmp_path / "data" / "alfworld")
    (split,) = {mini(GOAL).split}
    rules = {"study": 15, "none": 50}
    for name, steps in rules.items():
        if name == "study":
            study_in(tmp_path)
        else:
            (tmp_path / "study.json").unlink()
        setup, _ = open_task(tmp_path / "data" / "alfworld", split=split)
        assert setup.max_steps == steps
    out = io.StringIO()
    short = start_episode(EpisodeSetup(Alfworld(), 2, 0), compile_game(mini(GOAL)))
    assert not play_task(short, make_human_player(iter(["look\n"] * 9), out), out)
    assert "Step 2 of 2." in out.getvalue()
    assert out.getvalue().endswith("Not won after 2 steps, all that there are.\n")


def test_tasks_are_drawn_from_the_training_split_and_listed_with_their_ids(tmp_path: Path) -> None:
    games = [
        game
        for split, seed in (("train", 1), ("valid_unseen", 2))
        for game in generate_games(split, 4, seed, "small")
    ]
    write_compact(games, tmp_path)
    ids = {
        split: {game.game_id for game in games if game.split == split}
        for split in ("train", "valid_unseen")
    }
    drawn = {open_task(tmp_path, seed=seed)[1].task_id for seed in range(12)}
    assert len(drawn) > 1
    assert drawn <= ids["train"]
    assert {open_task(tmp_path, split="valid_unseen", seed=seed)[1].task_id for seed in range(3)} <= ids[
        "valid_unseen"
    ]

    head, *lines = list_tasks(tmp_path)
    assert head.endswith("train, valid_unseen; this is train")
    assert {line.split()[0] for line in lines} == ids["train"]
    # By its id a task is found wherever it is.
    held_out = min(ids["valid_unseen"])
    assert open_task(tmp_path, held_out)[1].task_id == held_out


def test_quit_and_the_end_of_input_stop_the_game() -> None:
    for lines in (["look\n", "quit\n", "open drawer 1\n"], ["look\n"]):
        out = io.StringIO()
        assert not play_task(start(), make_human_player(iter(lines), out), out)
        assert out.getvalue().endswith("Stopped.\n")


class Scripted:
    """A sampler that answers from a list and keeps the prompts."""

    def __init__(self, actions: Sequence[str]) -> None:
        self.actions = iter(actions)
        self.prompts: list[str] = []

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        self.prompts += [request.prompt for request in requests]
        text = f"<think>so</think><action>{next(self.actions)}</action>"
        return [[Sample(tokens=(1,), logprobs=(0.0,), text=text, finished=True)] for _ in requests]


def test_a_policy_plays_with_its_history() -> None:
    out, game, env = io.StringIO(), compile_game(mini(GOAL)), Alfworld()
    sampler = Scripted(["go to drawer 1", "look", "look"])
    assert not play_task(
        start_episode(EpisodeSetup(env, 3, 2), game), make_sampling_player(sampler, 1.0, out), out
    )
    assert out.getvalue().endswith("Not won after 3 steps, all that there are.\n")
    assert "> go to drawer 1" in out.getvalue()
    start = env.initial(game)
    there = env.step(start, "go to drawer 1").state
    history = ((start.observation, "go to drawer 1"),)
    assert sampler.prompts[1] == alfworld_prompt(
        game.goal, there.observation, env.admissible(there), history, 2
    )
