"""The ALFWorld engine: pure functions on small immutable states, equal in every text to the stock TextWorld engine."""

from collections.abc import Callable
from typing import Any

from threespo.envs.alfworld.commands import Admitted, admitted, bindings, effect, travels
from threespo.envs.alfworld.model import Game, WorldState
from threespo.envs.alfworld.text import NOTHING_HAPPENS, TEXT
from threespo.envs.base import Transition


class GameState:
    """A point in an episode: the game, what is the case, and the text that led here."""

    __slots__ = ("_admitted", "_won", "facts", "game", "observation")

    game: Game
    facts: WorldState
    observation: str
    _won: bool
    _admitted: Admitted | None

    def __init__(self, game: Game, facts: WorldState, observation: str, won: bool) -> None:
        _set_game(self, game)
        _set_facts(self, facts)
        _set_observation(self, observation)
        _set_won(self, won)
        _set_admitted(self, None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a state is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a state is immutable; {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GameState):
            return NotImplemented
        return (
            self.facts == other.facts
            and self.observation == other.observation
            and self.game == other.game
        )

    def __hash__(self) -> int:
        return hash((self.game, self.facts, self.observation))

    def __repr__(self) -> str:
        return f"GameState({self.game.task_id!r}, {self.observation!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return GameState, (self.game, self.facts, self.observation, self._won)


def _setter(name: str) -> Callable[[GameState, Any], None]:
    """Return what sets a slot in spite of ``__setattr__``, at the speed of an ordinary assignment."""
    return GameState.__dict__[name].__set__  # type: ignore[no-any-return]


_set_game, _set_facts, _set_observation = _setter("game"), _setter("facts"), _setter("observation")
_set_won, _set_admitted = _setter("_won"), _setter("_admitted")


class Alfworld:
    """ALFWorld's text games."""

    name = "alfworld"
    text = TEXT

    def initial(self, task: Game) -> GameState:
        """Return the state after a reset."""
        text = task.cache.get("intro")
        if text is None:
            text = task.cache["intro"] = task.texts.intro(task, task.start, {})
        return GameState(task, task.start, text, task.is_won(task.start))

    def step(self, state: GameState, action: str) -> Transition[GameState]:
        """Return what an action leads to.

        White space around it is ignored; anything that is not admissible leads to "Nothing happens." An episode may go
        on after a win, and a win can be lost again, as in the stock engine.

        Args:
            state: from where.
            action: the command.
        """
        game, facts = state.game, state.facts
        command = action.strip()
        # Trips are most of all commands, and the same in all states but for the place where the agent is.
        found = travels(game).get(command)
        if found is None:
            found = _admitted(state).actions.get(command)
        elif found[3] == facts.place:
            found = None
        if found is None:
            return _stay(state)

        rule, bound = game.rules[found[0]], bindings(game, found)
        # All states share a trip's action, so where it starts is bound here.
        if rule.kind == "goto":
            bound[rule.start_variable] = game.locations_[facts.place]

        facts = effect(game, facts, found)
        observation = rule.feedback(game, facts, bound)
        won = game.is_won(facts) if rule.decides else state._won
        return Transition(GameState(game, facts, observation, won), observation, int(won), won)

    def admissible(self, state: GameState) -> tuple[str, ...]:
        """Return all commands that do something, sorted, as the stock engine lists them."""
        return _admitted(state).listed

    def won(self, state: GameState) -> bool:
        """Return whether the goal holds now."""
        return state._won

    def score(self, state: GameState) -> int:
        """Return the stock engine's score: 1 if the goal holds now, else 0."""
        return int(state._won)


def _admitted(state: GameState) -> Admitted:
    """Return what a state admits, looked up once."""
    found = state._admitted
    if found is None:
        found = admitted(state.game, state.facts)
        _set_admitted(state, found)
    return found


def _stay(state: GameState) -> Transition[GameState]:
    # Equal facts admit equal commands, so what was found for them goes along.
    after = GameState(state.game, state.facts, NOTHING_HAPPENS, state._won)
    _set_admitted(after, state._admitted)
    return Transition(after, NOTHING_HAPPENS, int(state._won), state._won)
