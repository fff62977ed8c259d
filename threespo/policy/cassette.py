"""Replies of a paid service, kept in a file (a *cassette*): one JSON line each, appended as they arrive.

A recorded reply is never asked for again, so a killed run resumes where it was, and anyone with the file can rebuild its
table offline and free of charge. A prompt is stored as part of a digest only.
"""

import contextlib
import hashlib
import json
import logging
import lzma
import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threespo.errors import InputError
from threespo.files import read_bytes, read_lock_holder, try_lock, write_lock_holder
from threespo.protocol import Counters

_log = logging.getLogger(__name__)

Refusal = Literal[
    "prompt_filtered", "prompt_too_long", "prompt_refused", "reply_filtered", "declined", "no_text", "cut"
]  # fmt: skip
"""Why a reply has none of the model's words, or not all of them. It counts as it is, and the report says how many do.

The service refused the prompt: because of its filter, its length, or a reason that is not recognised. Its filter withheld
the reply. The model declined in words for the user, not in a reply. It ended its turn without text, or was cut before any.
"""

REFUSAL_DESCRIPTIONS: dict[Refusal, str] = {
    "prompt_filtered": "prompt refused by the service's filter",
    "prompt_too_long": "prompt longer than the service takes",
    "prompt_refused": "prompt refused for a reason that is not known",
    "reply_filtered": "withheld or ended by the service's filter",
    "declined": "declined by the model",
    "no_text": "without text",
    "cut": "cut before any text",
}


class Reply(BaseModel):
    """One reply of the service: a line of a cassette."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    digest: str = Field(pattern=r"^[0-9a-f]{32}$")
    """What was asked (``request_digest``)."""
    asked: str
    """The model that was asked for."""
    served: str
    """The model that answered, as the service names it, usually with a date; empty if it did not say."""
    text: str
    finish: str | None
    """The service's reason to end: ``stop``, ``length`` (the limit cut it), ``content_filter``, ..."""
    tokens: tuple[int, int]
    """Tokens of prompt and response as billed, thinking included."""
    bound: bool = False
    """Whether the service did not report its usage, so that ``tokens`` is the most that it can have been."""
    thought: str | None = None
    """What the model thought, where the service sends that apart from ``text``; empty if it only says that it did."""
    refused: Refusal | None = None
    """Why the model's words are missing, where they are (``refusal`` also knows replies from before this field)."""

    @property
    def refusal(self) -> Refusal | None:
        """Why the model's words are missing or end early; ``None`` for an answer, also for one that its limit has cut."""
        if self.refused or self.finish == "content_filter":
            return self.refused or "reply_filtered"
        if self.text.strip():
            return None
        return "cut" if self.finish == "length" else "no_text"


def describe_refusals(replies: Iterable[Reply]) -> str:
    """Return how many of the replies are refusals, and of which kinds; empty if none is."""
    counts = Counter(reply.refusal for reply in replies)
    refusals = counts.total() - counts[None]
    if not refusals:
        return ""
    kinds = [
        f"{REFUSAL_DESCRIPTIONS[kind]} ({counts[kind]:,})" for kind in get_args(Refusal) if counts[kind]
    ]
    return f"{refusals:,} of {counts.total():,} replies count without a full answer: {', '.join(kinds)}"


def request_digest(
    *,
    model: str,
    prompt: str,
    temperature: float | None,
    seed: int,
    key: Counters,
    index: int,
    max_response_tokens: int,
    limit_parameter: str = "max_tokens",
) -> str:
    """Return the name, 32 hexadecimal digits, under which one response is recorded.

    Args:
        model: the model that is asked.
        prompt: the user message.
        temperature: of sampling; ``None`` where it is not sent.
        seed: seed of the run.
        key: key of the sample request.
        index: number of the response within the request, from 0.
        max_response_tokens: where the response is cut.
        limit_parameter: the name under which that is sent.
    """
    # 1 and 1.0 are one temperature, but two texts in JSON.
    exact_temperature = None if temperature is None else float(temperature)
    request: list[Any] = [model, prompt, exact_temperature, seed, list(key), index, max_response_tokens]
    # The default is left out: cassettes from before this option keep their digests.
    if limit_parameter != "max_tokens":
        request.append(limit_parameter)
    return hashlib.blake2b(json.dumps(request).encode(), digest_size=16).hexdigest()


