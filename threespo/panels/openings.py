"""The beginning of an ALFWorld episode in words, by which logs without ids name their game: goal sentence and furniture."""

import hashlib
import re
from typing import NamedTuple

_DIGITS = 8
_ROOM = re.compile(r"Looking quickly around you, you see (.{1,5000}?)\.(?!\w)", re.DOTALL)
_FURNITURE = re.compile(r"\ban? ([a-z]+ \d+)")

_END = r"\s*(?:\n|', Action|\\n|(?:Prior to this step|Your current observation|Your admissible|AVAILABLE ACTIONS)|$)"
_GOAL = re.compile(rf"Your task is to:\s*(.+?)\.?['\"]?{_END}")
"""A task sentence, up to what follows it in the prompts of several programs."""


class Opening(NamedTuple):
    """What an episode begins with, as hashes; games of one opening differ in where things are."""

    goal: str
    """Of the goal sentence."""
    room: str
    """Of the names of the furniture, in any order; empty where a text does not say."""


def find_goals(text: str) -> list[str]:
    """Return the task sentences of a text, without their full stops; of worked examples too, which come first."""
    return [found.strip() for found in _GOAL.findall(text)]


def find_opening(text: str) -> Opening | None:
    """Return the opening that a text has, the last one if it has several; ``None`` if there is no task sentence."""
    goals = find_goals(text)
    if not goals:
        return None
    rooms = [sorted(_FURNITURE.findall(room)) for room in _ROOM.findall(text)]
    # An agent that looks around later in the episode is shown no furniture.
    rooms = [names for names in rooms if names]
    room_hash = _hash(" ".join(rooms[-1])) if rooms else ""
    return Opening(goal_hash(goals[-1]), room_hash)


def goal_hash(sentence: str) -> str:
    """Return the hash of a goal sentence, without regard to case and final full stop."""
    return _hash(sentence.strip().rstrip(".").lower())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
