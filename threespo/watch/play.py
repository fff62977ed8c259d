"""Play one episode in the terminal, or watch a policy play it."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from threespo.envs.base import Task
from threespo.envs.episode import FREE_TEXT, Episode, EpisodeSetup, start_episode, take_action
from threespo.envs.parsing import parse_response
from threespo.envs.registry import environment, environment_for_path
from threespo.envs.settings import EpisodeSettings
from threespo.envs.spec import EnvironmentSpec
from threespo.errors import InputError, format_names
from threespo.paths import Paths
from threespo.protocol import Sampler, SampleRequest
from threespo.rng import generator
from threespo.runs.setup import make_setup
from threespo.study.load import load_study
from threespo.terminal import escape_controls

QUIT_COMMAND = "quit"

Player = Callable[[Episode], str]
"""Returns the next action of an episode."""

StateFormatter = Callable[[Any], str]
"""Returns the text that shows a state."""


def play_path(
    path: Path,
    task_id: str | None = None,
    policy: Path | None = None,
    out: TextIO | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
) -> bool:
    """Play an episode by hand, or let the policy of a trained run play it; return whether it was won.

    Args:
        path: ALFWorld: a ``game.tw-pddl``, its folder, a ``.jsonl`` or ``.jsonl.xz`` file of games, or a folder of games.
            WebShop: the data folder of a study, which holds a catalogue.
        task_id: which game (``TASK/TRIAL``) or goal (``ASIN/NUMBER``), where there are several; by default one is drawn.
        policy: folder of a run that has been trained.
        split: of which split; by default the one for training, so that held-out tasks are not seen by accident.
        seed: of the draw.

    Raises:
        InputError: if the task or the run is missing, or the run is of another environment.
    """
    spec = environment_for_path(path)
    out = out or sys.stdout
    setup, task = open_task(path, task_id, split, seed)
    if policy is None:
        show = functools.partial(spec.shown, setup.env)
        return play_task(start_episode(setup, task), make_human_player(iter(sys.stdin), out), out, show)
    setup, player = make_policy_player(policy, spec.name, path, out)
    return play_task(start_episode(setup, task), player, out)


def open_task(
    path: Path, task_id: str | None = None, split: str | None = None, seed: int = 0
) -> tuple[EpisodeSetup, Task]:
    """Return how episodes run in the environment of a file or folder, and one of its tasks.

    Arguments are those of :func:`play_path`. In a study's data the study's settings apply, so that a person has the step
    limit that a policy has; elsewhere the environment's defaults.
    """
    spec = environment_for_path(path)
    splits = _find_splits(path, split)
    task = None
    # Opened only at the end: a folder of games has thousands, and what is listed are their headers.
    if task_id is None:
        task = generator(seed, "play").choice(spec.tasks_in(path, splits[0]))
    else:
        # An id is searched in all splits, training first.
        candidates = (task for name in splits for task in spec.tasks_in(path, name))
        task = next((candidate for candidate in candidates if candidate.task_id == task_id), None)
    if task is None:
        raise InputError(
            f"{path}: no task {task_id!r} there (looked in {', '.join(splits)}); "
            f"threespo play {path} --list shows them"
        )
    folder = path if path.is_dir() else path.parent
    setup = make_setup(spec.name, _find_episode_settings(spec, folder), folder)
    return setup, task.open()


def _find_episode_settings(spec: EnvironmentSpec, folder: Path) -> EpisodeSettings:
    """Return the settings of the study that a data folder belongs to, or the environment's defaults."""
    root = next((parent for parent in folder.absolute().parents if Paths(parent).study.is_file()), None)
    section = load_study(Paths(root).study).environments.get(spec.name) if root else None
    if section:
        return spec.episode.part_of(section)
    # Not ``spec.episode()``: each environment has a default step limit, and their common base class has none.
    return spec.episode.model_validate({})


def _find_splits(path: Path, split: str | None) -> list[str]:
    """Return the splits to search, or the given one."""
    available = list(environment_for_path(path).splits_in(path))
    if not available:
        raise InputError(
            f"{path}: no tasks of any split there; the workflow prepares them, or give another folder"
        )
    if split is None:
        return available
    if split not in available:
        raise InputError(f"{path}: no split {split!r} there; it has: {format_names(available)}")
    return [split]


def list_tasks(path: Path | None, split: str | None = None) -> Iterator[str]:
    """Yield a line with id, type and goal of each task of a split; without a path, a line for each folder of tasks.

    Args:
        path: as in :func:`play_path`.
        split: by default the one for training.
    """
    if path is None:
        folders = [folder for folder in sorted(Path("results").glob("*/data/*")) if folder.is_dir()]
        official_games = os.environ.get("ALFWORLD_DATA")
        if official_games:
            folders.append(Path(official_games))
        yield from map(_describe_folder, folders)
        return

    spec = environment_for_path(path)
    shown_split = _find_splits(path, split)[0]
    yield f"{path}: {', '.join(spec.splits_in(path))}; this is {shown_split}"
    for task in spec.tasks_in(path, shown_split):
        yield f"{task.task_id}  {task.task_type}  {task.goal}"


