"""The original's experts as texts: what ``AlfredTWEnv`` calls ``extra.expert_plan``.

A plan is a function of the game and the commands so far, so that forked and restored episodes have the plan of an episode
that was played to the same point. ``handcoded`` and ``planner`` need the extra ``oracle``.
"""

import copy
import json
import random
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from threespo.envs.alfworld.engine import Alfworld, GameState
from threespo.envs.alfworld.model import Game
from threespo.envs.alfworld.relations import iterate_bits
from threespo.envs.alfworld.textworld import make_stock_engine, to_stock_format
from threespo.errors import InputError
from threespo.rng import derive

EXPERTS = ("handcoded", "planner", "walkthrough")
# Points of episodes that the handcoded expert remembers; from others it replays.
_MAX_POINTS = 1024
# Stock engines of the planner, each at a point of an episode; one takes about 5 MB.
_MAX_ENGINES = 16
# Commands after which the handcoded expert gives up: the original's ``AlfredExpert`` has this limit.
_MAX_COMMANDS = 200
# The predicate that the handcoded expert expects in the goal of a task type.
_REQUIRED_PREDICATES = {
    "pick_heat_then_place_in_recep": "ishot",
    "pick_cool_then_place_in_recep": "iscool",
    "pick_clean_then_place_in_recep": "isclean",
}

# Environments of several threads share experts, and Python's global generator.
_LOCK = threading.RLock()
# Id of a game, and the commands given in it.
_EpisodeKey = tuple[str, tuple[str, ...]]


class Expert(Protocol):
    """Plans the commands that complete a game."""

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        """Return the commands from here on, the next one first; empty if the expert has none.

        ``commands`` are all that were given since the reset, admissible or not.

        Raises:
            InputError: if the expert cannot play this game; names the game.
        """


def make_expert(name: str | None) -> Expert | None:
    """Return one of ``EXPERTS``.

    Raises:
        InputError: if there is no such expert, or what it needs is not installed.
    """
    if name is None:
        return None
    if name == "handcoded":
        return HandcodedExpert()
    if name == "planner":
        return PlannerExpert()
    if name == "walkthrough":
        return WalkthroughExpert()
    raise InputError(f"expert: expected one of {', '.join(EXPERTS)} or None, found {name!r}")


class WalkthroughExpert:
    """The rest of the game file's walkthrough, as long as the episode follows it."""

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        if not game.walkthrough:
            raise InputError(f"{game.record.label}: no walkthrough in its file; use expert='planner'")
        given = [command.strip() for command in commands]
        walkthrough = list(game.walkthrough)
        if given != walkthrough[: len(given)]:
            return []
        return walkthrough[len(given) :]


class _StockFact(NamedTuple):
    """A fact in the form that the original's agent reads."""

    name: str
    names: tuple[str, ...]


class _HandcodedPoint(NamedTuple):
    """The handcoded expert at a point of an episode."""

    agent: Any  # ``None`` once it has given up.
    generator_state: Any  # State of the generator that the agent draws from.
    state: GameState
    plan: tuple[str, ...]


class HandcodedExpert:
    """ALFWorld's rule-based agent (``HandCodedTWAgent``) on our engine.

    The plan is one command: ``look`` at the reset, and wherever the agent's choice is not admissible. Where the original
    stops with an error (after 200 commands, or where its rules fail), the agent gives up: no plan until the next reset.
    Some choices are draws from Python's global generator; here they come from a stream per game, and the global generator
    keeps its state. Facts, which the original lists in the order of string hashes, are in alphabetical order.
    """

    def __init__(self) -> None:
        try:
            from alfworld.agents.expert import HandCodedTWAgent
        except ImportError as error:
            raise InputError(
                f"expert: the original's agent cannot be imported ({error}). Install it with pip install threespo[oracle], "
                "or use expert='walkthrough'"
            ) from error
        self._agent_class = HandCodedTWAgent
        self._engine = Alfworld()
        self._points: OrderedDict[_EpisodeKey, _HandcodedPoint] = OrderedDict()

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        given = tuple(commands)
        with _LOCK:
            # Start from the longest part of the episode that is remembered.
            length = len(given)
            point = self._find_point(game, given)
            while point is None and length > 0:
                length -= 1
                point = self._find_point(game, given[:length])
            if point is None:
                point = self._begin(game)
                self._remember(game, (), point)

            for position in range(length, len(given)):
                point = self._advance(point, given[position])
                self._remember(game, given[: position + 1], point)
        return list(point.plan)

    def _find_point(self, game: Game, commands: tuple[str, ...]) -> _HandcodedPoint | None:
        key = (game.task_id, commands)
        point = self._points.get(key)
        # Games of one id can differ between folders.
        if point is None or point.state.game != game:
            return None
        self._points.move_to_end(key)
        return point

    def _remember(self, game: Game, commands: tuple[str, ...], point: _HandcodedPoint) -> None:
        self._points[game.task_id, commands] = point
        if len(self._points) > _MAX_POINTS:
            self._points.popitem(last=False)

    def _begin(self, game: Game) -> _HandcodedPoint:
        record = game.record
        if record.wording == "put":
            raise InputError(
                f"{record.label}: its commands are worded 'put X in/on Y', and the installed agent says 'move X to Y'; use "
                "expert='planner'"
            )
        predicate = _REQUIRED_PREDICATES.get(record.task_type)
        if predicate is not None and predicate not in game.goal_predicates:
            raise InputError(
                f"{record.label}: its goal does not ask for {predicate!r} as its type does; use expert='planner'"
            )

        agent = self._agent_class(max_steps=_MAX_COMMANDS)
        description = {"task_type": record.task_type, "pddl_params": record.targets._asdict()}
        with tempfile.TemporaryDirectory() as folder:
            # The agent reads its task from the file next to the game file that it is given.
            (Path(folder) / "traj_data.json").write_text(json.dumps(description), encoding="utf-8")
            agent.reset(str(Path(folder) / "game.tw-pddl"))
        state = self._engine.initial(game)
        agent.observe(state.observation)
        generator = random.Random(derive_handcoded_seed(game.task_id))
        return _HandcodedPoint(agent, generator.getstate(), state, ("look",))

    def _advance(self, point: _HandcodedPoint, command: str) -> _HandcodedPoint:
        """Return the point after a command."""
        state = self._engine.step(point.state, command).state
        if point.agent is None:
            return point._replace(state=state)
        agent = copy.deepcopy(point.agent)
        # To the original an empty command is none, and it does the same as after a reset.
        if not command:
            agent.observe(state.observation)
            return _HandcodedPoint(agent, point.generator_state, state, ("look",))

        admissible = self._engine.admissible(state)
        game_state = {
            "feedback": state.observation,
            "admissible_commands": list(admissible),
            "facts": _list_facts(state),
        }
        global_state = random.getstate()
        random.setstate(point.generator_state)
        try:
            choice = agent.act(game_state, 0, self._engine.won(state), command)
        except (NameError, LookupError):
            # Its own two errors are NameErrors; the other is a place or object that its rules expect and that is not there.
            return _HandcodedPoint(None, None, state, ())
        finally:
            generator_state = random.getstate()
            random.setstate(global_state)
        # Most choices draw nothing; a generator's state takes 20 kB, so equal ones are stored once.
        if generator_state == point.generator_state:
            generator_state = point.generator_state
        plan = choice if choice in admissible else "look"
        return _HandcodedPoint(agent, generator_state, state, (plan,))


