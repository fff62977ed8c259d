"""verl-agent's two environments, with the call signatures of its builders and what its environment managers read; no Ray.

In ``agent_system/environments/env_manager.py`` the two imports of ``build_alfworld_envs`` and ``build_webshop_envs`` become
imports from here; nothing else changes (docs/frameworks/). Read of verl-agent and of the paper's release, which share these
parts.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from threespo.adapters.projections import alfworld_projection, webshop_projection
from threespo.adapters.verl_envs import PANEL, RELEASED, AlfworldEnvs, WebshopEnvs
from threespo.envs.alfworld import Alfworld, Game, compile_game, sources
from threespo.envs.episode import EpisodeSetup
from threespo.envs.webshop import Catalogue, WebShop
from threespo.envs.webshop.goals import make_original_goals
from threespo.errors import InputError
from threespo.gym.numbers import check_seed, check_whole_number
from threespo.gym.tasks import (
    ALFWORLD,
    WEBSHOP,
    Tasks,
    open_alfworld_tasks,
    open_webshop_tasks,
    prepare_shop_folder,
)
from threespo.panels.comparison import compare_folder
from threespo.panels.panel import HELD_OUT, content_hash

__all__ = ["alfworld_projection", "build_alfworld_envs", "build_webshop_envs", "webshop_projection"]

_SPLITS = {"eval_in_distribution": "valid_seen", "eval_out_of_distribution": "valid_unseen"}
_TEST_GOALS = 500
"""The first positions of a worker's order are WebShop's test goals in the release."""
_MAX_SHOP_STEPS = 1000
"""verl-agent's managers count steps themselves; WebShop's environment has no limit of its own."""


def _read_order(env_kwargs: Mapping[str, Any]) -> str:
    order = env_kwargs.get("tasks", RELEASED)
    if order not in (RELEASED, PANEL):
        raise InputError(
            f"verl-agent: env_kwargs['tasks']: expected {RELEASED!r} or {PANEL!r}, found {order!r}"
        )
    return str(order)


def build_alfworld_envs(
    alf_config_path: str | None,
    seed: int,
    env_num: int,
    group_n: int,
    resources_per_worker: Mapping[str, Any] | None = None,
    is_train: bool = True,
    env_kwargs: Mapping[str, Any] | None = None,
) -> AlfworldEnvs:
    """Return ALFWorld as verl-agent's builder of this name does.

    Args:
        alf_config_path: not read; the games are those of ``env_kwargs['path']``.
        seed: seed of the workers' orders.
        env_num: number of games at a time.
        group_n: number of episodes of each game.
        resources_per_worker: not used; there are no workers.
        is_train: training games, or those of ``env_kwargs['eval_dataset']`` (``eval_in_distribution``,
            ``eval_out_of_distribution``).
        env_kwargs: besides, ``path``: folder of games (none: generated ones); ``max_steps``; ``tasks``: ``released``
            (each worker shuffles all games by its seed, so some repeat and some are missed) or ``panel`` (each game once,
            in the panel's order).

    Raises:
        InputError: if there are no such games.
    """
    given = dict(env_kwargs or {})
    dataset = given.get("eval_dataset", "eval_in_distribution")
    if dataset not in _SPLITS:
        raise InputError(
            f"verl-agent: env_kwargs['eval_dataset']: expected one of {', '.join(_SPLITS)}, found {dataset!r}"
        )
    split = "train" if is_train else _SPLITS[dataset]
    order = _read_order(given)
    path = given.get("path")
    steps = check_whole_number(given.get("max_steps", 50), "verl-agent: env_kwargs['max_steps']", 1)
    if order == RELEASED and path is not None:
        # The release has no calibration games: it trains on all.
        records = []
        for name in _release_splits(Path(path), split):
            records += sources.load_games(Path(path), name)
        records.sort(key=lambda record: record.game_id)
        contents = {record.game_id: content_hash(record) for record in records}
        compared = compare_folder(ALFWORLD, str(path), HELD_OUT if is_train else [split], contents)
        # No history in prompts (0): the managers write their own prompts.
        setup = EpisodeSetup(Alfworld(), steps, 0)
        ids = [record.game_id for record in records]

        def load_game(index: int) -> Game:
            return compile_game(records[index])

        games = Tasks(ALFWORLD, split, setup, ids, load_game, comparison=compared)
    else:
        games = open_alfworld_tasks(split, path and str(path), steps)
    return AlfworldEnvs(games, seed, env_num, group_n, order)


def _release_splits(folder: Path, split: str) -> list[str]:
    """Return the splits of a folder that together are one split of the release."""
    if split == "train" and "calibration" in sources.find_splits(folder):
        return ["train", "calibration"]
    return [split]


def build_webshop_envs(
    seed: int,
    env_num: int,
    group_n: int,
    resources_per_worker: Mapping[str, Any] | None = None,
    is_train: bool = True,
    env_kwargs: Mapping[str, Any] | None = None,
) -> WebshopEnvs:
    """Return WebShop as verl-agent's builder of this name does.

    Args:
        seed: of the first worker; each task of a batch has a worker with an order, bounds and prices of its own.
        env_num: goals at a time.
        group_n: episodes of each goal; 1 unless ``is_train``.
        resources_per_worker: not used; there are no workers.
        is_train: goals for training, or for testing.
        env_kwargs: ``file_path``: one of the original's JSON files, whose folder is read, or that folder, or one of
            ``threespo data`` (none: a generated shop); ``human_goals``; ``observation_mode``: ``text``; ``tasks``:
            ``released`` (positions in each worker's order; nearly all test goals are training goals as well, which a
            warning says) or ``panel`` (disjoint goals in one order, each once, in the repaired shop).

    Raises:
        InputError: if there is no such shop, or a value is out of range.
    """
    given = dict(env_kwargs or {})
    mode = given.get("observation_mode", "text")
    if mode != "text":
        raise InputError(f"verl-agent: env_kwargs['observation_mode']: expected 'text', found {mode!r}")
    if not is_train and group_n != 1:
        raise InputError(f"verl-agent: group_n: expected 1 for validation, found {group_n}")
    path = _find_folder(given.get("file_path"))
    human = bool(given.get("human_goals", False))
    order = _read_order(given)
    env_num = check_whole_number(env_num, "verl-agent: env_num", 1)
    seed = check_seed(seed, "verl-agent: seed")
    if order == PANEL:
        goals = open_webshop_tasks(
            "train" if is_train else "test", path, _MAX_SHOP_STEPS, 0, human_goals=human
        )
        return WebshopEnvs([goals] * env_num, [range(len(goals))] * env_num, seed, group_n, order)

    warnings.warn(
        "tasks='released': test goals are trained on (docs/panels.md); tasks='panel' has others",
        stacklevel=2,
    )
    catalogue = Catalogue(prepare_shop_folder(path, human) / "catalogue")
    workers = []
    positions = []
    for worker in range(seed, seed + env_num):
        # A shop for each worker: it draws prices of its own.
        shop = WebShop(catalogue, fidelity="original", price_seed=worker)
        worker_goals = make_original_goals(catalogue, worker, human)[0]
        goals_here = [replace(goal, worker=worker) for goal in worker_goals]
        names = [f"{goal.task_id}@{index}" for index, goal in enumerate(goals_here)]
        setup = EpisodeSetup(shop, _MAX_SHOP_STEPS, 0)
        workers.append(
            Tasks(WEBSHOP, "train" if is_train else "test", setup, names, goals_here.__getitem__)
        )
        positions.append(range(_TEST_GOALS, len(goals_here)) if is_train else range(_TEST_GOALS))
    if len(workers[0]) <= _TEST_GOALS:
        raise InputError(
            f"verl-agent: the shop has {len(workers[0])} goals, too few for tasks='released'; take 'panel'"
        )
    return WebshopEnvs(workers, positions, seed, group_n, order)


def _find_folder(file: str | Path | None) -> str | None:
    # verl-agent's configuration names the file of products; the others are expected next to it, as in the original.
    if file is None:
        return None
    is_file_name = Path(file).suffix in (".json", ".xz")
    return str(Path(file).parent if is_file_name else file)
