"""A point in an episode of the shop."""

from dataclasses import dataclass, field

from threespo.envs.webshop.goals import ShopGoal
from threespo.envs.webshop.pages import Chosen


@dataclass(frozen=True, slots=True)
class ShopState:
    """A point in an episode: the page and what leads on from it, and the goal. Texts follow from the rest."""

    goal: ShopGoal
    kind: str = "index"
    """index, results, item, description, features, reviews, or done."""
    query: str = ""
    number: int = 1
    """Of the result page."""
    product: int = -1
    chosen: Chosen = ()
    visited: frozenset[int] = frozenset()
    """Products looked at since the start page; kept in mode ``text_rich`` of the original only, where it shows."""
    score: float = 0.0
    """The reward of the purchase, in [0, 1]."""
    page: str = field(default="", compare=False, repr=False)
    """The text that the original's environment returns."""
    observation: str = field(default="", compare=False, repr=False)
    """The text that the agent sees, and the anchor of the state: ``page`` without instruction, its parts in quotes."""

    @property
    def done(self) -> bool:
        """Whether something was bought."""
        return self.kind == "done"

    @property
    def anchor(self) -> str:
        """The observation, by the name that methods which compare states use."""
        return self.observation
