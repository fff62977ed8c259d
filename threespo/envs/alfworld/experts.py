"""The original's experts as texts: what ``AlfredTWEnv`` calls ``extra.expert_plan``.

A plan is a function of the game and the commands so far, so that a fork and an episode that is gone back to have the plan
of one that was played there. ``handcoded`` and ``planner`` need the extra ``oracle``.
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
from threespo.envs.alfworld.model import Entity, Game
from threespo.envs.alfworld.relations import bits
from threespo.envs.alfworld.textworld import game_data, stock_engine
from threespo.errors import InputError
from threespo.rng import derive

EXPERTS = ("handcoded", "planner", "walkthrough")
_POINTS = 1024
"""Points that the handcoded expert remembers; from others it goes on after a replay."""
_ENGINES = 16
"""Stock engines that the planner holds, each at a point of an episode; one takes about 5 MB."""
_MOST_ACTS = 200
"""After how many commands the handcoded expert gives up, as ``AlfredExpert`` makes it."""
_MARKS = {
    "pick_heat_then_place_in_recep": "ishot",
    "pick_cool_then_place_in_recep": "iscool",
    "pick_clean_then_place_in_recep": "isclean",
}
"""What the handcoded expert asks of the object in its hand."""

_LOCK = threading.RLock()
"""Environments of several threads share experts, and Python's global generator."""
_Key = tuple[str, tuple[str, ...]]
"""Id of a game, and the commands given in it."""


class Expert(Protocol):
    """Says what to do next."""

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        """Return commands to go on with, the next one first; empty where the expert has none.

        Args:
            game: what is played.
            commands: all that were given since the reset, admissible or not.

        Raises:
            InputError: if the expert cannot play this game; names the game.
        """


def make_expert(name: str | None) -> Expert | None:
    """Return an expert.

    Args:
        name: one of ``EXPERTS``, or ``None``.

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
    """What is left of the game file's walkthrough, as long as the episode follows it."""

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        """See :class:`Expert`."""
        if not game.walkthrough:
            raise InputError(f"{game.record.where}: no walkthrough in its file; use expert='planner'")
        followed = [command.strip() for command in commands]
        return (
            list(game.walkthrough[len(followed) :])
            if followed == list(game.walkthrough[: len(followed)])
            else []
        )


class _Fact(NamedTuple):
    """A fact in the form that the original's agent reads."""

    name: str
    names: tuple[str, ...]


class _Point(NamedTuple):
    """Where the handcoded expert is in an episode."""

    agent: Any
    """``None`` once it has given up."""
    draws: Any
    """State of the generator that the agent draws from."""
    state: GameState
    plan: tuple[str, ...]


class HandcodedExpert:
    """ALFWorld's rule-based agent (``HandCodedTWAgent``) over our engine.

    The plan is one command: ``look`` at the reset, and wherever the agent's choice is not admissible. Where the original
    stops with an error (after 200 commands, or where its rules fail), the agent gives up: no plan until the next reset.
    Some choices are draws from Python's global generator; here from a stream of each game's own, and the global one is left
    as it was. Facts, which the original lists in the order of string hashes, are in alphabetical order.
    """

    def __init__(self) -> None:
        """Import the original's agent.

        Raises:
            InputError: if it is not installed.
        """
        try:
            from alfworld.agents.expert import HandCodedTWAgent
        except ImportError as error:
            raise InputError(
                f"expert: the original's agent cannot be imported ({error}). Install it with pip install threespo[oracle], "
                "or use expert='walkthrough'"
            ) from error
        self._agent_class = HandCodedTWAgent
        self._engine = Alfworld()
        self._points: OrderedDict[_Key, _Point] = OrderedDict()

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        """See :class:`Expert`."""
        given = tuple(commands)
        with _LOCK:
            known = next(
                (n for n in range(len(given), -1, -1) if self._at(game, given[:n]) is not None), -1
            )
            point = self._at(game, given[:known]) if known >= 0 else None
            for number in range(known + 1, len(given) + 1):
                point = self._begin(game) if point is None else self._go_on(point, given[number - 1])
                self._points[game.task_id, given[:number]] = point
                if len(self._points) > _POINTS:
                    self._points.popitem(last=False)
        assert point is not None
        return list(point.plan)

    def _at(self, game: Game, commands: tuple[str, ...]) -> _Point | None:
        key = (game.task_id, commands)
        found = self._points.get(key)
        # Games of one name can differ between folders.
        if found is None or found.state.game != game:
            return None
        self._points.move_to_end(key)
        return found

    def _begin(self, game: Game) -> _Point:
        record = game.record
        if record.wording == "put":
            raise InputError(
                f"{record.where}: its commands are worded 'put X in/on Y', and the installed agent says 'move X to Y'; use "
                "expert='planner'"
            )
        mark = _MARKS.get(record.task_type)
        if mark is not None and mark not in game.goal_reads:
            raise InputError(
                f"{record.where}: its goal does not ask for {mark!r} as its type does; use expert='planner'"
            )
        agent = self._agent_class(max_steps=_MOST_ACTS)
        description = {"task_type": record.task_type, "pddl_params": record.targets._asdict()}
        with tempfile.TemporaryDirectory() as folder:
            # The agent reads its task from the file beside the game file that it is given.
            (Path(folder) / "traj_data.json").write_text(json.dumps(description), encoding="utf-8")
            agent.reset(str(Path(folder) / "game.tw-pddl"))
        state = self._engine.initial(game)
        agent.observe(state.observation)
        return _Point(
            agent, random.Random(derive_handcoded_seed(game.task_id)).getstate(), state, ("look",)
        )

    def _go_on(self, point: _Point, command: str) -> _Point:
        state = self._engine.step(point.state, command).state
        if point.agent is None:
            return point._replace(state=state)
        agent, admissible = copy.deepcopy(point.agent), self._engine.admissible(state)
        # An empty command is none to the original, which then does as after a reset.
        if not command:
            agent.observe(state.observation)
            return _Point(agent, point.draws, state, ("look",))

        seen = {
            "feedback": state.observation,
            "admissible_commands": list(admissible),
            "facts": _facts(state),
        }
        outside = random.getstate()
        random.setstate(point.draws)
        try:
            choice = agent.act(seen, 0, self._engine.won(state), command)
        except (NameError, LookupError):
            # Its own two errors are NameErrors; the other is a place or object that its rules expect and that is not there.
            return _Point(None, None, state, ())
        finally:
            draws = random.getstate()
            random.setstate(outside)
        # Most choices are no draws; a generator's state takes 20 kB.
        draws = point.draws if draws == point.draws else draws
        return _Point(agent, draws, state, (choice if choice in admissible else "look",))


