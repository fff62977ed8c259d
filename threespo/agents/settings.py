"""How a prompting agent plays."""

from typing import Literal

from pydantic import Field

from threespo.settings import MAX_TOKENS, Settings


class AgentSettings(Settings):
    """A prompting agent."""

    agent: Literal["direct", "react", "retry", "reflexion"]
    """``direct``: actions alone; ``react``: thoughts and actions; ``reflexion``: attempts with reflections in between;
    ``retry``: as many attempts without (threespo/agents/)."""
    trials: int = Field(default=3, ge=2, le=100)
    """Maximum of attempts of ``reflexion`` and ``retry``; success is that of any. The paper does not say."""
    reflection_characters: int = Field(default=4000, ge=1, le=MAX_TOKENS)
    """Characters of a failed attempt's steps, from its end, that the request for a reflection shows: a prompt that is too
    long is an error."""
    note_characters: int = Field(default=400, ge=1, le=MAX_TOKENS)
    """Characters that are kept of a reflection, for the same reason."""
    thoughts_in_history: bool = False
    """``react``, ``retry``, ``reflexion``: show earlier thoughts next to their actions; the paper's template does not."""
