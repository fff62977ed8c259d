"""YAML as studies and configurations are written: UTF-8, every key once, and one line about what is wrong."""

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from threespo.errors import InputError

MAX_VALUES = 100_000
"""Values of one text, those that aliases repeat included: a few aliases of aliases would otherwise fill the memory."""


_TAG = "tag:yaml.org,2002:"
"""Before the names of YAML's own types."""

_ALLOWED_TYPES = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
"""What JSON has, and ``<<``. Any other type is a date that was meant as text, or a tag that no study needs."""

_FLOAT = _TAG + "float"
_TEXT = _TAG + "str"

_SCALARS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*\.?[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
"""What YAML 1.2 (its core schema) takes for other than text, by type, and the characters with which that may begin.

The ``_`` in numbers is of YAML 1.1: it cannot be meant otherwise.
"""

_UNCHANGED_TYPES = (_TAG + "null", _TAG + "merge", _TAG + "timestamp")
"""What both versions have, and dates, which are refused."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Reads what is not quoted as YAML 1.2 and JSON do, and not as YAML 1.1, which PyYAML knows.

    There ``no`` and ``on`` are booleans, ``3:20`` is 200, ``010`` is 8, and ``1e-4`` is text.
    """

    yaml_implicit_resolvers: ClassVar = {
        first_character: [(tag, form) for tag, form in resolvers if tag in _UNCHANGED_TYPES]
        for first_character, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


for _name, (_form, _first_characters) in _SCALARS.items():
    _pattern = re.compile(f"^(?:{_form})$")
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, list(_first_characters))


def _read_whole_number(loader: _Loader, node: yaml.Node) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    # With base 0, Python would refuse a leading zero, which YAML 1.2 reads as decimal.
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor(_TAG + "int", _read_whole_number)


def read_text(path: Path, remedy: str) -> str:
    """Return the text of a file in UTF-8; a byte order mark is left out.

    Args:
        path: the file.
        remedy: a sentence that ends the message about a file that cannot be read.

    Raises:
        InputError: if it cannot be read, or is in another encoding.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). {remedy}") from error
    except ValueError as error:
        raise InputError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    # UTF-16 without its mark is valid UTF-8 with zeros in it.
    if "\0" in text:
        raise InputError(f"{path}: not UTF-8 text (zero bytes in it); save it as UTF-8")
    return text


def read_yaml(text: str, origin: str) -> Any:
    """Return the value of a YAML (or JSON) text.

    Args:
        text: one document.
        origin: what messages call it.

    Raises:
        InputError: if it is not YAML, a mapping has a key twice, or aliases blow it up; names the line.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node, origin, {})
        return loader.construct_document(node)
    except RecursionError:
        raise InputError(f"{origin}: not valid YAML: brackets or aliases nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        problem = " ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        place = f" ({_format_mark(mark)})" if mark else ""
        raise InputError(f"{origin}: not valid YAML: {problem}{place}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{origin}: not valid YAML: {' '.join(str(error).split())}") from error
    # What is tagged as a number, or looks like one, need not be one; the constructors do not say so themselves.
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{origin}: not valid YAML: a value is not what it looks like ({error}); quote it"
        ) from error


def _check_node(node: yaml.Node, origin: str, sizes: dict[int, int]) -> int:
    """Refuse what no study may have, and return how many values the node stands for.

    ``sizes`` has these numbers of nodes that were checked, by ``id``, and 0 for those that are being checked: an alias is
    the very node that it repeats.
    """
    place = _format_mark(node.start_mark)
    size = sizes.get(id(node))
    if size == 0:
        raise InputError(f"{origin}: not valid YAML: an alias of what it stands in ({place})")
    if size is not None:
        return size
    if node.tag not in _ALLOWED_TYPES:
        kind = str(node.tag).rpartition(":")[2]
        raise InputError(f"{origin}: not valid YAML here: a {kind} ({place}); quote it if it is text")

    sizes[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _check_keys(node, origin)
        for key, value in node.value:
            children += (key, value)
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = 1 + sum(_check_node(child, origin, sizes) for child in children)
    if size > MAX_VALUES:
        raise InputError(f"{origin}: more than {MAX_VALUES:,} values; a study has a few hundred")
    sizes[id(node)] = size
    return size


def _check_keys(mapping: yaml.MappingNode, origin: str) -> None:
    """Refuse a key that a mapping has twice, and make text of keys that look like numbers with a fraction or exponent."""
    first_of_name: dict[str, yaml.Node] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        first = first_of_name.get(key.value)
        if first is not None:
            places = f"{_format_mark(first.start_mark)} and {_format_mark(key.start_mark)}"
            raise InputError(
                f"{origin}: the key {key.value!r} stands there twice, {places}; keep one of them"
            )
        first_of_name[key.value] = key
        # A name such as 3e-4 is text.
        if key.tag == _FLOAT:
            key.tag = _TEXT


def _format_mark(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