def derive_handcoded_seed(task_id: str) -> int:
    """Return the seed of what the handcoded expert draws in a game."""
    return derive("handcoded expert", task_id)


def _facts(state: GameState) -> list[_Fact]:
    """Return the facts that the agent reads: where objects are, what it holds, and what was done to objects."""
    game, facts = state.game, state.facts

    def fact(name: str, *entities: Entity) -> _Fact:
        return _Fact(name, tuple(entity.name for entity in entities))

    found = [
        fact("inreceptacle", game.objects_[item], place)
        for place, contents in zip(game.receptacles_, facts.contents, strict=True)
        for item in bits(contents)
    ]
    if facts.held >= 0:
        found.append(fact("holds", game.agent, game.objects_[facts.held]))
    for mark, index in game.mark_index.items():
        found += [fact(mark, game.objects_[item]) for item in bits(facts.marks[index])]
    return sorted(found)


class _Held(NamedTuple):
    """A stock engine at a point of an episode."""

    game: Game
    engine: Any
    plan: tuple[str, ...]


class PlannerExpert:
    """TextWorld's planner (Fast Downward) from the present state: all commands that remain; empty where it finds no way.

    The stock engine cannot be forked: a step of an episode goes on in an engine of its own, and a fork, or an episode that
    is gone back to, is played again in another engine (about a second, and a tenth for each command).
    """

    def __init__(self) -> None:
        """Load the stock engine.

        Raises:
            InputError: if it is not installed.
        """
        self._held: OrderedDict[_Key, _Held] = OrderedDict()
        self._fresh: list[Any] = [_new_engine()]

    def plan(self, game: Game, commands: Sequence[str]) -> list[str]:
        """See :class:`Expert`."""
        given = tuple(commands)
        with _LOCK:
            known = next((n for n in range(len(given), -1, -1) if self._is_at(game, given[:n])), -1)
            if known == len(given):
                self._held.move_to_end((game.task_id, given))
                return list(self._held[game.task_id, given].plan)
            # Taken out first: while it is on its way, or after an error, nobody may find it.
            engine = (
                self._held.pop((game.task_id, given[:known])).engine
                if known >= 0
                else self._loaded(game)
            )
            found = self._played(engine, given[max(known, 0) :], begun=known >= 0)
            self._held[game.task_id, given] = _Held(game, engine, found)
        return list(found)

    def _is_at(self, game: Game, commands: tuple[str, ...]) -> bool:
        held = self._held.get((game.task_id, commands))
        return held is not None and held.game == game

    def _loaded(self, game: Game) -> Any:
        """Return an engine with the game, which is to be reset."""
        if self._fresh or len(self._held) < _ENGINES:
            engine = self._fresh.pop() if self._fresh else _new_engine()
        else:
            _, oldest = self._held.popitem(last=False)
            engine = oldest.engine
            if oldest.game == game:
                return engine
        engine.load(game_data(game))
        return engine

    def _played(self, engine: Any, commands: Sequence[str], begun: bool) -> tuple[str, ...]:
        """Return the plan after the commands."""
        # A plan takes some time, so it is asked for at the last point only.
        engine.request_infos.policy_commands = not commands
        answer: Any = None if begun else engine.reset()
        for left, command in zip(range(len(commands) - 1, -1, -1), commands, strict=True):
            engine.request_infos.policy_commands = left == 0
            answer = engine.step(command)[0]
        return tuple(answer["policy_commands"])


def _new_engine() -> Any:
    return stock_engine("expert='walkthrough'")
