"""From texts of a model to actions and whether they are well-formed, as verl-agent's projections of both environments do."""

from collections.abc import Sequence

from threespo.envs.alfworld.text import TEXT as ALFWORLD_TEXT
from threespo.envs.parsing import parse_response
from threespo.envs.webshop.text import TEXT as WEBSHOP_TEXT


def alfworld_projection(
    actions: list[str], action_pools: Sequence[Sequence[str]] | None = None, *, opening: str = ""
) -> tuple[list[str], list[int]]:
    """Return actions and validity (1 or 0) of responses.

    Args:
        actions: the responses.
        action_pools: admissible commands; not read, as in verl-agent, where validity is a matter of form.
        opening: of a model whose chat template opens the thought itself, what it writes (``"<think>\\n"``): the managers
            pass on what the model wrote, which lacks that tag. ``threespo doctor --model`` says whether a template does.
    """
    return _project(actions, ALFWORLD_TEXT.fallback_length, opening)


def webshop_projection(actions: list[str], *, opening: str = "") -> tuple[list[str], list[int]]:
    """Return actions and validity (1 or 0) of responses; ``opening`` as in :func:`alfworld_projection`."""
    return _project(actions, WEBSHOP_TEXT.fallback_length, opening)


def _project(
    responses: Sequence[str], fallback_length: int, opening: str
) -> tuple[list[str], list[int]]:
    # The same parser as in our own rollouts, so what counts as an action is defined once.
    parsed = [parse_response(opening + response, fallback_length) for response in responses]
    return [response.action for response in parsed], [int(response.valid) for response in parsed]
