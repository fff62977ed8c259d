"""Play one episode in the terminal, or watch a policy play it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from threespo.envs.base import Environment, Task
from threespo.envs.episode import Episode, EpisodeSetup, act, begin
from threespo.envs.parsing import parse_response
from threespo.envs.registry import environment, recognised
from threespo.errors import InputError
from threespo.protocol import Sampler, SampleRequest
from threespo.terminal import printable

QUIT = "quit"

Choose = Callable[[Episode], str]
"""A player: returns the next action."""


def play(path: Path, task_id: str | None = None, policy: Path | None = None, out: TextIO | None = None) -> bool:
    """Play an episode by hand, or let the policy of a trained run play it; return whether it was won.

    Args:
        path: ALFWorld: a ``game.tw-pddl``, its folder, a ``.jsonl`` or ``.jsonl.xz`` file of games, or a folder of games.
            WebShop: the data folder of a study, which holds a catalogue.
        task_id: which game (``TASK/TRIAL``) or goal (``ASIN/NUMBER``), where there are several; by default the first.
        policy: folder of a run that has been trained.

    Raises:
        InputError: if the task or the run is not there, or the run is of another environment.
    """
    (env, task), out = open_task(path, task_id), out or sys.stdout
    if policy is None:
        # A person has no step limit, and reads no prompt with a history in it.
        return play_task(begin(EpisodeSetup(env, sys.maxsize, 0), task), ask(iter(sys.stdin), out), out)
    setup, player = policy_player(policy, env.name, path, out)
    return play_task(begin(setup, task), player, out)


def open_task(path: Path, task_id: str | None = None) -> tuple[Environment[Any, Any], Task]:
    """Return the environment of a file or folder and one task in it; :func:`play` explains the arguments."""
    return recognised(path).open_task(path, task_id)


def play_task(episode: Episode, choose: Choose, out: TextIO) -> bool:
    """Play on until the episode is over or the player says ``quit``; return whether it was won.

    Args:
        episode: where to begin.
        choose: the player.
        out: receives the observations.
    """
    task = episode.task
    out.write(printable(f"{task.task_id} ({task.task_type})\n{_goal_line(episode)}\n{episode.observation}\n"))
    while not episode.done:
        action = choose(episode)
        if action.strip() == QUIT:
            out.write("Stopped.\n")
            return False
        episode = act(episode, action)
        out.write(printable(f"{episode.observation}\n"))

    score = f", score {episode.score:.2f}" if episode.ended and not episode.won else ""
    out.write(f"\n{'Won' if episode.won else 'Not won'} after {episode.steps} steps{score}.\n")
    return episode.won


def _goal_line(episode: Episode) -> str:
    """Return the goal where the first observation does not name it."""
    goal = episode.task.goal
    return "" if goal in episode.observation else f"Your task is to: {goal}\n"


def ask(lines: Iterator[str], out: TextIO) -> Choose:
    """Return a player that reads one action a line; the end of input is a ``quit``."""

    def choose(episode: Episode) -> str:
        admissible = episode.setup.env.admissible(episode.state)
        out.write(printable(f"\nAdmissible: {', '.join(admissible)} ({QUIT} to stop)\n> "))
        out.flush()
        return next(lines, QUIT).rstrip("\n")

    return choose


def policy_player(folder: Path, env: str, data: Path, out: TextIO) -> tuple[EpisodeSetup, Choose]:
    """Return the setup of a trained run's study, and a player that takes the actions of the run's policy.

    Args:
        folder: the run's folder.
        env: the environment that is played, which must be the run's.
        data: folder with the environment's tasks.
        out: receives the policy's responses.

    Raises:
        InputError: if ``folder`` is not the folder of a run of a study, it has no weights, or is of another environment.
    """
    from threespo.policy.model import load_policy
    from threespo.runs.setup import make_sampler, make_setup
    from threespo.study.load import load_study
    from threespo.study.matrix import find_run
    from threespo.study.paths import paths_of_run
    from threespo.study.records import check_used

    try:
        paths, run_id = paths_of_run(folder)
    except ValueError:
        paths, run_id = None, ""
    if paths is None or not paths.run(run_id).weights.is_dir():
        raise InputError(
            f"{folder}: no trained run there; expected RESULTS/runs/ENV/POLICY/METHOD/seed-N with weights/ in it"
        )

    study = load_study(paths.study)
    run = find_run(study, run_id)
    if run.env != env:
        raise InputError(f"{folder}: a run on {run.env}, and the task is one of {env}; give a run on that")

    # Damaged weights play too, and only badly.
    check_used(paths.run(run).weights)
    # On this machine's processor, whatever the run was trained with.
    settings = study.policies[run.policy].sampling(gpus=0).model_copy(update={"sampler": "torch"})
    sampler = make_sampler(settings, load_policy(paths.run(run).weights, settings.dtype))
    setup = make_setup(env, environment(env).episode.part_of(study.environments[env]), data)
    return setup, sampled(sampler, study.evaluation.temperature, out)


def sampled(sampler: Sampler, temperature: float, out: TextIO, seed: int = 0) -> Choose:
    """Return a player that asks ``sampler`` for a response at every step and shows it.

    Args:
        sampler: the policy's sampler.
        temperature: of the samples; 0 takes the most probable token.
        out: receives the responses.
        seed: of the random numbers.
    """

    def choose(episode: Episode) -> str:
        request = SampleRequest(episode.prompt, 1, ("play", episode.task.task_id, episode.steps))
        response = sampler.sample((request,), seed=seed, temperature=temperature)[0][0].text
        action = parse_response(response, episode.setup.env.text.fallback_length).action
        out.write(printable(f"\n{response}\n> {action}\n"))
        return action

    return choose