def read_replies(path: Path) -> tuple[list[Reply], int]:
    """Return the replies in a cassette (none if there is no such file) and the byte at which its last whole line ends.

    A file ``*.xz`` is decompressed. An incomplete last line, which a killed process leaves, is skipped with a warning.

    Raises:
        InputError: if the file cannot be read or another line is not a reply.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return [], 0
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); fetch it again, or remove it to start anew."
        ) from error

    *lines, last_line = content.split(b"\n")
    replies = [_parse_line(line, path, number) for number, line in enumerate(lines, 1)]
    if not last_line:
        return replies, len(content)

    # A last line without its line break may still be a complete reply, e.g. after an edit by hand.
    try:
        replies.append(Reply.model_validate_json(last_line))
        return replies, len(content)
    except ValidationError:
        number = len(lines) + 1
        _log.warning("%s: line %d is torn, as a killed run leaves it; it is left out", path, number)
    return replies, len(content) - len(last_line)


def _parse_line(line: bytes, path: Path, number: int) -> Reply:
    try:
        return Reply.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "line"
        raise InputError(
            f"{path}: line {number} is no recorded reply ({field}: {first['msg']}). Restore the file, or delete the line; "
            "what it held is then asked again."
        ) from None


class Cassette:
    """The replies of one file, to which one process at a time may append.

    Attributes:
        initial_replies: every reply that the file had when it was opened.
        recorded: reply of each digest, new ones included; the first one if a file that was joined by hand has several.
    """

    def __init__(self, path: Path, *, append: bool) -> None:
        """Read the file and, with ``append``, lock it until ``close`` and cut off an incomplete last line.

        Args:
            path: the file; it need not exist.
            append: whether replies will be added. If not, nothing is locked or written, so a cassette can be read while
                another process adds to it.

        Raises:
            InputError: if another process has locked it, it cannot be read or written, or ``append`` is asked of ``*.xz``.
        """
        self.path = path
        self._write_lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._file_lock: IO[str] | None = None

        if append and path.suffix == ".xz":
            raise InputError(
                f"{path}: a compressed cassette is read-only; decompress it (xz -dk) and name the result."
            )
        if append:
            self._file_lock = _lock_cassette(path)

        # After the lock, so that no other process appends between reading and writing.
        try:
            self.initial_replies, self._end = read_replies(path)
            if append:
                self._file = self._open_for_appending()
        except BaseException:
            self.close()
            raise

        self.recorded: dict[str, Reply] = {}
        for reply in self.initial_replies:
            self.recorded.setdefault(reply.digest, reply)

    def _open_for_appending(self) -> IO[bytes]:
        try:
            # Unbuffered, so that a recorded reply survives the end of the process.
            file = self.path.open("ab", buffering=0)
            file.truncate(self._end)
            if self.initial_replies and not self.path.read_bytes().endswith(b"\n"):
                self._end += file.write(b"\n")
        except OSError as error:
            raise _recording_error(self.path, error) from error
        return file

    def record(self, reply: Reply) -> None:
        """Append a reply, on disk when this returns; any thread may call.

        Raises:
            InputError: if it cannot be written, e.g. because the disk is full; earlier lines stay whole.
            ValueError: if the cassette was not opened for appending.
        """
        if self._file is None:
            raise ValueError(f"{self.path} is not open for appending")

        line = reply.model_dump_json(exclude_defaults=True).encode() + b"\n"
        with self._write_lock:
            try:
                written = 0
                while written < len(line):
                    written += self._file.write(line[written:])
                # A reply that was paid must survive a power failure.
                os.fsync(self._file.fileno())
            except OSError as error:
                # The next line, perhaps of another thread, must not continue an incomplete one.
                with contextlib.suppress(OSError):
                    self._file.truncate(self._end)
                raise _recording_error(self.path, error) from error

            self._end += len(line)
            self.recorded[reply.digest] = reply

    def close(self) -> None:
        """Release the file and its lock."""
        for handle in (self._file, self._file_lock):
            if handle is not None:
                handle.close()
        self._file = None
        self._file_lock = None


def _lock_cassette(path: Path) -> IO[str]:
    lock_path = path.with_name(path.name + ".lock")
    handle = try_lock(lock_path)
    if handle is None:
        raise InputError(
            f"{path}: another process ({read_lock_holder(lock_path)}) is adding replies to this cassette. "
            "Wait for it or stop it; the lock ends with the process."
        )
    write_lock_holder(handle)
    return handle


def _recording_error(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: a reply cannot be recorded ({error.strerror}). What was recorded stays; free disk space or choose another "
        "folder, then run again: the run resumes."
    )
