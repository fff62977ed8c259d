"""Products on disk: the original's JSON files, plain or xz-compressed.

``items`` is one list of products; ``instructions`` maps an asin to attributes and an instruction; ``human_goals`` maps an
asin to a list of goals. The original's own file names are understood too.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from threespo.envs.webshop.products import MAX_ASIN_LENGTH, Product, Record, parse_product
from threespo.errors import InputError
from threespo.files import open_text

_NAMES = {
    "items": ("items", "items_shuffle", "items_shuffle_1000"),
    "instructions": ("instructions", "items_ins_v2", "items_ins_v2_1000"),
    "human_goals": ("human_goals", "items_human_ins"),
}
# Characters that are read at once; the official file of 1.2 million products is too large to parse whole.
_CHUNK = 1 << 20
_REMEDY = "Fetch or copy the catalogue again, or give another folder."


def find_file(folder: Path, kind: str) -> Path | None:
    """Return a file of a catalogue, or None.

    Args:
        folder: where to look.
        kind: ``items``, ``instructions`` or ``human_goals``.
    """
    candidates = (
        folder / f"{name}{suffix}" for name in _NAMES[kind] for suffix in (".json", ".json.xz")
    )
    return next((path for path in candidates if path.is_file()), None)


def read_products(folder: Path, limit: int | None = None) -> Iterator[Product]:
    """Yield the products of a folder in the order of its items file.

    As in the original, records are skipped whose asin is ``nan``, longer than ten characters or repeated.

    Args:
        folder: the JSON files.
        limit: records of the items file that are read, None for all.

    Raises:
        InputError: if a file is missing or broken, or a record malformed; names the file, the record and what to do.
    """
    items = find_file(folder, "items")
    if items is None:
        raise InputError(f"{folder}: no items.json or items.json.xz there. {_REMEDY}")

    instructions = _read_mapping(folder, "instructions")
    human = _read_mapping(folder, "human_goals")
    seen: set[str] = set()
    for number, values in enumerate(read_array(items), start=1):
        if limit is not None and number > limit:
            break
        record = Record(values, f"{items}, record {number}")
        asin = record.text("asin")
        record.where += f" ({asin})"
        if asin == "nan" or len(asin) > MAX_ASIN_LENGTH or asin in seen:
            continue
        if not asin or not asin.isascii() or not asin.isprintable():
            raise record.fail("asin", "up to ten ASCII characters")
        seen.add(asin)
        yield parse_product(record, instructions.get(asin), human.get(asin))

    # Files of two releases in one folder would give a shop without goals.
    for kind, goals in (("instructions", instructions), ("human_goals", human)):
        if goals and not seen & goals.keys():
            raise InputError(
                f"{find_file(folder, kind)}: none of its {len(goals)} products is in {items}. {_REMEDY}"
            )


def read_array(path: Path) -> Iterator[Any]:
    """Yield the elements of a file that holds one JSON list, without holding the whole of it.

    Raises:
        InputError: if the file is unreadable or no list.
    """
    try:
        with open_text(path) as file:
            yield from _elements(file, path)
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}). {_REMEDY}") from error


def _elements(file: IO[str], path: Path) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    text = ""
    opened = False
    count = 0
    while True:
        chunk = file.read(_CHUNK)
        text += chunk
        position = _skip(text, 0)
        if not opened and position < len(text):
            if text[position] != "[":
                raise InputError(f"{path}: expected a JSON list of products. {_REMEDY}")
            opened = True
            position += 1

        while opened:
            position = _skip(text, position, ",")
            if text.startswith("]", position):
                return
            try:
                element, end = decoder.raw_decode(text, position)
            except json.JSONDecodeError:
                break
            # A number or word at the end of a chunk may go on in the next.
            if end == len(text) and chunk:
                break
            yield element
            count += 1
            position = end

        text = text[position:]
        if not chunk:
            raise InputError(f"{path}: broken after {count} records: no JSON, or cut off. {_REMEDY}")


def _skip(text: str, position: int, more: str = "") -> int:
    while position < len(text) and text[position] in f" \t\r\n{more}":
        position += 1
    return position


def _read_mapping(folder: Path, kind: str) -> dict[str, Any]:
    path = find_file(folder, kind)
    if path is None:
        return {}
    try:
        with open_text(path) as file:
            found = json.load(file)
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}). {_REMEDY}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object with an entry per product. {_REMEDY}")
    return found
