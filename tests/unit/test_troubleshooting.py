"""The page of messages, causes and remedies: each message of the package has one row, and each row a message."""

import ast
import re
import textwrap
from collections.abc import Collection
from typing import NamedTuple

import pytest

from tests.documents import ROOT
from tests.messages import Message, messages, read_module

PAGE = "docs/troubleshooting.md"
MOST_ROWS = 300

# Messages without a word of their own -> how those begin that a person reads; nothing where these have rows anyway.
WORDED: dict[tuple[str, str], list[str]] = {
    # The text of an exception: of the same process, of another rank, or of what a call in between has added the place to.
    ("threespo/cli.py", "…"): [],
    ("threespo/envs/alfworld/compile.py", "…: …"): [],
    ("threespo/learner/checkpoint.py", "…"): [],
    ("threespo/pipeline/snakemake_adapter.py", "…"): [],
    ("threespo/runs/launch.py", "…"): [],
    ("threespo/runs/parts.py", "…"): [],
    ("threespo/runs/ranks.py", "…"): [],
    # No refusal: how far a study is.
    ("threespo/watch/status.py", "…"): [],
    # Lines that are put together of the fields that are wrong.
    ("threespo/study/load.py", "…"): ["…: not a valid study", "…: no valid change of …"],
    ("threespo/study/catalogue.py", "…: …"): ["…: items.…: …"],
    # Python's own words on an argument, and DVC's on a command.
    ("threespo/gym/tasks.py", "…: …"): ["…: got an unexpected keyword argument …"],
    ("workflow/tools.py", "…: …"): ["dvc …: …"],
}


class Row(NamedTuple):
    """A row of the page."""

    line: int
    parts: tuple[str, ...]
    """Beginnings of messages, or whole ones."""
    cause: str
    remedy: str