def _describe_folder(folder: Path) -> str:
    try:
        spec = environment_for_path(folder)
    except InputError:
        return f"{folder}: nothing to play"
    return f"{folder}: {spec.name}, {', '.join(spec.splits_in(folder))}"


def play_task(
    episode: Episode,
    choose: Player,
    out: TextIO,
    show: StateFormatter = lambda state: str(state.observation),
) -> bool:
    """Play on until the episode is over or the player returns ``quit``; return whether it was won.

    Args:
        episode: where to begin.
        choose: the player.
        out: receives the observations.
        show: formats a state.
    """
    task = episode.task
    # Escaped: tasks of a foreign folder could carry control sequences for the terminal.
    heading = f"{task.task_id} ({task.task_type})\n{_format_goal(episode)}\n{show(episode.state)}\n"
    out.write(escape_controls(heading))
    while not episode.done:
        action = choose(episode)
        if action.strip() == QUIT_COMMAND:
            out.write("Stopped.\n")
            return False
        episode = take_action(episode, action)
        out.write(escape_controls(f"{show(episode.state)}\n"))

    outcome = "Won" if episode.won else "Not won"
    limit = "" if episode.ended else ", all that there are"
    # A purchase can have a partial score without being a success.
    score = f", score {episode.score:.2f}" if episode.ended and not episode.won else ""
    out.write(f"\n{outcome} after {episode.steps} steps{limit}{score}.\n")
    return episode.won


def _format_goal(episode: Episode) -> str:
    """Return a line with the goal, or nothing if the first observation names it."""
    goal = episode.task.goal
    if goal in episode.observation:
        return ""
    return f"Your task is to: {goal}\n"


def make_human_player(lines: Iterator[str], out: TextIO) -> Player:
    """Return a player that reads one action per line, or its number in the list; the end of input means ``quit``."""

    def choose(episode: Episode) -> str:
        admissible = episode.setup.env.admissible(episode.state)
        actions = ", ".join(f"{number} {action}" for number, action in enumerate(admissible, start=1))
        step = f"Step {episode.steps + 1} of {episode.setup.max_steps}"
        out.write(escape_controls(f"\n{step}. Admissible: {actions} ({QUIT_COMMAND} to stop)\n> "))
        out.flush()
        line = next(lines, QUIT_COMMAND).rstrip("\n")
        # ``len < 6`` keeps pasted digits from becoming a huge number.
        number = int(line) if line.isdecimal() and len(line) < 6 else 0
        if line in admissible or not 1 <= number <= len(admissible):
            return line
        action = admissible[number - 1]
        # An action with free text, such as a search, has to be typed.
        return line if FREE_TEXT in action else action

    return choose


def make_policy_player(folder: Path, env: str, data: Path, out: TextIO) -> tuple[EpisodeSetup, Player]:
    """Return the setup of a trained run's study, and a player that takes the actions of the run's policy.

    Args:
        folder: the run's folder.
        env: the environment that is played, which must be the run's.
        data: folder with the environment's tasks.
        out: receives the policy's responses.

    Raises:
        InputError: if ``folder`` is not the folder of a run of a study, it has no weights, or is of another environment.
    """
    from threespo.paths import parse_run_folder
    from threespo.pipeline.integrity import check_result_file
    from threespo.policy.model import load_policy
    from threespo.policy.settings import TemplateSettings
    from threespo.runs.setup import make_sampler
    from threespo.study.matrix import find_run

    try:
        paths, run_id = parse_run_folder(folder)
    except ValueError:
        paths = None
        run_id = ""
    if paths is None or not paths.run(run_id).weights.is_dir():
        raise InputError(
            f"{folder}: no trained run there; expected RESULTS/runs/ENV/POLICY/METHOD/seed-N with weights/ in it"
        )

    study = load_study(paths.study)
    run = find_run(study, run_id)
    if run.env != env:
        raise InputError(
            f"{folder}: a run on {run.env}, and the task is one of {env}; give a run on that"
        )

    # Damaged weights would play badly without any error.
    check_result_file(paths.run(run).weights)
    # On this machine's CPU, whatever the run was trained with.
    settings = study.policies[run.policy].sampling(gpus=0).model_copy(update={"sampler": "torch"})
    template = TemplateSettings.part_of(settings)
    sampler = make_sampler(
        settings, load_policy(paths.run(run).weights, settings.dtype, template=template)
    )
    setup = make_setup(env, environment(env).episode.part_of(study.environments[env]), data)
    return setup, make_sampling_player(sampler, study.evaluation.temperature, out)


def make_sampling_player(sampler: Sampler, temperature: float, out: TextIO, seed: int = 0) -> Player:
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
        out.write(escape_controls(f"\n{response}\n> {action}\n"))
        return action

    return choose
