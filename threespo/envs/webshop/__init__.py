"""WebShop: a shop for agents, as pure functions on immutable states."""

from threespo.envs.webshop.catalogue import Catalogue, compile_catalogue
from threespo.envs.webshop.goals import ShopGoal
from threespo.envs.webshop.shop import WebShop
from threespo.envs.webshop.state import ShopState

__all__ = ["Catalogue", "ShopGoal", "ShopState", "WebShop", "compile_catalogue"]
