"""What a chat endpoint has answered: the model's words, its thought, or that there are none."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from threespo.policy.cassette import Refusal, Reply
from threespo.policy.failures import Failure, ServiceError, find_error

_FILTER_REASONS = (
    "content_filter", "safety", "prohibited_content", "recitation", "blocklist", "sensitive"
)  # fmt: skip
"""Finish reasons by which services say that a filter has ended a reply; some have more after a colon."""

_LIMIT_REASONS = ("length", "max_tokens", "model_length")
"""Finish reasons by which they say that a limit has."""

_FAILURE_REASONS = ("error", "abort", "insufficient_system_resource")
"""Finish reasons by which they say that they have failed."""

_MAX_TOKEN_COUNT = 10**9
"""No reply has more tokens, so a larger count is an error of the service."""


@dataclass(slots=True)
class _MessageContent:
    text: str = ""
    thought: str | None = None
    declined: bool = False
    has_other_output: bool = False
    """Whether the model did something else than to write: called a tool, drew a picture."""

    def add_thought(self, thought: str) -> None:
        self.thought = (self.thought or "") + thought


def parse_reply(
    body: str, digest: str, model: str, max_tokens: tuple[int, int]
) -> Reply | ServiceError | Failure:
    """Read a chat completion.

    A reply without text is a reply, and not asked for again, where the service says that the model had its turn: a refusal,
    a filter, a thought that used up the limit or that nothing followed. To ask until the model complies would bias the
    sample. Where nothing says so, it is a failure, to be tried again, and counts if every attempt ends like that.

    Args:
        body: what the server sent.
        digest: name of the request.
        model: the model that was asked.
        max_tokens: tokens of prompt and response to count if the server reports no usage.

    Returns:
        The reply; or the error that the body holds in its place; or a failure.
    """
    try:
        return _parse_completion(json.loads(body), digest, model, max_tokens)
    except RecursionError:
        return Failure("the body is nested too deeply", retry=True)
    # ValueError also of a number with more digits than Python reads.
    except ValueError:
        return Failure("the body is not JSON", retry=True)


def _parse_completion(
    value: Any, digest: str, model: str, max_tokens: tuple[int, int]
) -> Reply | ServiceError | Failure:
    choice = _find_first_choice(value)
    error = find_error(value) or (find_error({"error": choice.get("error")}) if choice else None)
    if error is not None:
        return error

    message = {} if choice is None else choice.get("message", {})
    if choice is None or not isinstance(message, dict | None):
        return Failure("the body is no chat completion", retry=True)

    finish = _replace_surrogates(choice.get("finish_reason"))
    finish_reason = (finish or "").partition(":")[0].strip().lower()
    if finish_reason in _FAILURE_REASONS:
        return Failure(f"the service ended the reply with {finish_reason!r}", retry=True)
    content = _parse_message(message or {})
    if content is None:
        return Failure("the message's content has a form that is not known", retry=True)

    tokens = _parse_usage(value.get("usage"))
    reply = Reply(
        digest=digest,
        asked=model,
        served=_replace_surrogates(value.get("model")) or "",
        text=_replace_surrogates(content.text) or "",
        finish=finish,
        tokens=tokens or max_tokens,
        bound=tokens is None,
        thought=_replace_surrogates(content.thought),
        refused=_find_refusal(content, finish_reason),
    )

    # A count of the response's tokens says that the model wrote, even if nothing of it is shown.
    has_tokens = tokens is not None and tokens[1] > 0
    has_output = has_tokens or content.has_other_output or content.thought is not None
    if reply.refused == "no_text" and not (finish and has_output):
        return Failure("the reply has no text", retry=True, counts_as=reply, tokens=tokens or (0, 0))
    return reply


def _find_refusal(content: _MessageContent, finish_reason: str) -> Refusal | None:
    if finish_reason in _FILTER_REASONS:
        return "reply_filtered"
    if content.text.strip():
        return None
    if content.declined or finish_reason == "refusal":
        return "declined"
    # Without text, the limit was used up by a thought or before any word.
    return "cut" if finish_reason in _LIMIT_REASONS else "no_text"


def _find_first_choice(value: Any) -> dict[str, Any] | None:
    """Return the first choice; an empty one if the completion has none, as of a prompt that a service holds back."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    if not choices and ("choices" in value or value.get("object") == "chat.completion"):
        return {}
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _parse_message(message: dict[str, Any]) -> _MessageContent | None:
    """Return what a message contains; ``None`` if its content has an unknown form."""
    parsed = _MessageContent(
        declined=bool(message.get("refusal")),
        has_other_output=any(message.get(name) for name in ("tool_calls", "function_call", "audio")),
    )
    for name in ("reasoning_content", "reasoning", "thinking"):
        thought = message.get(name)
        # The first name only: servers that give the thought two names give it twice.
        if isinstance(thought, str) and thought.strip():
            parsed.thought = thought
            break
    if parsed.thought is None and message.get("reasoning_details"):
        parsed.add_thought("".join(_find_texts(message["reasoning_details"])))

    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if isinstance(block, str):
            parsed.text += block
        elif isinstance(block, dict):
            _add_block(block, parsed)
        elif block is not None:
            return None
    return parsed


def _add_block(block: dict[str, Any], parsed: _MessageContent) -> None:
    kind = str(block.get("type", "text"))
    if kind in ("text", "output_text") and isinstance(block.get("text"), str):
        parsed.text += block["text"]
    elif "thinking" in kind or "reasoning" in kind:
        parsed.add_thought("".join(_find_texts([block])))
    elif kind == "refusal":
        parsed.declined = True
    else:
        parsed.has_other_output = True


def _find_texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of a thought's blocks, which may be nested; an encrypted one has none."""
    for block in blocks if isinstance(blocks, list) else [blocks]:
        if isinstance(block, str):
            yield block
        elif isinstance(block, dict):
            for name in ("text", "thinking", "reasoning", "summary", "content"):
                yield from _find_texts(block.get(name))


def _parse_usage(usage: Any) -> tuple[int, int] | None:
    """Return the billed tokens of prompt and response; ``None`` if the service does not report them."""
    if not isinstance(usage, dict):
        return None
    prompt = _parse_count(usage.get("prompt_tokens"))
    response = _parse_count(usage.get("completion_tokens"))
    total = _parse_count(usage.get("total_tokens"))
    if prompt is None or response is None:
        return None
    # Some services bill thinking as output but show it in the total only.
    return prompt, response if total is None else max(response, total - prompt)


def _parse_count(value: Any) -> int | None:
    # Not isinstance, by which True would be a count.
    return value if type(value) is int and 0 <= value <= _MAX_TOKEN_COUNT else None


def _replace_surrogates(text: Any) -> str | None:
    # JSON can spell half a character (a lone surrogate), which no file can store.
    return text.encode(errors="replace").decode() if isinstance(text, str) else None
