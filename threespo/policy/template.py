"""How a chat template sets a prompt, and what it writes around it of its own: a system message, a date, a thought.

A template may open the model's thought itself (``<think>`` at the end of the prompt, as thinking models have it). The tag
then stands in the prompt and not in what the model writes, yet it is part of the answer: ``ChatTemplate.opening``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from threespo.envs.parsing import unclosed_thought
from threespo.errors import InputError, format_names
from threespo.policy.settings import RESERVED_TEMPLATE_VARIABLES, TemplateSettings

_PROBE = "what is to be done next"
"""A message that shows what a template writes around any other; one that trims or lowers its text leaves it as it is."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A chat template with all that it reads besides the message."""

    tokenizer: Any
    values: Mapping[str, Any]
    """What the study gives it: its variables, and a clock that stands still."""
    in_blocks: bool
    """Whether it reads a message as a list of typed blocks, as those of models with images do."""
    before: str = ""
    """What it writes before a user's message: a system message of its own, a date, the role."""
    after: str = ""
    """What it writes behind the message, up to where the model goes on."""

    @property
    def opening(self) -> str:
        """The thought that it has opened for the model, if it has: the beginning of every response."""
        return unclosed_thought(self.after)

    def render(self, prompt: str) -> str:
        """Return a user's message as the model reads it, special tokens included."""
        content = [{"type": "text", "text": prompt}] if self.in_blocks else prompt
        text: str = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=False,
            add_generation_prompt=True,
            **self.values,
        )
        return text


def read_template(tokenizer: Any, settings: TemplateSettings, source: str) -> ChatTemplate | None:
    """Return a tokenizer's chat template; ``None`` if it has none.

    Args:
        tokenizer: with its template.
        settings: what the study gives the template.
        source: what messages call the policy.

    Raises:
        InputError: if the template does not read what the study gives it, or does not show a user's message.
    """
    if tokenizer.chat_template is None:
        if settings.chat_template_kwargs:
            raise InputError(
                f"{source}: chat_template_kwargs: the tokenizer has no chat template; leave it out"
            )
        return None

    day = date.fromisoformat(settings.chat_template_date)
    # What is passed stands before the template's global names, among which is the clock of the machine.
    values = {**settings.chat_template_kwargs, "strftime_now": day.strftime}
    _check_names(tokenizer, settings.chat_template_kwargs, source)

    shown = words = None
    for in_blocks in (False, True):
        template = ChatTemplate(tokenizer, values, in_blocks)
        try:
            shown = template.render(_PROBE)
        # A template raises what its own text leads to: its refusals, type errors, missing names.
        except Exception as error:
            words = words or " ".join(str(error).split()) or type(error).__name__
            continue
        before, found, after = shown.rpartition(_PROBE)
        if found:
            return ChatTemplate(tokenizer, values, in_blocks, before, after)
    raise InputError(
        f"{source}: the chat template does not show a user's message ("
        + (f"it refuses one: {words[:200]}" if shown is None and words else "it leaves its text out")
        + "). Mend chat_template in tokenizer_config.json or chat_template.jinja, or give what it asks for in "
        "chat_template_kwargs."
    )


def _check_names(tokenizer: Any, given: Mapping[str, Any], source: str) -> None:
    """Refuse variables that the template does not read: a misspelt one would change nothing without a word."""
    text = tokenizer.get_chat_template()
    for name in given:
        if not re.search(rf"\b{name}\b", text):
            known = format_names(list_template_variables(tokenizer))
            raise InputError(
                f"{source}: chat_template_kwargs.{name}: the chat template does not read it; it reads {known}"
            )


def list_template_variables(tokenizer: Any) -> list[str]:
    """Return the variables that a chat template leaves to whoever uses it: those that it asks whether they are given."""
    found = set(
        re.findall(r"\b([A-Za-z_]\w*)\s+is\s+(?:not\s+)?defined\b", tokenizer.get_chat_template())
    )
    return sorted(found - RESERVED_TEMPLATE_VARIABLES)
