"""How a chat template renders a prompt, and what it adds: a system message, a date, the beginning of a thought.

A template may open the model's thought itself (``<think>`` at the end of the prompt, as those of thinking models do). The
tag is then in the prompt and not in what the model writes, yet it is part of the answer: ``ChatTemplate.opening``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from threespo.envs.parsing import unclosed_thought
from threespo.errors import InputError, format_names
from threespo.policy.settings import RESERVED_TEMPLATE_VARIABLES, TemplateSettings

_PROBE_MESSAGE = "what is to be done next"
"""Rendered to see what a template writes around a message; templates that trim or lower their text leave it unchanged."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A chat template with all that it reads besides the message."""

    tokenizer: Any
    values: Mapping[str, Any]
    """What the study gives it: its variables, and a clock with a fixed date."""
    in_blocks: bool
    """Whether it reads a message as a list of typed blocks, as those of models with images do."""
    before: str = ""
    """What it writes before a user's message: a system message of its own, a date, the role."""
    after: str = ""
    """What it writes behind the message, up to where the model continues."""

    @property
    def opening(self) -> str:
        """The thought that it has opened for the model, the beginning of every response; empty if it opens none."""
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
        source: the policy's name in messages.

    Raises:
        InputError: if the template does not read what the study gives it, or does not show a user's message.
    """
    variables = settings.chat_template_kwargs
    if tokenizer.chat_template is None:
        if variables:
            raise InputError(
                f"{source}: chat_template_kwargs: the tokenizer has no chat template; leave it out"
            )
        return None

    _check_variables(tokenizer, variables, source)
    # A passed value precedes the template's globals, among which is the machine's clock.
    day = date.fromisoformat(settings.chat_template_date)
    values = {**variables, "strftime_now": day.strftime}

    is_rendered = False
    refusal = ""
    # As plain text first, which most templates read; those of models with images may want typed blocks.
    for in_blocks in (False, True):
        template = ChatTemplate(tokenizer, values, in_blocks)
        try:
            rendered = template.render(_PROBE_MESSAGE)
        # Any exception: a template may refuse a message, or fail by a type error or a missing name.
        except Exception as error:
            refusal = refusal or " ".join(str(error).split()) or type(error).__name__
            continue
        is_rendered = True
        before, found, after = rendered.rpartition(_PROBE_MESSAGE)
        if found:
            return ChatTemplate(tokenizer, values, in_blocks, before, after)

    reason = "it leaves its text out" if is_rendered else f"it refuses one: {refusal[:200]}"
    raise InputError(
        f"{source}: the chat template does not show a user's message ({reason}). Mend chat_template in "
        "tokenizer_config.json or chat_template.jinja, or give what it asks for in chat_template_kwargs."
    )


def _check_variables(tokenizer: Any, variables: Mapping[str, Any], source: str) -> None:
    """Refuse variables that the template does not read: a misspelt one would silently change nothing."""
    text = tokenizer.get_chat_template()
    for name in variables:
        if not re.search(rf"\b{name}\b", text):
            readable = format_names(list_template_variables(tokenizer))
            raise InputError(
                f"{source}: chat_template_kwargs.{name}: the chat template does not read it; it reads {readable}"
            )


def list_template_variables(tokenizer: Any) -> list[str]:
    """Return the variables that a chat template leaves to its user: those that it tests with ``is defined``."""
    template = tokenizer.get_chat_template()
    tested = re.findall(r"\b([A-Za-z_]\w*)\s+is\s+(?:not\s+)?defined\b", template)
    return sorted(set(tested) - RESERVED_TEMPLATE_VARIABLES)
