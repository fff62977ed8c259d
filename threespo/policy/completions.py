"""What a chat endpoint has answered: the model's words, its thought, or that there are none."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from threespo.policy.cassette import Refusal, Reply
from threespo.policy.failures import Failure, ServiceError, find_error

_FILTERED = ("content_filter", "safety", "prohibited_content", "recitation", "blocklist", "sensitive")
"""Reasons to end by which services say that a filter did; some have more after a colon."""

_CUT = ("length", "max_tokens", "model_length")
"""Reasons by which they say that a limit did."""

_BROKEN = ("error", "abort", "insufficient_system_resource")
"""Reasons by which they say that they have failed."""

_LARGEST_COUNT = 10**9
"""Tokens; no reply has more, so a larger count is none."""


@dataclass(slots=True)
class _Said:
    """What a message holds."""

    text: str = ""
    thought: str | None = None
    declined: bool = False
    acted: bool = False
    """Whether the model did something else than to write: called a tool, drew a picture."""

    def think(self, thought: str) -> None:
        self.thought = (self.thought or "") + thought


def parse_reply(
    body: str, digest: str, model: str, most: tuple[int, int]
) -> Reply | ServiceError | Failure:
    """Read a chat completion.

    A reply without text is a reply, and not asked for again, where the service says that the model had its turn: a refusal,
    a filter, a thought that used up the limit or that nothing followed. To ask until the model complies would bias the
    sample. Where nothing says so, it is a failure, to be tried again, and stands if every attempt ends like that.

    Args:
        body: what the server sent.
        digest: name of the request.
        model: the model that was asked.
        most: tokens of prompt and response to count if the server reports no usage.

    Returns:
        The reply; or the error that the body holds in its place; or a failure.
    """
    try:
        return _read(json.loads(body), digest, model, most)
    except RecursionError:
        return Failure("the body is nested too deeply", retry=True)
    # Also a number of more digits than Python reads.
    except ValueError:
        return Failure("the body is not JSON", retry=True)


def _read(value: Any, digest: str, model: str, most: tuple[int, int]) -> Reply | ServiceError | Failure:
    error = find_error(value) or _error_of_choice(value)
    if error is not None:
        return error

    choice = _first_choice(value)
    message = {} if choice is None else choice.get("message", {})
    if choice is None or not isinstance(message, dict | None):
        return Failure("the body is no chat completion", retry=True)

    finish = _clean(choice.get("finish_reason"))
    ending = (finish or "").partition(":")[0].strip().lower()
    if ending in _BROKEN:
        return Failure(f"the service ended the reply with {ending!r}", retry=True)
    said = _read_message(message or {})
    if said is None:
        return Failure("the message's content has a form that is not known", retry=True)

    tokens = _usage(value.get("usage"))
    reply = Reply(
        digest=digest,
        asked=model,
        served=_clean(value.get("model")) or "",
        text=_clean(said.text) or "",
        finish=finish,
        tokens=tokens or most,
        bound=tokens is None,
        thought=_clean(said.thought),
        refused=_refusal(said, ending),
    )
    # A count of the response's tokens says that the model wrote, even if nothing of it is shown.
    ended = bool(finish) and (
        said.acted or said.thought is not None or (tokens is not None and tokens[1] > 0)
    )
    if reply.refused == "no_text" and not ended:
        return Failure("the reply has no text", retry=True, counts_as=reply, tokens=tokens or (0, 0))
    return reply


def _refusal(said: _Said, ending: str) -> Refusal | None:
    if ending in _FILTERED:
        return "reply_filtered"
    if said.text.strip():
        return None
    if said.declined or ending == "refusal":
        return "declined"
    return "cut" if ending in _CUT else "no_text"


def _first_choice(value: Any) -> dict[str, Any] | None:
    """Return the first choice; an empty one if the completion has none, as of a prompt that a service holds back."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    if not choices and ("choices" in value or value.get("object") == "chat.completion"):
        return {}
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _error_of_choice(value: Any) -> ServiceError | None:
    choice = _first_choice(value)
    return find_error({"error": choice.get("error")}) if choice else None


def _read_message(message: dict[str, Any]) -> _Said | None:
    """Return what a message holds; ``None`` if its content has a form that is not known."""
    said = _Said(
        declined=bool(message.get("refusal")),
        acted=any(message.get(name) for name in ("tool_calls", "function_call", "audio")),
    )
    for name in ("reasoning_content", "reasoning", "thinking"):
        # Servers that give the thought two names give it twice.
        if isinstance(thought := message.get(name), str) and thought.strip():
            said.thought = thought
            break
    if said.thought is None and message.get("reasoning_details"):
        said.think("".join(_texts(message["reasoning_details"])))

    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if isinstance(block, str):
            said.text += block
        elif isinstance(block, dict):
            _read_block(block, said)
        elif block is not None:
            return None
    return said


def _read_block(block: dict[str, Any], said: _Said) -> None:
    """Add a part of the content to what is said."""
    kind = str(block.get("type", "text"))
    if kind in ("text", "output_text") and isinstance(block.get("text"), str):
        said.text += block["text"]
    elif "thinking" in kind or "reasoning" in kind:
        said.think("".join(_texts([block])))
    elif kind == "refusal":
        said.declined = True
    else:
        said.acted = True


def _texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of a thought's blocks, which may lie within one another; one that is encrypted has none."""
    for block in blocks if isinstance(blocks, list) else [blocks]:
        if isinstance(block, str):
            yield block
        elif isinstance(block, dict):
            for name in ("text", "thinking", "reasoning", "summary", "content"):
                yield from _texts(block.get(name))


def _usage(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    prompt, response, total = (
        _count(usage.get(f"{part}_tokens")) for part in ("prompt", "completion", "total")
    )
    if prompt is None or response is None:
        return None
    # Some services bill thinking as output but show it in the total only.
    return prompt, response if total is None else max(response, total - prompt)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST_COUNT else None


def _clean(text: Any) -> str | None:
    # JSON can spell half a character (a lone surrogate), which no file can hold.
    return text.encode(errors="replace").decode() if isinstance(text, str) else None
