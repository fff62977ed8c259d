"""ALFWorld's household text games: an exact, pure, fast engine, sources of games, and the stock engine as a reference."""

from threespo.envs.alfworld.compile import compile_game
from threespo.envs.alfworld.engine import Alfworld, GameState
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.model import Game

__all__ = ["Alfworld", "Game", "GameRecord", "GameState", "compile_game"]
