"""Tasks of one split, games or shopping goals, from a canonical panel or a folder, with the environment that plays them."""

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from threespo.envs.alfworld import Alfworld, Game, compile_game, embedded, sources
from threespo.envs.alfworld.experts import Expert, make_expert
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.settings import AlfworldEpisode
from threespo.envs.episode import Episode, EpisodeSetup, start_episode
from threespo.envs.settings import DEFAULT_HISTORY_LENGTH, EpisodeSettings
from threespo.envs.webshop import Catalogue, WebShop
from threespo.envs.webshop.catalogue import is_catalogue
from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.envs.webshop.pages import SESSION
from threespo.envs.webshop.settings import WebshopEpisode
from threespo.errors import InputError
from threespo.gym.numbers import to_python, to_whole_number
from threespo.panels.comparison import Comparison, compare_folder
from threespo.panels.panel import GENERATED_SEED, PRODUCTS, content_hash, load_panel
from threespo.rng import derive

ALFWORLD = "alfworld"
WEBSHOP = "webshop"
_MAX_CACHED_TASKS = 512
"""Compiled games in memory; one takes up to a megabyte."""


class Tasks:
    """The tasks of one split, in the order of their panel; environments of a process with equal arguments share them."""

    def __init__(
        self,
        name: str,
        split: str,
        setup: EpisodeSetup,
        ids: Sequence[str],
        load: Callable[[int], Any],
        contents: Sequence[str] | None = None,
        expert: Expert | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        """Describe the tasks; each is loaded when it is first played.

        Args:
            name: name of the environment.
            split: split of the panel or folder.
            setup: environment, step limit, history in prompts.
            ids: ids of the tasks.
            load: returns a task, given its index in ``ids``.
            contents: expected hash of each task's content, if a panel defines it.
            expert: proposes the next commands.
            comparison: comparison of a folder's tasks with the most similar panel.
        """
        self.name = name
        self.split = split
        self.setup = setup
        self.ids = tuple(ids)
        self.expert = expert
        self.comparison = comparison
        self._load = load
        self._contents = contents
        # A cache for each split and not one on the class, where large splits would push out each other's games.
        cached = functools.lru_cache(maxsize=_MAX_CACHED_TASKS)
        self._checked = cached(self._load_checked)
        self._content = cached(lambda index: content_hash(self._checked(index)))
        self._indices = {task_id: index for index, task_id in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def task(self, which: int | str) -> Any:
        """Return a task.

        Args:
            which: its index or its id.

        Raises:
            InputError: if it is missing, or its content differs from the panel's.
        """
        return self._checked(self.find_index(which))

    def content(self, which: int | str) -> str:
        """Return the hash of a task's content, given its index or its id (``threespo.panels.panel.content_hash``)."""
        return self._content(self.find_index(which))

    def _load_checked(self, index: int) -> Any:
        task = self._load(index)
        if self._contents is None:
            return task
        content = content_hash(task)
        if content != self._contents[index]:
            raise InputError(
                f"{self.name}/{self.split}: task {self.ids[index]!r} has the content {content}, the panel says "
                f"{self._contents[index]}; the data are of another version"
            )
        return task

    def find_index(self, which: int | str) -> int:
        """Return the index of a task, given its index or its id.

        Raises:
            InputError: if there is none.
        """
        # By id first: an id may consist of digits.
        if isinstance(which, str) and which in self._indices:
            return self._indices[which]
        index = to_whole_number(which)
        if index is not None and 0 <= index < len(self.ids):
            return index
        raise InputError(
            f"{self.name}/{self.split}: no task {which!r}; expected an index from 0 to "
            f"{len(self.ids) - 1}, or an id such as {self.ids[0]!r}"
        )

    def begin(self, which: int | str) -> Episode:
        """Return the start of an episode of a task, given its index or its id."""
        return start_episode(self.setup, self.task(which))


@functools.lru_cache(maxsize=32)
def open_alfworld_tasks(
    split: str = "train",
    path: str | None = None,
    max_steps: int = 50,
    history_length: int = DEFAULT_HISTORY_LENGTH,
    expert: str | None = None,
    human_goals: float = 0.0,
    goal_seed: int = 0,
) -> Tasks:
    """Return ALFWorld games.

    Args:
        split: ``train``, ``calibration``, ``valid_seen`` or ``valid_unseen``.
        path: folder of games, as ``threespo data`` or ``alfworld-download`` leaves them; ``None``: the panel of generated
            games.
        max_steps: steps per episode.
        history_length: past steps that prompts show.
        expert: ``handcoded`` and ``planner`` (the original's, which need the extra ``oracle``), or ``walkthrough`` (that of
            the game's file): gives ``info["expert_plan"]``.
        human_goals: share of the games with a goal written by people (``True``: all); where ``path`` holds annotations.
        goal_seed: chooses, with each game's id, these games and their goals.

    Raises:
        InputError: if the split, folder, expert or extra is missing, or a number is out of range.
    """
    setup = _make_setup(Alfworld(), AlfworldEpisode, max_steps=max_steps, history_length=history_length)
    expert_player = make_expert(expert)
    if path is None:
        if human_goals:
            raise InputError(
                "alfworld: human_goals needs path: generated games have no annotations by people"
            )
        generated_ids, generated_contents = _read_generated_panel("alfworld-generated", split)

        def generate_game(index: int) -> Game:
            return compile_game(embedded.generate_game(split, GENERATED_SEED, "full", index))

        return Tasks(
            ALFWORLD, split, setup, generated_ids, generate_game, generated_contents, expert_player
        )

    records = _read_games(Path(path), split, human_goals, goal_seed)
    ids = [record.game_id for record in records]
    contents = {record.game_id: content_hash(record) for record in records}
    comparison = compare_folder(ALFWORLD, path, [split], contents, quiet=human_goals > 0)

    def load_game(index: int) -> Game:
        return compile_game(records[index])

    return Tasks(ALFWORLD, split, setup, ids, load_game, None, expert_player, comparison)


def _read_games(folder: Path, split: str, human_goals: float, goal_seed: int) -> list[GameRecord]:
    """Return a folder's games in the panel's order, with the calibration games held out of the training games."""
    # Official folders have no split for calibration: those games are part of their training games.
    has_calibration = "calibration" in sources.find_splits(folder)
    source_split = split
    if split == "calibration" and not has_calibration:
        source_split = "train"
    records = sources.load_games(folder, source_split, human_goals=human_goals, goal_seed=goal_seed)
    # The calibration games are the official panel's, so that every folder of official data is cut alike.
    if not has_calibration and split in ("train", "calibration"):
        official = load_panel("alfworld-official")
        held_out = {task.task_id for task in official.splits["calibration"]}
        wanted = split == "calibration"
        records = [
            replace(record, split=split) for record in records if (record.game_id in held_out) == wanted
        ]
    if not records:
        raise InputError(
            f"{folder}: no game of {split!r}; threespo data alfworld --from {folder} --to DIR makes it"
        )
    # The keys of the panel's own order (``threespo data`` sorts by them too): stored names, not to be changed.
    order = "calibration" if split in ("train", "calibration") else "choice"
    return sorted(records, key=lambda record: derive(order, record.game_id))


@functools.lru_cache(maxsize=32)
def open_webshop_tasks(
    split: str = "train",
    path: str | None = None,
    max_steps: int = 15,
    history_length: int = DEFAULT_HISTORY_LENGTH,
    mode: str = "text",
    fidelity: str = "repaired",
    human_goals: bool = False,
    session: str = SESSION,
) -> Tasks:
    """Return shopping tasks.

    Args:
        split: ``train``, ``calibration`` or ``test``.
        path: folder of ``threespo data``, or of the original's JSON files; ``None``: the panel of a generated shop.
        max_steps: steps per episode.
        history_length: past steps that prompts show.
        mode: ``text``, ``text_rich``, or ``url``: the page's address is the observation.
        fidelity: ``repaired`` or ``original`` (docs/webshop.md).
        human_goals: goals written by people instead of synthetic ones; where ``path`` holds JSON files.
        session: session name in the addresses of mode ``url``.

    Raises:
        InputError: if the split or folder is missing, or an argument is out of range.
    """
    # A generated shop is checked against its panel task by task, a folder's by comparison with the nearest panel.
    contents = None
    if path is None:
        _, contents = _read_generated_panel("webshop-generated", split)
        if human_goals:
            raise InputError("webshop: human_goals needs path: the generated panel has synthetic goals")

    folder = prepare_shop_folder(path, human_goals)
    shop = _open_shop(folder, mode, fidelity, session)
    limits = {"max_steps": max_steps, "history_length": history_length}
    setup = _make_setup(shop, WebshopEpisode, mode=mode, fidelity=fidelity, **limits)
    if not (folder / f"{split}.jsonl.xz").is_file():
        splits = sorted(file.name.split(".")[0] for file in folder.glob("*.jsonl.xz"))
        found = ", ".join(splits) or "none"
        raise InputError(f"{path or 'webshop'}: no split {split!r} (splits found: {found})")
    goals = load_goals(folder, split, shop.catalogue)

    comparison = None
    if path is not None:
        own_contents = {goal.task_id: content_hash(goal) for goal in goals}
        comparison = compare_folder(WEBSHOP, path, [split], own_contents, quiet=human_goals)
    ids = [goal.task_id for goal in goals]
    return Tasks(WEBSHOP, split, setup, ids, goals.__getitem__, contents, comparison=comparison)


@functools.lru_cache(maxsize=16)
def _open_shop(folder: Path, mode: Any, fidelity: Any, session: str) -> WebShop:
    return WebShop(Catalogue(folder / "catalogue"), mode=mode, fidelity=fidelity, session=session)


@functools.lru_cache(maxsize=16)
def prepare_shop_folder(path: str | None, human_goals: bool = False) -> Path:
    """Return the folder of a prepared shop; one that has to be prepared is removed when the process ends.

    Args:
        path: folder of ``threespo data``, or of the original's JSON files; ``None``: a generated shop.
        human_goals: goals written by people instead of synthetic ones; where ``path`` holds JSON files.
    """
    if path is not None and is_catalogue(Path(path) / "catalogue"):
        return Path(path)
    if path:
        source = read_shop_products("path", path=Path(path))
    else:
        source = read_shop_products("embedded", count=PRODUCTS, seed=GENERATED_SEED)
    temporary = Path(tempfile.mkdtemp(prefix="threespo-shop-"))
    atexit.register(_remove_if_owner, temporary, os.getpid())
    prepare_shop(temporary / "shop", source, goals="human" if human_goals else "synthetic")
    return temporary / "shop"


def _remove_if_owner(folder: Path, owner: int) -> None:
    # A forked process, which inherits the exit handler, must not remove what its parent uses.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


TASK_OPENERS: dict[str, Callable[..., Tasks]] = {
    ALFWORLD: open_alfworld_tasks,
    WEBSHOP: open_webshop_tasks,
}
"""Functions that open tasks, by the environment's name in ``threespo.envs.registry``."""


def open_tasks(environment: str, **options: Any) -> Tasks:
    """Return the tasks of an environment.

    Args:
        environment: ``alfworld`` or ``webshop``.
        options: arguments of :func:`open_alfworld_tasks` or :func:`open_webshop_tasks`.

    Raises:
        InputError: if the environment, option, split or folder is unknown.
    """
    if environment not in TASK_OPENERS:
        raise InputError(f"no environment {environment!r}; there are: {', '.join(TASK_OPENERS)}")
    # Paths become strings, so that both forms of one folder share the cached tasks.
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else to_python(value)
        for name, value in options.items()
    }
    # Values that cannot be hashed would fail in the cache, with a message that names no argument.
    for name, value in given.items():
        if isinstance(value, list | set | dict):
            raise InputError(
                f"{environment}: {name}: expected one value, found a {type(value).__name__}"
            )
    try:
        return TASK_OPENERS[environment](**given)
    except TypeError as error:
        # Python's message for an unknown argument is clear enough but for the function's name.
        function = TASK_OPENERS[environment].__name__
        raise InputError(f"{environment}: {error}".replace(f"{function}() ", "")) from error


def _read_generated_panel(name: str, split: str) -> tuple[list[str], list[str]]:
    """Return ids and content hashes of a split of a panel of generated tasks."""
    panel = load_panel(name)
    if split not in panel.splits:
        raise InputError(f"panel {name!r}: no split {split!r}; there are: {', '.join(panel.splits)}")
    tasks = panel.splits[split]
    return [task.task_id for task in tasks], [task.content for task in tasks]


def _make_setup(env: Any, settings: type[EpisodeSettings], **values: Any) -> EpisodeSetup:
    try:
        episode = settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{env.name}: {first['loc'][0]}: {first['msg']} (found {first['input']!r})"
        ) from error
    return EpisodeSetup(env, episode.max_steps, episode.history_length)
