"""A scripted shopper: shows that goals can be met by reading no more than the agent does."""

import re
from collections.abc import Sequence

_BOUND = re.compile(r",? and price lower than ([\d.]+) dollars")
_PRICES = re.compile(r"\$([\d.]+)")
_WORD = re.compile(r"\w+")
_SEARCH, _BUY, _NEXT, _ITEM = "search[", "click[buy now]", "click[next >]", re.compile(r"click\[([a-z0-9]{10})\]$")
_MOST_PAGES = 5
# How much the last place of a page counts against a product: the engine saw more of it than its title.
_TRUST = 0.5


def choose(goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    """Return the next action.

    Args:
        goal: the instruction.
        history: (observation, action) pairs so far; tells what was chosen, which a page of mode ``text`` may not show.
        observation: the page, its parts in quotes.
        admissible: what can be clicked.
    """
    if _BUY in admissible:
        return _choose_option(goal, history, observation, admissible)
    if any(_ITEM.match(action) for action in admissible):
        return _choose_product(goal, history, observation, admissible)
    if any(action.startswith(_SEARCH) for action in admissible):
        return f"search[{_wish(goal)}]"
    return _NEXT if _NEXT in admissible else f"search[{_wish(goal)}]"


def _wish(goal: str) -> str:
    """Return the goal without its price bound."""
    return _BOUND.sub("", goal).strip()


def _parts(observation: str) -> list[str]:
    return observation.strip("'").split("' [SEP] '")


def _choose_product(goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    """Return a click on the affordable product whose title shares most with the goal; earlier ones count more."""
    bound = _BOUND.search(goal)
    most = float(bound.group(1)) if bound else float("inf")
    wanted = set(_WORD.findall(_wish(goal).lower()))
    parts = _parts(observation)
    best, best_share = "", -1.0
    for action in admissible:
        item = _ITEM.match(action)
        if item is None or item.group(1).upper() not in parts:
            continue
        place = parts.index(item.group(1).upper())
        title, tag = parts[place + 1], parts[place + 2]
        prices = [float(price) for price in _PRICES.findall(tag)]
        words = set(_WORD.findall(title.lower()))
        share = len(words & wanted) / (1 + len(words)) ** 0.5 - _TRUST * place / len(parts)
        if prices and min(prices) <= most and share > best_share:
            best, best_share = action, share
    pages = sum(action == _NEXT for _, action in history)
    if not best and _NEXT in admissible and pages < _MOST_PAGES:
        return _NEXT
    return best or next(action for action in admissible if _ITEM.match(action))


def _choose_option(goal: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    """Return a click on a wanted option that is not yet chosen, then on Buy Now."""
    values = [action[len("click[") : -1] for action in admissible[admissible.index(_BUY) + 1 :]]
    clicked = set()
    for _, action in reversed(history):
        if _ITEM.match(action) and action[len("click[") : -1] not in values:
            break
        clicked.add(action)
    for group in _groups(_parts(observation), set(values)):
        value = _mentioned(_wish(goal).lower(), group, values)
        if value is not None and f"click[{value}]" not in clicked:
            return f"click[{value}]"
    return _BUY


def _groups(parts: Sequence[str], values: set[str]) -> list[list[str]]:
    """Return the values of each option, which follow its name."""
    groups: list[list[str]] = []
    open_group = False
    for part in parts:
        if part in values:
            if not open_group:
                groups.append([])
            groups[-1].append(part)
        open_group = part in values
    return groups


def _mentioned(wish: str, group: Sequence[str], values: Sequence[str]) -> str | None:
    """Return the group's longest value that the wish mentions outside every longer value of the page."""
    rest = wish
    for value in sorted(values, key=len, reverse=True):
        shown = re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\d)")
        if shown.search(rest):
            if value in group:
                return value
            rest = shown.sub(" ", rest)
    return None
