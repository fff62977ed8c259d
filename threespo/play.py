"""Play one game in the terminal, or watch a policy play it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from threespo.envs.alfworld import Alfworld, Game, compile_game
from threespo.envs.alfworld.sources import GAME_FILE, load, read_game, splits
from threespo.envs.base import Environment, StateT, Task, TaskT
from threespo.envs.parsing import parse_response
from threespo.envs.prompts import alfworld_prompt
from threespo.errors import InputError
from threespo.protocol import Sampler, SampleRequest

QUIT = "quit"

Choose = Callable[[str, tuple[str, ...]], str]
"""A player: takes the observation and the admissible actions, returns an action."""


def play(path: Path, game_id: str | None = None, policy: Path | None = None, out: TextIO | None = None) -> bool:
    """Play a game by hand, or let the policy of a trained run play it; return whether it was won.

    Parameters:
        path: a ``game.tw-pddl``, its folder, a ``.jsonl`` or ``.jsonl.xz`` file of games, or a folder of games.
        game_id: ``TASK/TRIAL``, where there are several games; by default the first.
        policy: folder of a run that has been trained.

    Raises:
        InputError: if the game or the run is not there.
    """
    game, out = open_game(path, game_id), out or sys.stdout
    if policy is None:
        return play_task(Alfworld(), game, ask(iter(sys.stdin), out), out)
    player, max_steps = policy_player(policy, game, out)
    return play_task(Alfworld(), game, player, out, max_steps)


def open_game(path: Path, game_id: str | None = None) -> Game:
    """Return the game that a file or folder holds, see :func:`play`."""
    if path.is_dir() and (path / GAME_FILE).exists():
        path = path / GAME_FILE
    if path.name == GAME_FILE:
        return compile_game(read_game(path))
    if path.is_file() and ".jsonl" in path.name:
        folder, names = path.parent, [path.name.split(".jsonl", 1)[0]]
    else:
        folder, names = path, splits(path)
    for record in (record for name in names for record in load(folder, name)):
        if game_id in (None, record.game_id):
            return compile_game(record)
    wanted = f"game {game_id!r}" if game_id else "game"
    raise InputError(
        f"{path}: no {wanted} there; expected {GAME_FILE}, a .jsonl(.xz) file of games, or a folder of them"
    )


def play_task(
    env: Environment[TaskT, StateT], task: TaskT, choose: Choose, out: TextIO, max_steps: int | None = None
) -> bool:
    """Play ``task`` until it is won, ``max_steps`` are done, or the player says ``quit``; return whether it was won."""
    state = env.initial(task)
    out.write(f"{task.task_id} ({task.task_type})\n\n{state.observation}\n")
    steps = 0
    while not env.won(state) and (max_steps is None or steps < max_steps):
        action = choose(state.observation, env.admissible(state))
        if action.strip() == QUIT:
            out.write("Stopped.\n")
            return False
        state = env.step(state, action).state
        steps += 1
        out.write(f"{state.observation}\n")
    out.write(f"\n{'Won' if env.won(state) else 'Not won'} after {steps} steps.\n")
    return env.won(state)


def ask(lines: Iterator[str], out: TextIO) -> Choose:
    """Return a player that reads one action a line; the end of input is a ``quit``."""

    def choose(observation: str, admissible: tuple[str, ...]) -> str:
        out.write(f"\nAdmissible: {', '.join(admissible)} ({QUIT} to stop)\n> ")
        out.flush()
        return next(lines, QUIT).rstrip("\n")

    return choose


def policy_player(folder: Path, task: Task, out: TextIO) -> tuple[Choose, int]:
    """Return a player that does what a trained run's policy says, and the study's limit of steps.

    Raises:
        InputError: if ``folder`` is not the folder of a run of a study, or it has no weights.
    """
    from threespo.policy.model import load_policy
    from threespo.runs.worlds import make_sampler
    from threespo.study.config import load_study
    from threespo.study.matrix import Paths, find_run

    run_folder = folder.absolute()
    if len(run_folder.parents) < 5 or not (run_folder / "weights").is_dir():
        raise InputError(
            f"{folder}: no trained run there; expected RESULTS/runs/ENV/POLICY/METHOD/seed-N with weights/ in it"
        )
    study = load_study(Paths(run_folder.parents[4]).study)
    run = find_run(study, "/".join(run_folder.parts[-4:]))
    sampler = make_sampler(study, load_policy(run_folder / "weights", study.policies[run.policy].dtype), run.policy)
    settings = study.alfworld
    return sampled(sampler, task, settings.history_length, study.evaluation.temperature, out), settings.max_steps


def sampled(
    sampler: Sampler, task: Task, history_length: int, temperature: float, out: TextIO, seed: int = 0
) -> Choose:
    """Return a player that asks ``sampler`` for a response at every step and shows it."""
    history: list[tuple[str, str]] = []

    def choose(observation: str, admissible: tuple[str, ...]) -> str:
        prompt = alfworld_prompt(task.goal, observation, admissible, tuple(history), history_length)
        request = SampleRequest(prompt, 1, ("play", task.task_id, len(history)))
        response = sampler.sample((request,), seed=seed, temperature=temperature)[0][0].text
        action = parse_response(response).action
        history.append((observation, action))
        out.write(f"\n{response}\n> {action}\n")
        return action

    return choose
