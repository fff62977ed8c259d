"""From texts of a model to actions and whether they are well-formed, as verl-agent's projections of both environments do."""

from collections.abc import Sequence

from threespo.envs.alfworld.text import TEXT as ALFWORLD_TEXT
from threespo.envs.parsing import parse_response
from threespo.envs.webshop.text import TEXT as WEBSHOP_TEXT


def alfworld_projection(
    actions: list[str], action_pools: Sequence[Sequence[str]] | None = None
) -> tuple[list[str], list[int]]:
    """Return actions and validity (1 or 0) of responses.

    Args:
        actions: the responses.
        action_pools: admissible commands; not read, as in verl-agent, where validity is a matter of form.
    """
    return _project(actions, ALFWORLD_TEXT.fallback_length)


def webshop_projection(actions: list[str]) -> tuple[list[str], list[int]]:
    """Return actions and validity (1 or 0) of responses."""
    return _project(actions, WEBSHOP_TEXT.fallback_length)


def _project(responses: Sequence[str], fallback_length: int) -> tuple[list[str], list[int]]:
    parsed = [parse_response(response, fallback_length) for response in responses]
    return [one.action for one in parsed], [int(one.valid) for one in parsed]
