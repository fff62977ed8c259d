"""YAML as studies and configurations are written: UTF-8, every key once, and one line about what is wrong."""

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from threespo.errors import InputError

MAX_VALUES = 100_000
"""Values of one text, those that aliases repeat included: a few aliases of aliases would otherwise fill the memory."""


_TYPES = {
    f"tag:yaml.org,2002:{name}"
    for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")
}
"""What JSON has, and ``<<``. Any other type is a date that was meant as text, or a tag that no study needs."""


_NUMBER, _TEXT = "tag:yaml.org,2002:float", "tag:yaml.org,2002:str"

_PLAIN = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*\.?[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
"""What YAML 1.2 (its core schema) takes for other than text, by type, and how that may begin.

The ``_`` in numbers is of YAML 1.1: it cannot be meant otherwise.
"""


_KEPT = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:timestamp")
"""What both versions have, and dates, which are refused."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """Reads what is not quoted as YAML 1.2 and JSON do, and not as YAML 1.1, which PyYAML knows.

    There ``no`` and ``on`` are booleans, ``3:20`` is 200, ``010`` is 8, and ``1e-4`` is text.
    """

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in known if tag in _KEPT]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


for _name, (_form, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_form})$"), list(_first)
    )


def _whole(loader: _Loader, node: yaml.Node) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


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
        _check(node, origin, {})
        return loader.construct_document(node)
    except RecursionError:
        raise InputError(f"{origin}: not valid YAML: brackets or aliases nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        what = " ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        raise InputError(
            f"{origin}: not valid YAML: {what}{f' ({_place(mark)})' if mark else ''}"
        ) from error
    except yaml.YAMLError as error:
        raise InputError(f"{origin}: not valid YAML: {' '.join(str(error).split())}") from error
    # What is tagged as a number, or looks like one, need not be one; the constructors do not say so themselves.
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{origin}: not valid YAML: a value is not what it looks like ({error}); quote it"
        ) from error


def _check(node: yaml.Node, origin: str, sizes: dict[int, int]) -> int:
    """Refuse keys that a mapping has twice, and return how many values the node stands for."""
    known = sizes.get(id(node))
    if known is not None:
        if known == 0:
            raise InputError(
                f"{origin}: not valid YAML: an alias of what it stands in ({_place(node.start_mark)})"
            )
        return known

    if node.tag not in _TYPES:
        kind = str(node.tag).rpartition(":")[2]
        raise InputError(
            f"{origin}: not valid YAML here: a {kind} ({_place(node.start_mark)}); quote it if it is text"
        )

    sizes[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        first: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in first:
                    places = f"{_place(first[key.value].start_mark)} and {_place(key.start_mark)}"
                    raise InputError(
                        f"{origin}: the key {key.value!r} stands there twice, {places}; keep one of them"
                    )
                first[key.value] = key
                # A name such as 3e-4 is text.
                key.tag = _TEXT if key.tag == _NUMBER else key.tag
            children += (key, value)
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = 1 + sum(_check(child, origin, sizes) for child in children)
    if size > MAX_VALUES:
        raise InputError(f"{origin}: more than {MAX_VALUES:,} values; a study has a few hundred")
    sizes[id(node)] = size
    return size


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