def read_page() -> list[Row]:
    rows = []
    for number, line in enumerate((ROOT / PAGE).read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("| `"):
            _, message, cause, remedy, _ = (cell.strip() for cell in line.split("|"))
            rows.append(Row(number, tuple(re.findall(r"`([^`]+)`", message)), cause, remedy))
    return rows


def rows_of(message: str, rows: list[Row], all_messages: Collection[str]) -> list[Row]:
    """Return the rows of a message: a part stands for all messages that begin so; the whole of a message for that alone."""

    def fits(part: str) -> bool:
        return message == part or (message.startswith(part) and part not in all_messages)

    return [row for row in rows if any(map(fits, row.parts))]


def shown() -> list[Message]:
    """Return all messages with words, each text of a file once."""
    found: dict[tuple[str, str], Message] = {}
    for message in messages():
        texts = [message.text] if message.has_words else WORDED[message.file, message.text]
        for text in texts:
            found.setdefault((message.file, text), message._replace(text=text))
    return list(found.values())


def test_each_message_has_one_row():
    rows, faults = read_page(), []
    texts = {message.text for message in shown()}
    for message in shown():
        found = rows_of(message.text, rows, texts)
        if not found:
            faults.append(
                f"{message}\n  no row; add to a group of {PAGE}: | `{message.text}` | cause | remedy |"
            )
        elif len(found) > 1:
            lines = ", ".join(f"{PAGE}:{row.line}" for row in found)
            faults.append(
                f"{message}\n  several rows begin so: {lines}; write more of the message in one of them"
            )
    assert not faults, "\n".join(faults)


def test_each_row_has_a_message():
    texts = {message.text for message in shown()}
    dead = [
        f"{PAGE}:{row.line}: no message begins with {part!r}; remove it, or write it as the message is now"
        for row in read_page()
        for part in row.parts
        if not any(text.startswith(part) for text in texts)
    ]
    assert not dead, "\n".join(dead)


def test_messages_without_words_are_accounted_for():
    wordless = {(message.file, message.text) for message in messages() if not message.has_words}
    assert wordless == WORDED.keys()
    source = (ROOT / "threespo" / "study" / "load.py").read_text(encoding="utf-8")
    assert all(text.strip("… :") in source for text in WORDED["threespo/study/load.py", "…"])


def test_rows_say_something():
    rows = read_page()
    assert 200 < len(rows) <= MOST_ROWS
    for row in rows:
        assert row.parts, row
        assert row.cause, row
        assert row.remedy, row
        # What begins every message would hide that one has no row.
        assert [part for part in row.parts if not re.search("[a-z]{2}|…, …", part)] == [], row
    parts = [part for row in rows for part in row.parts]
    assert sorted(set(parts)) == sorted(parts)


def test_the_index_names_every_group():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    groups = re.findall(r"^## (.*)$", text, re.MULTILINE)
    index = text[: text.index("\n## ")]
    anchors = [re.sub(r"[^\w -]", "", group).lower().replace(" ", "-") for group in groups]
    assert re.findall(r"\| \[(.*)\]\(#(.*)\) \|", index) == list(zip(groups, anchors, strict=True))


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ('raise InputError("no such thing; give one")', {"no such thing; give one"}),
        ('raise InputError(f"{file}: found {x!r}, expected 1")', {"…: found …, expected 1"}),
        ('raise InputError(f"{file}: " + (f"a {x}" if x else "none"))', {"…: a …", "…: none"}),
        ('raise StoppedError(f"rank {one} of {all}{more} ended")', {"rank … of … ended"}),
        ('print(f"threespo: {one} goes slowly", file=sys.stderr)', {"… goes slowly"}),
        ('print("no message", file=sys.stderr)', set()),
        ('raise ValueError("no message")', set()),
        ("raise InputError(str(error))", {"…"}),
    ],
)
def test_messages_are_read(source: str, texts: set[str]):
    assert {message.text for message in read_module(ast.parse(source), "threespo/any.py")} == texts


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (
            """
            REMEDY = "give it again"

            def look(x):
                raise InputError(f"{x}: broken; {REMEDY}")
            """,
            {"…: broken; give it again"},
        ),
        (
            """
            def look(x):
                says = None
                if x > 1:
                    says = f"more than one ({x})"
                elif x < 1:
                    says = "less than one"
                raise InputError(f"{x}: {says}")
            """,
            {"…: more than one (…)", "…: less than one"},
        ),
        (
            """
            class Reader:
                def look(self, x):
                    raise InputError(self._busy(x))

                def _busy(self, x):
                    if x:
                        return f"{x} is busy"
                    return "nothing is free"
            """,
            {"… is busy", "nothing is free"},
        ),
        (
            """
            KINDS = {1: "a table; write lines", 2: f"an archive of {n}; unpack it"}

            def look(file):
                for number, remedy in KINDS.items():
                    raise InputError(f"{file}: {remedy}")
            """,
            {"…: a table; write lines", "…: an archive of …; unpack it"},
        ),
        (
            """
            def fail(x):
                return InputError(f"{x} is wrong")

            def look(x):
                raise fail(x)
            """,
            {"… is wrong"},
        ),
    ],
)
def test_messages_are_followed_to_where_their_words_are(source: str, texts: set[str]):
    found = read_module(ast.parse(textwrap.dedent(source)), "threespo/any.py")
    assert {message.text for message in found} == texts


def test_exceptions_that_are_derived_count():
    names = {message.text for message in messages() if message.file == "threespo/policy/endpoint.py"}
    assert any(text.startswith("…: not run (no API key)") for text in names)


def test_a_message_without_a_row_or_with_two_is_found():
    one = Row(1, ("…: no such folder", "…: no folder"), "", "")
    two = Row(2, ("…: no such",), "", "")
    assert rows_of("…: nothing", [one, two], ()) == []
    assert rows_of("…: no such folder; give one", [one, two], ()) == [one, two]
    assert rows_of("…: no such file", [one, two], ()) == [two]
    # The whole of a message stands for no other.
    assert rows_of("…: no such folder; give one", [one, two], ["…: no such"]) == [one]
    assert rows_of("…: no such", [one, two], ["…: no such"]) == [two]