def derive_handcoded_seed(task_id: str) -> int:
    """Return the seed of the handcoded expert's draws in a game."""
    return derive("handcoded expert", task_id)


def _list_facts(state: GameState) -> list[_StockFact]:
    """Return the facts that the agent reads: where objects are, what it holds, and what was done to objects."""
    game = state.game
    world = state.world

    facts = []
    for receptacle, contents in zip(game.receptacle_entities, world.contents, strict=True):
        for item in iterate_bits(contents):
            names = (game.object_entities[item].name, receptacle.name)
            facts.append(_StockFact("inreceptacle", names))
    if world.held_object >= 0:
        held = game.object_entities[world.held_object]
        facts.append(_StockFact("holds", (game.agent.name, held.name)))
    for predicate, index in game.property_index.items():
        for item in iterate_bits(world.properties[index]):
            facts.append(_StockFact(predicate, (game.object_entities[item].name,)))
    return sorted(facts)


class _PlannerPoint(NamedTuple):
    """A stock engine at a point of an episode."""

    game: Game
    engine: Any
    plan: tuple[str, ...]


class PlannerExpert:
    """TextWorld's planner (Fast Downward) from the present state: all commands that remain; empty if it finds no plan.

    The stock engine cannot be forked: the next step of an episode uses the engine that is at its last point, and a forked or
    restored episode is replayed in another engine (about a second, and a tenth for each command).
    """

    def __init__(self) -> None:
        self._points: OrderedDict[_EpisodeKey, _PlannerPoint] = OrderedDict()
        # Loaded at once, so that a missing package is reported here.
        self._unused: list[Any] = [_new_engine()]

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        given = tuple(commands)
        with _LOCK:
            length = self._longest_known_prefix(game, given)
            if length == len(given):
                self._points.move_to_end((game.task_id, given))
                return list(self._points[game.task_id, given].plan)

            if length is None:
                engine = self._load_engine(game)
                plan = _play(engine, given, must_reset=True)
            else:
                # Taken out first: it leaves this point, and after an error its state is unknown.
                engine = self._points.pop((game.task_id, given[:length])).engine
                plan = _play(engine, given[length:], must_reset=False)
            self._points[game.task_id, given] = _PlannerPoint(game, engine, plan)
        return list(plan)

    def _longest_known_prefix(self, game: Game, commands: tuple[str, ...]) -> int | None:
        """Return how many of the commands an engine has played; ``None`` if none has begun the game."""
        for length in range(len(commands), -1, -1):
            point = self._points.get((game.task_id, commands[:length]))
            if point is not None and point.game == game:
                return length
        return None

    def _load_engine(self, game: Game) -> Any:
        """Return an engine that has the game loaded and must be reset."""
        if self._unused:
            engine = self._unused.pop()
        elif len(self._points) < _MAX_ENGINES:
            engine = _new_engine()
        else:
            _, oldest = self._points.popitem(last=False)
            engine = oldest.engine
            if oldest.game == game:
                return engine
        engine.load(to_stock_format(game))
        return engine


def _play(engine: Any, commands: Sequence[str], must_reset: bool) -> tuple[str, ...]:
    """Return the plan after the commands."""
    # Planning takes time, so the plan is requested at the last point only.
    engine.request_infos.policy_commands = not commands
    response: Any = engine.reset() if must_reset else None
    for number, command in enumerate(commands, start=1):
        engine.request_infos.policy_commands = number == len(commands)
        response = engine.step(command)[0]
    return tuple(response["policy_commands"])


def _new_engine() -> Any:
    return make_stock_engine("expert='walkthrough'")
