"""The stock TextWorld engine behind the same protocol: the reference that our engine must equal; slow, with a GPL planner.

Needs the extra ``oracle``. A state is the sequence of actions since the reset; the engine cannot be forked, so a state
that is not the engine's current one is reached by replay.
"""

from typing import Any

from threespo.envs.alfworld.model import Game
from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Transition
from threespo.errors import InputError


class ReplayState:
    """A point in an episode: the actions since the reset and the engine's last response."""

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
        object.__setattr__(self, "game", game)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "observation", observation)
        object.__setattr__(self, "commands", commands)
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "won", won)

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
        # One engine, loaded with the last game: loading takes seconds.
        self._engine: Any = None
        self._game: Game | None = None
        # The actions since the engine's last reset; None if its state is unknown.
        self._actions: tuple[str, ...] | None = None

    def initial(self, task: Game) -> ReplayState:
        return self._make_state(task, (), self._reset(task))

    def step(self, state: ReplayState, action: str) -> Transition[ReplayState]:
        if self._game != state.game or self._actions != state.actions:
            self._reset(state.game)
            for earlier in state.actions:
                self._engine.step(earlier)
        # An error in the engine would leave it in an unknown state.
        self._actions = None
        response, _, _ = self._engine.step(action)
        after = self._make_state(state.game, (*state.actions, action), response)
        return Transition(after, after.observation, after.score, after.won)

    def admissible(self, state: ReplayState) -> tuple[str, ...]:
        return state.commands

    def won(self, state: ReplayState) -> bool:
        return state.won

    def score(self, state: ReplayState) -> int:
        return state.score

    def _reset(self, game: Game) -> Any:
        self._actions = None
        if self._game != game:
            self._game = None
            self._engine = make_stock_engine()
            self._engine.load(to_stock_format(game))
            self._game = game

        response = self._engine.reset()
        self._actions = ()
        return response

    def _make_state(self, game: Game, actions: tuple[str, ...], response: Any) -> ReplayState:
        self._actions = actions
        won = bool(response["won"])
        commands = tuple(response["admissible_commands"])
        # The engine sets no score at the reset; a game that begins solved is won.
        return ReplayState(game, actions, response.feedback, commands, int(won), won)


def to_stock_format(game: Game) -> dict[str, Any]:
    """Return a game in the form that the stock engine loads."""
    record = game.record
    return {
        "pddl_domain": record.domain,
        "grammar": record.grammar,
        "pddl_problem": record.problem,
        "walkthrough": list(record.walkthrough),
    }


def make_stock_engine(alternative: str = "engine: native") -> Any:
    """Return an engine with ALFWorld's names; no game is loaded.

    Raises:
        InputError: if it is not installed; names ``alternative``, a setting that works without it.
    """
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv
    except ImportError as error:
        raise InputError(
            f"the stock engine cannot be imported ({error}). Install it with pip install threespo[oracle], or use "
            f"{alternative}"
        ) from error
    # ALFWorld's wrapper turns ids such as ``Mug_bar_…`` into "mug 1".
    return AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
