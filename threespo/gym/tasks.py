"""Tasks to play: the games or goals of one split, from the canonical panel or a folder, and the environment that plays
them."""

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

from threespo.envs.alfworld import Alfworld, compile_game, embedded, sources
from threespo.envs.alfworld.experts import Expert, make_expert
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.settings import AlfworldEpisode
from threespo.envs.episode import Episode, EpisodeSetup, start_episode
from threespo.envs.settings import EpisodeSettings
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

ALFWORLD, WEBSHOP = "alfworld", "webshop"
_MAX_CACHED_TASKS = 512
"""Compiled games that are kept; one takes up to a megabyte."""


class Tasks:
    """The tasks of one split, in the order of their panel. Shared by all environments of a process that were made alike."""

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
        """Make tasks available; none is loaded yet.

        Args:
            name: of the environment.
            split: of the panel or folder.
            setup: environment, step limit, history in prompts.
            ids: of the tasks.
            load: returns a task, given its place in ``ids``.
            contents: hash of each task's content, where a panel says what it must be.
            expert: says what to do next, if there is one.
            comparison: of the tasks with the panel that is nearest to them, where they are a folder's and there is one.
        """
        self.name, self.split, self.setup, self.ids = name, split, setup, tuple(ids)
        self.expert, self.comparison = expert, comparison
        self._load, self._contents = load, contents
        self._checked = functools.lru_cache(maxsize=_MAX_CACHED_TASKS)(self._load_checked)
        self._content = functools.lru_cache(maxsize=_MAX_CACHED_TASKS)(
            lambda place: content_hash(self._checked(place))
        )
        self._places = {task_id: place for place, task_id in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def task(self, which: int | str) -> Any:
        """Return a task.

        Args:
            which: its place or its id.

        Raises:
            InputError: if there is none, or it is not what the panel says.
        """
        return self._checked(self.find_index(which))

    def content(self, which: int | str) -> str:
        """Return the hash of a task's content, given its place or its id (``threespo.panels.panel.content_hash``)."""
        return self._content(self.find_index(which))

    def _load_checked(self, place: int) -> Any:
        task = self._load(place)
        if self._contents is not None and (found := content_hash(task)) != self._contents[place]:
            raise InputError(
                f"{self.name}/{self.split}: task {self.ids[place]!r} has the content {found}, the panel says "
                f"{self._contents[place]}; the data are of another version"
            )
        return task

    def find_index(self, which: int | str) -> int:
        """Return the place of a task, given its place or its id.

        Raises:
            InputError: if there is none.
        """
        if isinstance(which, str) and which in self._places:
            return self._places[which]
        place = to_whole_number(which)
        if place is not None and 0 <= place < len(self.ids):
            return place
        raise InputError(
            f"{self.name}/{self.split}: no task {which!r}; expected a place from 0 to {len(self.ids) - 1}, or an id such as "
            f"{self.ids[0]!r}"
        )

    def begin(self, which: int | str) -> Episode:
        """Return the start of an episode of a task, given its place or its id."""
        return start_episode(self.setup, self.task(which))


@functools.lru_cache(maxsize=32)
def open_alfworld_tasks(
    split: str = "train",
    path: str | None = None,
    max_steps: int = 50,
    history_length: int = 2,
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
            the game's file): what ``info["expert_plan"]`` says.
        human_goals: share of the games whose goal is in people's words (``True``: all); where ``path`` holds annotations.
        goal_seed: decides, with each game's id, which games and which words.

    Raises:
        InputError: if there is no such split, folder or expert, a number is out of range, or the extra is missing.
    """
    setup = _make_setup(Alfworld(), AlfworldEpisode, max_steps=max_steps, history_length=history_length)
    adviser = make_expert(expert)
    if path is None:
        if human_goals:
            raise InputError(
                "alfworld: human_goals needs path: generated games have no annotations by people"
            )
        listed = _read_generated_panel("alfworld-generated", split)
        make = functools.partial(embedded.generate_game, split, GENERATED_SEED, "full")
        return Tasks(
            ALFWORLD,
            split,
            setup,
            listed[0],
            lambda place: compile_game(make(place)),
            listed[1],
            adviser,
        )

    records = _read_games(Path(path), split, human_goals, goal_seed)
    ids = [record.game_id for record in records]
    contents = {record.game_id: content_hash(record) for record in records}
    compared = compare_folder(ALFWORLD, path, [split], contents, quiet=human_goals > 0)
    return Tasks(
        ALFWORLD, split, setup, ids, lambda place: compile_game(records[place]), None, adviser, compared
    )


def _read_games(folder: Path, split: str, human_goals: float, goal_seed: int) -> list[GameRecord]:
    """Return a folder's games in the panel's order, those for calibration held out of the training games."""
    held_out = {task.task_id for task in load_panel("alfworld-official").splits["calibration"]}
    own = "calibration" in sources.find_splits(folder)
    read = "train" if split == "calibration" and not own else split
    records = sources.load_games(folder, read, human_goals=human_goals, goal_seed=goal_seed)
    if not own and split in ("train", "calibration"):
        records = [
            replace(r, split=split)
            for r in records
            if (r.game_id in held_out) == (split == "calibration")
        ]
    if not records:
        raise InputError(
            f"{folder}: no game of {split!r}; threespo data alfworld --from {folder} --to DIR makes it"
        )
    order = "calibration" if split in ("train", "calibration") else "choice"
    return sorted(records, key=lambda record: derive(order, record.game_id))


@functools.lru_cache(maxsize=32)
def open_webshop_tasks(
    split: str = "train",
    path: str | None = None,
    max_steps: int = 15,
    history_length: int = 2,
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
        human_goals: what people asked for, in the place of synthetic goals; where ``path`` holds JSON files.
        session: its name in the addresses of mode ``url``.

    Raises:
        InputError: if there is no such split or folder, or an argument is out of range.
    """
    limits = {"max_steps": max_steps, "history_length": history_length}
    listed = _read_generated_panel("webshop-generated", split) if path is None else None
    if path is None and human_goals:
        raise InputError("webshop: human_goals needs path: the generated panel has synthetic goals")
    folder = prepare_shop_folder(path, human_goals)
    shop = _open_shop(folder, mode, fidelity, session)
    setup = _make_setup(shop, WebshopEpisode, mode=mode, fidelity=fidelity, **limits)
    if not (folder / f"{split}.jsonl.xz").is_file():
        there = (
            ", ".join(sorted(file.name.split(".")[0] for file in folder.glob("*.jsonl.xz"))) or "none"
        )
        raise InputError(f"{path or 'webshop'}: no split {split!r} (splits found: {there})")
    goals = load_goals(folder, split, shop.catalogue)
    compared = None
    if path is not None:
        contents = {goal.task_id: content_hash(goal) for goal in goals}
        compared = compare_folder(WEBSHOP, path, [split], contents, quiet=human_goals)
    ids = [goal.task_id for goal in goals]
    return Tasks(
        WEBSHOP, split, setup, ids, goals.__getitem__, listed and listed[1], comparison=compared
    )


@functools.lru_cache(maxsize=16)
def _open_shop(folder: Path, mode: Any, fidelity: Any, session: str) -> WebShop:
    return WebShop(Catalogue(folder / "catalogue"), mode=mode, fidelity=fidelity, session=session)


@functools.lru_cache(maxsize=16)
def prepare_shop_folder(path: str | None, human_goals: bool = False) -> Path:
    """Return the folder of a prepared shop; where nothing is prepared, one that is removed when the process ends.

    Args:
        path: folder of ``threespo data``, or of the original's JSON files; ``None``: a generated shop.
        human_goals: what people asked for, in the place of synthetic goals; where ``path`` holds JSON files.
    """
    if path is not None and is_catalogue(Path(path) / "catalogue"):
        return Path(path)
    source = (
        read_shop_products("path", path=Path(path))
        if path
        else read_shop_products("embedded", count=PRODUCTS, seed=GENERATED_SEED)
    )
    temporary = Path(tempfile.mkdtemp(prefix="threespo-shop-"))
    # A forked process must not remove what its parent uses.
    atexit.register(_remove_if_owner, temporary, os.getpid())
    prepare_shop(temporary / "shop", source, goals="human" if human_goals else "synthetic")
    return temporary / "shop"


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


TASK_OPENERS: dict[str, Callable[..., Tasks]] = {
    ALFWORLD: open_alfworld_tasks,
    WEBSHOP: open_webshop_tasks,
}
"""By the environment's name in ``threespo.envs.registry``."""


def open_tasks(environment: str, **options: Any) -> Tasks:
    """Return the tasks of an environment.

    Args:
        environment: ``alfworld`` or ``webshop``.
        options: arguments of :func:`alfworld_tasks` or :func:`webshop_tasks`.

    Raises:
        InputError: if there is no such environment, option, split or folder.
    """
    if environment not in TASK_OPENERS:
        raise InputError(f"no environment {environment!r}; there are: {', '.join(TASK_OPENERS)}")
    # A folder may come as a path; one that is given twice in two ways is opened twice, and no harm is done.
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else to_python(value)
        for name, value in options.items()
    }
    for name, value in given.items():
        if isinstance(value, list | set | dict):
            raise InputError(
                f"{environment}: {name}: expected one value, found a {type(value).__name__}"
            )
    try:
        return TASK_OPENERS[environment](**given)
    except TypeError as error:
        raise InputError(
            f"{environment}: {error}".replace(f"{TASK_OPENERS[environment].__name__}() ", "")
        ) from error


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
