"""Embedded household games: a generator of small to full-sized ALFWorld-style games that needs no download.

Game i of a split depends on (seed, split, difficulty, i) and nothing else. train, calibration and valid_seen share
their layouts but never a game; the layouts of valid_unseen, of development and of confirmation are their own. Every game
comes with a walkthrough that wins.
"""

import itertools
from collections.abc import Iterator

from threespo import rng
from threespo.envs.alfworld.embedded_layouts import Receptacle
from threespo.envs.alfworld.embedded_problem import fill_grammar, format_problem, read_domain
from threespo.envs.alfworld.embedded_scene import LAMP, LOOK, Item, Scene, draw_scene, draw_task
from threespo.envs.alfworld.embedded_tables import OWN_LAYOUTS, Difficulty, check_split, get_difficulty
from threespo.envs.alfworld.game import GameRecord

# Splits with the same layouts take the games whose fingerprint, modulo 4, is among these remainders.
_REMAINDERS = {"train": (0, 1), "calibration": (2,), "valid_seen": (3,)}
_MODULUS = 4


def draw_solved_scene(
    split: str, seed: int, difficulty: Difficulty, index: int
) -> tuple[Scene, tuple[str, ...]]:
    """Return the scene of a game, and its walkthrough.

    It is the first scene in the game's own stream of draws that belongs to the split and is short enough.
    """
    generator = rng.generator("embedded game", seed, split, difficulty.name, index)
    # Drawn once: rejecting games that are too long must not shift the proportions of task types.
    task = draw_task(generator)
    while True:
        scene = draw_scene(generator, task, split, difficulty)
        walkthrough = plan_walkthrough(scene)
        if len(walkthrough) > difficulty.longest:
            continue
        if split in OWN_LAYOUTS or scene.fingerprint() % _MODULUS in _REMAINDERS[split]:
            return scene, walkthrough


def generate_game(split: str, seed: int, difficulty: str | Difficulty, index: int) -> GameRecord:
    """Return one game of the stream that :func:`generate_games` and :func:`generate_stream` read.

    Args:
        split: one of ``embedded_tables.SPLITS``.
        seed: of the stream, any whole number.
        difficulty: small, medium, full, or a ``Difficulty`` of your own.
        index: number of the game in the stream, from 0.

    Raises:
        InputError: for an unknown split or difficulty.
    """
    check_split(split)
    if isinstance(difficulty, str):
        difficulty = get_difficulty(difficulty)
    scene, walkthrough = draw_solved_scene(split, seed, difficulty, index)
    goal = scene.goal
    trial = _make_trial_name(seed, split, difficulty.name, index)
    task = f"{goal.task.name}-{goal.object_type}-None-{goal.place_type}-{scene.layout.floor}"
    return GameRecord(
        game_id=f"{task}/{trial}",
        split=split,
        task_type=goal.task.name,
        goal=goal.sentence,
        domain=read_domain(),
        grammar=fill_grammar(goal.sentence),
        problem=format_problem(scene, f"plan_{trial}"),
        walkthrough=walkthrough,
    )


def generate_games(split: str, count: int, seed: int, difficulty: str | Difficulty) -> list[GameRecord]:
    """Return the first ``count`` games of a split; arguments and errors are those of :func:`generate_game`."""
    return [generate_game(split, seed, difficulty, index) for index in range(count)]


def generate_stream(split: str, seed: int, difficulty: str | Difficulty) -> Iterator[GameRecord]:
    """Yield the games of a split without end, the same games as :func:`generate_games`."""
    return (generate_game(split, seed, difficulty, index) for index in itertools.count())


def _make_trial_name(seed: int, split: str, difficulty: str, index: int) -> str:
    """Return a trial name in the official form (a time stamp's 20 digits), unique up to 64-bit collisions."""
    digits = f"{rng.derive('embedded trial', seed, split, difficulty, index):020d}"
    return f"trial_T{digits[:8]}_{digits[8:14]}_{digits[14:]}"


def plan_walkthrough(scene: Scene) -> tuple[str, ...]:
    """Return commands that win: take an object, treat it, bring it to the goal receptacle; then the next object.

    Visible objects are preferred to objects behind doors, and the goal receptacle with the fewest commands is used.
    """
    goal = scene.goal
    candidates = [item for item in scene.items if item.type == goal.object_type]
    if goal.task.name == LOOK:
        lamp = next(item for item in scene.items if item.type == LAMP)
        return min((_plan_to_look(item, lamp) for item in candidates), key=len)

    candidates.sort(key=lambda item: item.receptacle.openable)
    items = candidates[: goal.objects]
    receptacles = scene.layout.receptacles
    tools = [receptacle for receptacle in receptacles if receptacle.type == goal.task.tool][:1]
    targets = [receptacle for receptacle in receptacles if receptacle.type == goal.place_type]
    return min((_plan_to_bring(scene, items, tools, target) for target in targets), key=len)


class _Plan:
    """Commands so far, the agent's location and the opened receptacles."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self._location = -1
        self._opened: set[str] = set()

    def go_to(self, receptacle: Receptacle) -> None:
        if receptacle.location != self._location:
            self.commands.append(f"go to {receptacle.name}")
            self._location = receptacle.location

    def open_at(self, receptacle: Receptacle) -> None:
        self.go_to(receptacle)
        if receptacle.openable and receptacle.name not in self._opened:
            self.commands.append(f"open {receptacle.name}")
            self._opened.add(receptacle.name)

    def take(self, item: Item) -> None:
        self.open_at(item.receptacle)
        self.commands.append(f"take {item.name} from {item.receptacle.name}")


def _plan_to_look(item: Item, lamp: Item) -> tuple[str, ...]:
    plan = _Plan()
    plan.take(item)
    plan.go_to(lamp.receptacle)
    plan.commands.append(f"use {lamp.name}")
    return tuple(plan.commands)


def _plan_to_bring(
    scene: Scene, items: list[Item], tools: list[Receptacle], target: Receptacle
) -> tuple[str, ...]:
    plan = _Plan()
    for item in items:
        plan.take(item)
        for tool in tools:
            plan.go_to(tool)
            plan.commands.append(f"{scene.goal.task.verb} {item.name} with {tool.name}")
        plan.open_at(target)
        plan.commands.append(f"move {item.name} to {target.name}")
    return tuple(plan.commands)
