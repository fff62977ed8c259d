"""The ALFWorld engine: pure functions on small immutable states, equal in every text to the stock TextWorld engine."""

from collections.abc import Callable
from typing import Any

from threespo.envs.alfworld.commands import (
    AdmissibleCommands,
    apply_action,
    bind_variables,
    find_admissible,
    goto_commands,
)
from threespo.envs.alfworld.model import Game, WorldState
from threespo.envs.alfworld.text import NOTHING_HAPPENS, TEXT
from threespo.envs.base import Transition


class GameState:
    """A point in an episode: the game, the state of its world, and the last observation."""

    __slots__ = ("_admissible", "_won", "game", "observation", "world")

    game: Game
    world: WorldState
    observation: str
    _won: bool
    # Filled by the first call that needs it; it follows from game and world.
    _admissible: AdmissibleCommands | None

    def __init__(self, game: Game, world: WorldState, observation: str, won: bool) -> None:
        _set_game(self, game)
        _set_world(self, world)
        _set_observation(self, observation)
        _set_won(self, won)
        _set_admissible(self, None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a state is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a state is immutable; {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GameState):
            return NotImplemented
        # The cheap comparisons first: games are compared by their texts.
        return (
            self.world == other.world
            and self.observation == other.observation
            and self.game == other.game
        )

    def __hash__(self) -> int:
        return hash((self.game, self.world, self.observation))

    def __repr__(self) -> str:
        return f"GameState({self.game.task_id!r}, {self.observation!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Admissible commands are found again where they are needed.
        return GameState, (self.game, self.world, self.observation, self._won)


def _slot_setter(name: str) -> Callable[[GameState, Any], None]:
    """Return the function that sets a slot in spite of ``__setattr__``, at the speed of an ordinary assignment."""
    return GameState.__dict__[name].__set__  # type: ignore[no-any-return]


_set_game = _slot_setter("game")
_set_world = _slot_setter("world")
_set_observation = _slot_setter("observation")
_set_won = _slot_setter("_won")
_set_admissible = _slot_setter("_admissible")


class Alfworld:
    """ALFWorld's text games."""

    name = "alfworld"
    text = TEXT

    def initial(self, task: Game) -> GameState:
        """Return the state after a reset."""
        # Many episodes begin with the same game.
        observation = task.cache.get("intro")
        if observation is None:
            observation = task.texts.intro(task, task.initial_world, {})
            task.cache["intro"] = observation
        return GameState(task, task.initial_world, observation, task.is_won(task.initial_world))

    def step(self, state: GameState, action: str) -> Transition[GameState]:
        """Return the result of an action.

        White space around the command is ignored; anything that is not admissible leads to "Nothing happens." An episode
        may go on after a win, and a win can be lost again, as in the stock engine.
        """
        game = state.game
        world = state.world
        command = action.strip()

        # Most commands are trips, which are the same in all states but for the agent's own location.
        found = goto_commands(game).get(command)
        if found is None:
            found = _admissible_commands(state).actions.get(command)
        elif found[3] == world.agent_location:
            found = None
        if found is None:
            return _nothing_happens(state)

        rule = game.rules[found[0]]
        bindings = bind_variables(game, found)
        # All states share a trip's action, so the location where it starts is bound here.
        if rule.kind == "goto":
            bindings[rule.origin_variable] = game.location_entities[world.agent_location]

        world = apply_action(game, world, found)
        observation = rule.feedback_writer(game, world, bindings)
        won = game.is_won(world) if rule.affects_goal else state._won
        return Transition(GameState(game, world, observation, won), observation, int(won), won)

    def admissible(self, state: GameState) -> tuple[str, ...]:
        """Return all commands that do something, sorted, as the stock engine lists them."""
        return _admissible_commands(state).listed

    def won(self, state: GameState) -> bool:
        return state._won

    def score(self, state: GameState) -> int:
        # As in the stock engine, only the goal scores.
        return int(state._won)


def _admissible_commands(state: GameState) -> AdmissibleCommands:
    """Return the admissible commands of a state, looked up once."""
    found = state._admissible
    if found is None:
        found = find_admissible(state.game, state.world)
        _set_admissible(state, found)
    return found


def _nothing_happens(state: GameState) -> Transition[GameState]:
    after = GameState(state.game, state.world, NOTHING_HAPPENS, state._won)
    # The same world admits the same commands.
    _set_admissible(after, state._admissible)
    return Transition(after, NOTHING_HAPPENS, int(state._won), state._won)
