"""What chat endpoints do, by the rows of ``docs/endpoints.md``: several forms of each, as services send them."""

import re
from dataclasses import dataclass, field
from typing import Any

from tests.chat_server import USAGE, Action, answers, completion
from tests.documents import ROOT

PAGE = ROOT / "docs" / "endpoints.md"
WORDS = "these are the words of the service"
TEXT = "<action>look</action>"
THOUGHT = "open or <action>close</action>?"
UNKNOWN = {"usage": None}
NOTHING = {"usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}}


@dataclass(frozen=True)
class Form:
    """A response of a server."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def action(self) -> Action:
        return answers(self.body, self.status, **self.headers)


def rows(heading: str) -> dict[str, str]:
    """Return a table of the page: what happens, by what the server does."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+) \| (.+) \|$", section, re.MULTILINE)
    return dict(cells[1:])


def reply(
    content: Any, finish: str | None = "stop", message: dict[str, Any] | None = None, **more: Any
) -> Form:
    value = completion(content, finish, **more)
    value["choices"][0]["message"] |= message or {}
    return Form(value)


def error(status: int, message: str = WORDS, said: int | None = None, **codes: Any) -> Form:
    """Return an error; ``said`` is the status that the body has, where the response's own is another one."""
    return Form({"error": {"message": message, "code": said, **codes}}, status)


def _within(message: str, **codes: Any) -> Form:
    return Form({"error": {"message": message, **codes}})


_LONG_WORDS = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "the request exceeds the available context size, try increasing it",
    "prompt is too long: 205030 tokens > 200000 maximum",
    "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 8000 `inputs` tokens",
    "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 40 tokens.",
    "Input is too long for requested model.",
)

