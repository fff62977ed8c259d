"""The scripted expert of the embedded base policies for WebShop.

It decides from what a prompt of the repaired shop shows, so a policy without memory can learn it; only to find out
whether a poor match is the best of a good search it looks into the history. As of ALFWorld's expert, the second word of
each thought is the decision ("lamp 'e000000012'").
"""

import itertools
import random
import re
from dataclasses import dataclass

from threespo.envs.episode import Episode
from threespo.envs.webshop.heuristics import (
    BACK_ACTION,
    BUY_ACTION,
    PRODUCT_CLICK,
    WORD,
    best_offer,
    click_target,
    missing_options,
    product_request,
    split_page,
)
from threespo.imitation.curriculum import Decision

_OPTIONS = re.compile(r" with [\w ]+: .*")
_FITS = 3
"""A product whose title shares so many words with the wish is what is looked for."""


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities of the expert's faults; all zero is the careful expert."""

    random_action: float = 0.0
    """A random admissible action instead of the right one."""
    failing_action: float = 0.0
    """A click that does nothing."""
    short_query: float = 0.0
    """Searches for the last word of what is wanted."""
    first_product: float = 0.0
    """Takes the first product of the page, whatever it is."""
    first_value: float = 0.0
    """Takes the first value of an option, whatever is wanted."""
    skip_option: float = 0.0
    """Buys although an option is not yet chosen."""


CAREFUL = ExpertNoise()


def wanted_words(goal: str) -> str:
    """Return what a goal says of the product itself, without its options and its price bound."""
    return _OPTIONS.sub("", product_request(goal)).rstrip(",").lower()


def decide(episode: Episode, rng: random.Random, noise: ExpertNoise = CAREFUL) -> Decision:
    """Return the expert's next thought and action.

    Args:
        episode: where the agent is.
        rng: decides the faults only.
        noise: probabilities of the faults.
    """
    return _PageDecision(episode, rng, noise).decide()


class _PageDecision:
    """The expert's decision on one page."""

    def __init__(self, episode: Episode, rng: random.Random, noise: ExpertNoise) -> None:
        self.episode = episode
        self.rng = rng
        self.noise = noise

        self.goal = episode.task.goal
        self.wish = product_request(self.goal).lower()
        self.wanted = wanted_words(self.goal)
        # The last word names the kind of product: "red cotton lamp" is a lamp.
        self.head = (WORD.findall(self.wanted) or ["it"])[-1]
        self.admissible = episode.setup.env.admissible(episode.state)
        self.parts = split_page(episode.observation)

    def decide(self) -> Decision:
        # Draws come in a fixed order, and a page draws for the faults that can happen on it only.
        if self.rng.random() < self.noise.random_action:
            return self._because("try", self.rng.choice(self._harmless()))
        if self.rng.random() < self.noise.failing_action:
            return self._because("try", "click[search]")
        if BUY_ACTION in self.admissible:
            return self._on_item()
        if any(PRODUCT_CLICK.match(action) for action in self.admissible):
            return self._on_results()
        if BACK_ACTION in self.admissible:
            return self._because("nothing", BACK_ACTION)
        return self._search()

    def _because(self, reason: str, action: str) -> Decision:
        return Decision(f"{self.head} {reason}", action)

    def _harmless(self) -> list[str]:
        """What a random action is drawn from: a purchase would end the episode."""
        clicks = [
            action for action in self.admissible if action != BUY_ACTION and action.startswith("click[")
        ]
        return clicks or ["click[search]"]

    def _search(self) -> Decision:
        short = self.rng.random() < self.noise.short_query
        return self._because("search", f"search[{self.head if short else self.wish}]")

    def _on_results(self) -> Decision:
        if self.rng.random() < self.noise.first_product:
            return self._take(
                next(click_target(action) for action in self.admissible if PRODUCT_CLICK.match(action))
            )
        best = best_offer(self.goal, self.parts)
        if best is None or (self._shared(best.title) < _FITS and not self._searched_well()):
            return self._because("none", BACK_ACTION)
        return self._take(best.asin.lower())

    def _take(self, name: str) -> Decision:
        """Click on a product or an option value."""
        return self._because(f"'{name}'", f"click[{name}]")

    def _shared(self, title: str) -> int:
        return len(set(WORD.findall(title.lower())) & set(WORD.findall(self.wanted)))

    def _searched_well(self) -> bool:
        """Return whether the last search was for all that is wanted."""
        searches = [action for _, action in self.episode.history if action.startswith("search[")]
        return searches[-1:] == [f"search[{self.wish}]"]

    def _on_item(self) -> Decision:
        if not self._is_right():
            return self._because("wrong", BACK_ACTION)
        chosen = {value for _, value in self.episode.state.chosen}
        for value, group in missing_options(self.goal, self.parts, self.admissible, chosen):
            if self.rng.random() < self.noise.skip_option:
                break
            return self._take(group[0] if self.rng.random() < self.noise.first_value else value)
        return self._because("complete", BUY_ACTION)

    def _is_right(self) -> bool:
        """Return whether this is what is looked for, or the best of a good search's results."""
        # The title is the part before the price: the parts of a page have no names.
        titles = [
            before for before, part in itertools.pairwise(self.parts) if part.startswith("Price: ")
        ]
        if self._shared(" ".join(titles)) >= _FITS:
            return True
        taken = [(seen, action) for seen, action in self.episode.history if PRODUCT_CLICK.match(action)]
        if not taken or not self._searched_well():
            return False
        seen, action = taken[-1]
        best = best_offer(self.goal, split_page(seen))
        return best is not None and action == f"click[{best.asin.lower()}]"
