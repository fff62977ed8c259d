"""Files that logs come in: JSON lines, a JSON list, objects over several lines; UTF-8 or UTF-16; plain, ``.gz`` or ``.xz``.

A file's first bytes decide how it is read, not its name.
"""

import io
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from threespo.errors import InputError
from threespo.files import open_compressed

_WRITE_LINES = "write it as lines: pandas.{}(…).to_json('log.jsonl', orient='records', lines=True)"
# Kinds of files by their first bytes.
_COMPRESSED = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz"}
_UNREADABLE = {
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it first: zstd -d",
    b"BZh": "compressed by bzip2; unpack it first: bunzip2",
    b"PK\x03\x04": "a zip archive; unpack it first, and give one of its files",
    b"PAR1": f"a parquet file; {_WRITE_LINES.format('read_parquet')}",
}
_UNREADABLE_TEXTS = {
    r"#####|\*{5} Start Trial|Environment #\d+": "a text log of Reflexion, which is not read; write "
    "info['extra.gamefile'] and success as a JSON line for each episode",
    r"\[EXP\] \d+": "a summary of AgentBoard (TASK.txt), which names no games; give logs/TASK.jsonl",
    r'"?\w+"?(,"?\w+"?)+\s*$': f"a table; {_WRITE_LINES.format('read_csv')}",
}
"""First lines of texts that are no JSON -> what they are."""
_HEAD_BYTES = max(map(len, (*_COMPRESSED, *_UNREADABLE)))
_FIRST_LINES = 5
_BLANKS = re.compile(r"\s*")
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class LogEntry(NamedTuple):
    """An entry of a log."""

    number: int
    """Of its line, or of its place in a list."""
    where: str
    """Names file and place in messages."""
    value: Any


def read_entries(path: Path) -> Iterator[LogEntry]:
    """Yield the entries of a log, one after the other, as far as its form allows.

    Raises:
        InputError: if the file is missing, of another kind, damaged, or no JSON.
    """
    number = 0
    line = ""
    try:
        with _open_log(path) as content:
            encoding = "utf-16" if content.peek(2)[:2] in _UTF_16_MARKS else "utf-8-sig"
            text = io.TextIOWrapper(content, encoding=encoding)
            for number, line in enumerate(text, start=1):
                if not line.strip():
                    continue
                try:
                    value = json.loads(line)
                except json.JSONDecodeError as error:
                    # A value that ends too early may go on in the next line.
                    if error.pos < len(line.rstrip()):
                        raise
                    yield from _number_entries(_parse_values(line + text.read()), path)
                    return
                if isinstance(value, list):
                    yield from _number_entries([value, *_parse_values(text.read())], path)
                    return
                yield LogEntry(number, f"{path}, line {number}", value)
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: no such file; expected a log of episodes, such as JSON lines"
        ) from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError, RecursionError) as error:
        for pattern, remedy in _UNREADABLE_TEXTS.items():
            if number < _FIRST_LINES and re.match(pattern, line):
                raise InputError(f"{path}: {remedy}") from error
        raise InputError(
            f"{path}, after line {number}: not readable as JSON lines ({error}); expected a JSON object a line, in UTF-8"
        ) from error


def _open_log(path: Path) -> io.BufferedReader:
    """Open a log for reading its unpacked bytes."""
    if path.is_dir():
        raise InputError(f"{path}: a folder; give one file, such as of: cat {path}/*.json > log.jsonl")
    # A pipe can be read once only.
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        for signature, remedy in _UNREADABLE.items():
            if head.startswith(signature):
                raise InputError(f"{path}: {remedy}")
        for signature, suffix in _COMPRESSED.items():
            if head.startswith(signature):
                return open_compressed(path, suffix)
    return path.open("rb")


def _parse_values(text: str) -> Iterator[Any]:
    """Yield JSON values that follow each other, over any number of lines."""
    decoder = json.JSONDecoder()
    position = _skip_blanks(text, 0)
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        yield value
        position = _skip_blanks(text, end)


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    return found.end() if found else position


def _number_entries(values: Iterable[Any], path: Path) -> Iterator[LogEntry]:
    """Yield an entry for each value, and for each element of those that are lists."""
    number = 0
    for value in values:
        elements = value if isinstance(value, list) else [value]
        for element in elements:
            number += 1
            yield LogEntry(number, f"{path}, entry {number}", element)