REPLIES: dict[str, list[Form]] = {
    "text": [
        reply(TEXT),
        reply(TEXT, "end_turn"),
        reply(f" {TEXT}\n", system_fingerprint=None, service_tier="default"),
    ],
    "text in blocks: a list of parts, or one part": [
        reply([{"type": "text", "text": TEXT}]),
        reply(
            [
                {"type": "text", "text": TEXT[:4]},
                {"type": "output_text", "text": TEXT[4:], "annotations": []},
            ]
        ),
        reply({"type": "text", "text": TEXT}),
        reply([TEXT]),
    ],
    "text, and a thought in a field or a block of its own": [
        reply(TEXT, message={"reasoning_content": THOUGHT}),
        reply(
            TEXT,
            message={
                "reasoning": THOUGHT,
                "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}],
            },
        ),
        reply(TEXT, message={"reasoning_content": THOUGHT, "reasoning": THOUGHT}),
        reply(TEXT, message={"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}),
        reply(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                {"type": "text", "text": TEXT},
            ]
        ),
        reply(
            [{"type": "thinking", "thinking": THOUGHT, "signature": "x"}, {"type": "text", "text": TEXT}]
        ),
    ],
    "text that the limit has cut: `length`": [
        reply("<think>I could", "length"),
        reply(["<think>"], "length"),
    ],
    "text without a reason to end": [reply(TEXT, None), reply(TEXT, "")],
    "text without usage, which then counts at its most": [
        reply(TEXT, **UNKNOWN),
        reply(TEXT, usage={"prompt_tokens": "9", "completion_tokens": -1}),
        reply(TEXT, usage={"prompt_tokens": 10**30, "completion_tokens": 1}),
    ],
    "text, ended by a filter: `content_filter`": [
        reply("<think>I would", "content_filter"),
        reply("<think>I would", "content_filter: PROHIBITED_CONTENT"),
        reply("<think>I would", "SAFETY"),
    ],
    "no text, because of a filter": [
        reply(None, "content_filter"),
        reply("", "content_filter", **NOTHING),
        Form({"choices": [{"index": 0, "finish_reason": "content_filter: OTHER"}], "usage": None}),
    ],
    "no text, but a refusal": [
        reply(None, message={"refusal": "I cannot help with that."}),
        Form({"choices": [{"message": {"refusal": "I cannot"}, "finish_reason": "stop"}]}),
        reply([{"type": "refusal", "refusal": "I cannot"}]),
        reply(None, "refusal", **NOTHING),
    ],
    "no text, since the limit was used up before: `length`": [
        reply(None, "length"),
        reply("", "model_length"),
        reply("\n\n", "length", message={"reasoning_content": THOUGHT}),
        Form({"choices": [{"message": {"role": "assistant"}, "finish_reason": "length"}]}),
    ],
    "no text, but a thought, and a reason to end": [
        reply(None, message={"reasoning_content": f"{THOUGHT} {TEXT}"}, **UNKNOWN),
        reply("", message={"reasoning": f"{THOUGHT} {TEXT}"}, **NOTHING),
        reply("\n\n", "eos", message={"reasoning_content": TEXT, "reasoning": TEXT}, **UNKNOWN),
        reply([{"type": "thinking", "thinking": THOUGHT}], **UNKNOWN),
        reply(
            [], message={"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, **UNKNOWN
        ),
    ],
    "no text, but a call of a tool": [
        reply(None, "tool_calls", message={"tool_calls": [{"function": {"name": "look"}}]}, **UNKNOWN),
        reply(
            "",
            "function_call",
            message={"function_call": {"name": "look", "arguments": "{}"}},
            **NOTHING,
        ),
        reply([{"type": "image_url", "image_url": {"url": "data:"}}], **UNKNOWN),
    ],
    "no text, a reason to end, and tokens of the response in the usage": [
        reply(None),
        reply(""),
        reply([]),
        reply(" \n"),
    ],
    "no text, and nothing that says that the model had its turn": [
        reply(None, None),
        reply("", None, message={"reasoning_content": THOUGHT}),
        reply("", "stop", **NOTHING),
        reply(None, "stop", **UNKNOWN),
        Form({"choices": [{"message": {}, "finish_reason": "stop"}]}),
        Form({"choices": []}),
        Form({"object": "chat.completion", "model": "fake", "choices": None, "usage": USAGE}),
        Form({"object": "chat.completion", "model": "fake", "usage": USAGE}),
    ],
    "a reply that the service itself ended: `error`, `abort`": [
        reply("", "error"),
        reply(TEXT, "error"),
        reply("<act", "abort"),
        reply(None, "insufficient_system_resource", message={"reasoning_content": THOUGHT}),
        Form(
            {
                "choices": [
                    {"finish_reason": "error", "message": {}, "error": {"code": 502, "message": WORDS}}
                ]
            }
        ),
    ],
    "status 200, and an error in the body": [
        _within(WORDS),
        _within(WORDS, code=502, metadata={"raw": "upstream", "provider_name": "x"}),
        _within(WORDS, code="429"),
        Form([{"error": {"message": WORDS, "status": "UNAVAILABLE", "code": 503}}]),
        Form({"error": WORDS, "choices": []}),
        Form({"object": "error", "message": WORDS, "type": "InternalServerError", "code": 500}),
        Form({**completion("", "stop"), "error": {"message": WORDS}}),
    ],
    "a body that is not JSON, or no chat completion": [
        Form(b'{"choices": [{"mess'),
        Form(b"<html>It works!</html>"),
        Form(b""),
        Form(b"[" * 100_000),
        Form(b'{"choices": [' + b"9" * 5_000 + b"]}"),
        Form(b"\xff\xfe\x00"),
        Form([1]),
        Form("text"),
        Form({"choices": ["a"]}),
        Form({"choices": [{"message": "a"}]}),
        Form({"id": 3}),
    ],
    "content of a form that is not known": [reply(5), reply([5]), reply([[TEXT]]), reply(True)],
}

ERRORS: dict[str, list[Form]] = {
    "408, 409, 425, 429 or 5xx": [
        *(error(status) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)),
        Form(f"<html>{WORDS}</html>".encode(), 502),
        Form({"error": {"message": WORDS, "status": "RESOURCE_EXHAUSTED"}}, 429),
        Form([{"error": {"message": f"You exceeded your current quota, {WORDS}"}}], 429),
        error(429, f"context window of a minute, {WORDS}", said=429),
        error(503, f"The request rate exceeds what this server takes. {WORDS}"),
        error(504, f"The request took too long. {WORDS}"),
        error(500, f"Evaluation of the prompt took too long. {WORDS}"),
        error(500, f"The content moderation is out of order. {WORDS}"),
    ],
    "a filter's refusal of the prompt, with a code for it: 400, 422, or 200 with that in the body": [
        error(
            400, said=None, innererror={"code": "ResponsibleAIPolicyViolation"}, type="content_filter"
        ),
        Form({"error": {"message": WORDS, "code": "content_filter", "status": 400}}, 400),
        Form(
            {"error": {"message": WORDS, "type": "invalid_request_error", "code": "invalid_prompt"}}, 400
        ),
        Form({"error": {"message": WORDS, "code": "data_inspection_failed"}}, 400),
        error(422, type="content_filter"),
        _within(WORDS, code="content_policy_violation"),
    ],
    "a filter's refusal of the prompt, in words alone, or with 403": [
        error(422, f"Your input was flagged by moderation: {WORDS}"),
        error(400, f"Content Exists Risk: {WORDS}", type="invalid_request_error"),
        error(400, f"The request was rejected because it was considered high risk. {WORDS}"),
        error(451, f"Blocked by our safety system. {WORDS}"),
        error(403, WORDS, said=403, metadata={"reasons": ["violence"], "raw": "your input was flagged"}),
        error(403, f"Content violates usage guidelines. {WORDS}"),
    ],
    "a prompt longer than the context: 400, 422, 500, or 200 with that in the body": [
        *(
            error(400, f"{words} {WORDS}", type="invalid_request_error", param="messages")
            for words in _LONG_WORDS
        ),
        Form(
            {
                "object": "error",
                "message": f"{_LONG_WORDS[0]} {WORDS}",
                "type": "BadRequestError",
                "code": 400,
            },
            400,
        ),
        Form({"error": {"message": WORDS, "code": "context_length_exceeded"}}, 400),
        Form({"error": {"message": WORDS, "type": "exceed_context_size_error", "n_ctx": 8192}}, 400),
        Form({"detail": f"{_LONG_WORDS[1]} {WORDS}"}, 422),
        error(500, f"{_LONG_WORDS[2]} {WORDS}"),
        _within(f"{_LONG_WORDS[0]} {WORDS}", code=400),
        _within(WORDS, code=400, metadata={"raw": _LONG_WORDS[3]}),
    ],
    "413": [
        Form(f"<html>{WORDS}</html>".encode(), 413),
        Form({"error": {"message": WORDS, "code": "tokens_limit_reached"}}, 413),
        Form({"error": {"message": WORDS, "type": "request_too_large"}}, 413),
        Form(WORDS.encode(), 413),
    ],
    "413, about the account's tokens per minute": [
        Form(
            {
                "error": {
                    "message": f"Request too large for model x. {WORDS}",
                    "code": "rate_limit_exceeded",
                }
            },
            413,
        ),
        error(413, f"Request too large on tokens per minute (TPM): Limit 6000, Requested 7000. {WORDS}"),
    ],
    "400 or 422 for another reason": [
        error(400),
        Form({"detail": [{"loc": ["body", "messages"], "msg": WORDS}]}, 422),
        Form({"error": WORDS}, 400),
        Form(WORDS.encode(), 400),
    ],
    "400 or 422, about a parameter": [
        error(
            400,
            f"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'. {WORDS}",
            code="unsupported_parameter",
        ),
        error(
            400,
            f"Unsupported value: 'temperature' does not support 0.4 with this model. {WORDS}",
            code="unsupported_value",
        ),
        error(400, f"Unrecognized request argument supplied: max_completion_tokens. {WORDS}"),
        error(422, f"`temperature` is deprecated for this model. {WORDS}"),
    ],
    "401, or 400 about the key": [
        error(401),
        Form({"message": WORDS}, 401),
        Form({"error": {"message": WORDS, "code": "invalid_api_key"}}, 400),
        Form(
            [
                {
                    "error": {
                        "message": f"API key not valid. {WORDS}",
                        "status": "INVALID_ARGUMENT",
                        "code": 400,
                    }
                }
            ],
            400,
        ),
        _within(WORDS, code=401),
    ],
    "402, or any status about credit or quota": [
        error(402),
        Form({"error": {"message": WORDS, "code": "insufficient_quota"}}, 429),
        error(400, f"Your credit balance is too low to access the API. {WORDS}"),
        error(403, f"Insufficient balance. {WORDS}"),
        Form({"error": {"message": WORDS, "code": "billing_hard_limit_reached"}}, 400),
        _within(f"Insufficient credits. {WORDS}", code=402),
    ],
    "403 for another reason": [
        error(403),
        Form(f"<html>{WORDS}</html>".encode(), 403),
        Form({"detail": WORDS}, 403),
    ],
    "404 or another 4xx": [
        *(error(status) for status in (404, 405, 410, 415, 431)),
        _within(WORDS, code=404),
    ],
    "407 from a proxy": [error(407), Form(f"<html>{WORDS}</html>".encode(), 407)],
    "`Retry-After` of more than ten minutes": [
        Form({"error": {"message": WORDS}}, 429, {"Retry_After": "7200"}),
        Form({"error": {"message": WORDS}}, 503, {"Retry_After": "601"}),
        Form({"error": {"message": WORDS}}, 429, {"Retry_After": "Fri, 01 Jan 2100 00:00:00 GMT"}),
    ],
}
