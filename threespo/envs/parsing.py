"""From a response to an action, as verl-agent projects it (``alfworld_projection``, ``webshop_projection``)."""

import re
from typing import NamedTuple

_CHINESE = re.compile("[\u4e00-\u9fff]")


_OPEN = "<think>"
_CLOSE = "</think>"

TAGS = (_OPEN, _CLOSE, "<action>", "</action>")
"""The tags that a well-formed answer contains."""


class ParsedAction(NamedTuple):
    """An action text and whether the response was well-formed."""

    action: str
    valid: bool
    """Both tag pairs present and no Chinese character. Whether the action is admissible does not count here."""


def parse_response(response: str, fallback_length: int) -> ParsedAction:
    """Return the lower-cased text between the action tags; without tags, the end of the response.

    The reference sends that end to the environment when the tags are missing. It is reproduced because it decides the next
    observation.

    Args:
        response: the model's whole turn: what it wrote, after a thought that its chat template has opened for it.
        fallback_length: characters of that end (``TextInterface.fallback_length``: 30 in ALFWorld, 20 in WebShop).
    """
    # verl-agent lowers the whole response first, so tags of any case are found, and actions are sent in lower case.
    lowered = response.lower()
    start = lowered.find("<action>")
    end = lowered.find("</action>")
    if start < 0 or end < 0:
        return ParsedAction(lowered[-fallback_length:], False)

    action = lowered[start + len("<action>") : end].strip()
    # The thought's tags and Chinese characters are looked for in the response as written, as verl-agent does.
    well_formed = _OPEN in response and _CLOSE in response and _CHINESE.search(response) is None
    return ParsedAction(action, well_formed)


def unclosed_thought(text: str) -> str:
    """Return the thought that a text leaves open at its end, from its tag on; nothing if it leaves none open.

    Args:
        text: what a chat template writes behind the prompt. An empty thought that it opens and closes is no part of what
            the model says.
    """
    _, tag, rest = text.rpartition(_OPEN)
    return tag + rest if tag and _CLOSE not in rest else ""
