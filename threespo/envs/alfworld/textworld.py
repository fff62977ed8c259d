"""The stock TextWorld engine behind the same protocol: slow, with a GPL planner inside, the reference that ours must equal.

Needs the extra ``oracle``. A state is the sequence of actions since the reset; the engine cannot be forked, so a state
that is not the engine's present one is reached by replay.
"""

from typing import Any

from threespo.envs.alfworld.model import Game
from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Transition
from threespo.errors import InputError


class ReplayState:
    """A point in an episode: the actions that lead there and what the engine said."""

    __slots__ = ("actions", "commands", "game", "observation", "score", "won")

    def __init__(
        self,
        game: Game,
        actions: tuple[str, ...],
        observation: str,
        commands: tuple[str, ...],
        score: int,
        won: bool,
    ) -> None:
        for name, value in zip(
            ReplayState.__slots__, (actions, commands, game, observation, score, won), strict=True
        ):
            object.__setattr__(self, name, value)

    game: Game
    actions: tuple[str, ...]
    observation: str
    commands: tuple[str, ...]
    score: int
    won: bool

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a state is immutable; {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReplayState) and self.actions == other.actions and self.game == other.game
        )

    def __hash__(self) -> int:
        return hash((self.game, self.actions))

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplayState, (
            self.game,
            self.actions,
            self.observation,
            self.commands,
            self.score,
            self.won,
        )


class TextWorldAlfworld:
    """ALFWorld's text games, played by TextWorld."""

    name = "alfworld"
    text = TEXT

    def __init__(self) -> None:
        # One engine, loaded with the game played last: loading takes seconds.
        self._engine: Any = None
        self._game: Game | None = None
        self._actions: tuple[str, ...] | None = None

    def initial(self, task: Game) -> ReplayState:
        """Return the state after a reset."""
        return self._state(task, (), self._reset(task))

    def step(self, state: ReplayState, action: str) -> Transition[ReplayState]:
        """Return what ``action`` leads to."""
        if self._game != state.game or self._actions != state.actions:
            self._reset(state.game)
            for earlier in state.actions:
                self._engine.step(earlier)
        # Until the engine has answered, where it stands is not known.
        self._actions = None
        answer, _, _ = self._engine.step(action)
        after = self._state(state.game, (*state.actions, action), answer)
        return Transition(after, after.observation, after.score, after.won)

    def admissible(self, state: ReplayState) -> tuple[str, ...]:
        """Return all commands that do something, sorted."""
        return state.commands

    def won(self, state: ReplayState) -> bool:
        """Return whether the goal holds now."""
        return state.won

    def score(self, state: ReplayState) -> int:
        """Return 1 if the goal holds now, else 0."""
        return state.score

    def _reset(self, game: Game) -> Any:
        self._actions = None
        if self._game != game:
            self._game = None
            self._engine = stock_engine()
            self._engine.load(game_data(game))
            self._game = game

        answer = self._engine.reset()
        self._actions = ()
        return answer

    def _state(self, game: Game, actions: tuple[str, ...], answer: Any) -> ReplayState:
        self._actions = actions
        won = bool(answer["won"])
        # The engine sets no score at the reset; a game that begins solved is won.
        return ReplayState(
            game, actions, answer.feedback, tuple(answer["admissible_commands"]), int(won), won
        )


def game_data(game: Game) -> dict[str, Any]:
    """Return a game in the form that the stock engine loads."""
    record = game.record
    return {
        "pddl_domain": record.domain,
        "grammar": record.grammar,
        "pddl_problem": record.problem,
        "walkthrough": list(record.walkthrough),
    }


def stock_engine(otherwise: str = "engine: native") -> Any:
    """Return an engine with ALFWorld's names; no game is loaded.

    Args:
        otherwise: what can be used if it is not installed.

    Raises:
        InputError: if it is not installed.
    """
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv
    except ImportError as error:
        raise InputError(
            f"the stock engine cannot be imported ({error}). Install it with pip install threespo[oracle], or use "
            f"{otherwise}"
        ) from error
    return AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
