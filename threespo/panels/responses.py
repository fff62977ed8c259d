"""What agents said, as logs have it: the commands in it, and ALFWorld's two wordings.

A thought is not searched for commands. It ends at ``</think>``; where a response has no ``<think>``, the chat template had
opened the thought, and it begins with the response.
"""

import re
from collections.abc import Iterable

_WORDINGS = {
    "put": re.compile(r"\bput [a-z]+ \d+ in/on [a-z]+ \d+", re.IGNORECASE),
    "move": re.compile(r"\bmove [a-z]+ \d+ to [a-z]+ \d+", re.IGNORECASE),
}
"""ALFWorld's two ways to put a thing down, as commands of an agent; the names are those of ``GameRecord.wording``."""
_TAGGED = re.compile("<action>(.*?)</action>", re.IGNORECASE | re.DOTALL)


def tagged_actions(response: str) -> list[str]:
    """Return the texts between the action tags of a response."""
    return _TAGGED.findall(response)


def wordings_of(responses: Iterable[str]) -> frozenset[str]:
    """Return which wordings responses have, in what they do and not in what they think."""
    commands = [command for text in responses for command in _commands(text)]
    return frozenset(name for name, pattern in _WORDINGS.items() if any(map(pattern.search, commands)))


def _commands(response: str) -> list[str]:
    # What an agent thinks before it acts may have the other wording.
    answer = response.rpartition("</think>")[2]
    return tagged_actions(response) or [answer.rpartition("Action:")[2]]


def starts_inside_thought(response: str) -> bool:
    """Return whether a response begins inside a thought, which the chat template has opened."""
    return "</think>" in response and "<think>" not in response
