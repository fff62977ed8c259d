"""A scripted expert without thoughts: goals can be met by reading no more than the agent does.

The expert that base policies are cloned from (``threespo.imitation.webshop.expert``) uses its parts.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

_BOUND = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars\s*$")
_PRICES = re.compile(r"\$(\d+(?:\.\d+)?)")
WORD = re.compile(r"\w+")
_SEARCH = "search["
_NEXT = "click[next >]"
BUY_ACTION = "click[buy now]"
BACK_ACTION = "click[back to search]"
PRODUCT_CLICK = re.compile(r"click\[([a-z0-9]{10})\]$")
"""A click on a product."""
_ASIN = re.compile(r"[A-Z0-9]{10}")
_BRACKETS = re.compile(r"[\[\]\s]+")
# A search finds at most 50 products, in pages of ten.
_MAX_PAGES = 5
# What the last position of a page takes from a product's score: the engine's rank uses more of it than its title.
_RANK_WEIGHT = 0.5


def choose_action(
    goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]
) -> str:
    """Return the next action.

    Args:
        goal: the instruction.
        history: (observation, action) pairs so far; tells what was chosen, which a page of mode ``text`` may not show.
        observation: the page, its parts in quotes.
        admissible: what can be clicked.
    """
    if BUY_ACTION in admissible:
        return _choose_option(goal, history, observation, admissible)
    if any(PRODUCT_CLICK.match(action) for action in admissible):
        return _choose_product(goal, history, observation, admissible)
    if any(action.startswith(_SEARCH) for action in admissible):
        return f"search[{product_request(goal)}]"
    return _NEXT if _NEXT in admissible else f"search[{product_request(goal)}]"


class Offer(NamedTuple):
    """A product of a result page."""

    place: int
    """Of its asin among the page's parts."""
    asin: str
    title: str
    price: float
    """The lowest that the page names; none is infinite."""


def product_request(goal: str) -> str:
    """Return the goal without its price bound, and without brackets, which an action cannot hold."""
    return _BRACKETS.sub(" ", _BOUND.sub("", goal)).strip()


def split_page(observation: str) -> list[str]:
    """Return the texts of a page in mode ``text``."""
    return observation.strip("'").split("' [SEP] '")


def affordable_offers(goal: str, parts: Sequence[str]) -> list[Offer]:
    """Return the products of a result page within the goal's price bound, in the page's order.

    Args:
        goal: the instruction.
        parts: texts of the page (``split_page``).
    """
    bound = _BOUND.search(goal)
    max_price = float(bound.group(1)) if bound else math.inf
    offers = []
    # A product is three parts in a row: asin, title, price tag.
    for place, part in enumerate(parts[:-2]):
        if not _ASIN.fullmatch(part):
            continue
        title = parts[place + 1]
        prices = [float(price) for price in _PRICES.findall(parts[place + 2])]
        offers.append(Offer(place, part, title, min(prices, default=math.inf)))
    # A product without a price cannot be bought for less than anything.
    return [offer for offer in offers if offer.price <= max_price and offer.price < math.inf]


def best_offer(goal: str, parts: Sequence[str]) -> Offer | None:
    """Return the affordable product whose title shares most with the goal, None if there is none; earlier ones count more.

    Args:
        goal: the instruction.
        parts: texts of a result page (``split_page``).
    """
    wanted = set(WORD.findall(product_request(goal).lower()))

    def score(offer: Offer) -> float:
        words = set(WORD.findall(offer.title.lower()))
        # The root keeps long titles, which share more by chance, from always being the best.
        overlap = len(words & wanted) / math.sqrt(1 + len(words))
        return overlap - _RANK_WEIGHT * offer.place / len(parts)

    return max(affordable_offers(goal, parts), key=score, default=None)


def _choose_product(
    goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]
) -> str:
    best = best_offer(goal, split_page(observation))
    if best is not None:
        return f"click[{best.asin.lower()}]"
    pages = sum(action == _NEXT for _, action in history)
    if _NEXT in admissible and pages < _MAX_PAGES:
        return _NEXT
    return next(action for action in admissible if PRODUCT_CLICK.match(action))


def _choose_option(
    goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]
) -> str:
    """Return a click on a wanted option that is not yet chosen, then on Buy Now."""
    values = _values(admissible)
    clicked = set()
    # Back to the click that opened this product; a product's number may also be the value of an option.
    for _, action in reversed(history):
        if PRODUCT_CLICK.match(action) and click_target(action) not in values:
            break
        clicked.add(click_target(action))

    missing = next(missing_options(goal, split_page(observation), admissible, clicked), None)
    return BUY_ACTION if missing is None else f"click[{missing[0]}]"


def missing_options(
    goal: str, parts: Sequence[str], admissible: Sequence[str], chosen: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each option value of an item's page that is wanted and not chosen, with all values of its option.

    Args:
        goal: the instruction.
        parts: texts of the page (``split_page``).
        admissible: the page's actions, which name the option values.
        chosen: values that are chosen.
    """
    values = _values(admissible)
    wish = product_request(goal).lower()
    for group in group_option_values(parts, set(values)):
        value = find_mentioned_value(wish, group, values)
        if value is not None and value not in chosen:
            yield value, group


def click_target(action: str) -> str:
    """Return what a click is on."""
    return action.removeprefix("click[").removesuffix("]")


def _values(admissible: Sequence[str]) -> list[str]:
    """Return the option values of an item's page, whose actions come after Buy Now."""
    return [click_target(action) for action in admissible[admissible.index(BUY_ACTION) + 1 :]]


def group_option_values(parts: Sequence[str], values: set[str]) -> list[list[str]]:
    """Return the values of each option of a page; they follow the option's name.

    Args:
        parts: texts of the page (``split_page``).
        values: all option values of the page.
    """
    groups: list[list[str]] = []
    open_group = False
    for part in parts:
        if part in values:
            if not open_group:
                groups.append([])
            groups[-1].append(part)
        open_group = part in values
    return groups


def find_mentioned_value(wish: str, group: Sequence[str], values: Sequence[str]) -> str | None:
    """Return the group's longest value that the wish mentions outside every longer value of the page, or None.

    Args:
        wish: the goal in lower case, without its price bound.
        group: values of one option.
        values: all option values of the page.
    """
    remaining_wish = wish
    # Longest first, and removed once found: "large" is not mentioned by "x-large".
    for value in sorted(values, key=len, reverse=True):
        # Whole words only: neither "1" nor "5" is mentioned by "1.5".
        mention = re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\d)")
        if not mention.search(remaining_wish):
            continue
        if value in group:
            return value
        remaining_wish = mention.sub(" ", remaining_wish)
    return None
