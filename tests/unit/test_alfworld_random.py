"""The log of random play on both engines: what a later call goes on from, and whose files it leaves alone."""

import json
import sys

import pytest

from tests.parity import alfworld_random

ROWS = [{"game": name, "steps": 4, "seed": 0, "difference": None} for name in ("a", "b")]
WHOLE = "".join(f"{json.dumps(row)}\n" for row in ROWS)


@pytest.mark.parametrize("cut", [0, 1, 7, 30, len(WHOLE) // 2 - 1])
def test_a_last_line_that_was_cut_is_played_again(cut, tmp_path):
    """Also one that lacks its newline only: the next line would be appended to it."""
    file = tmp_path / "log.jsonl"
    file.write_text(WHOLE[: len(WHOLE) // 2 + cut])
    assert alfworld_random.read_log(file, 4, 0) == {"a": ROWS[0]}
    assert file.read_text() == WHOLE[: len(WHOLE) // 2]


def test_lines_with_other_numbers_are_not_taken(tmp_path):
    file = tmp_path / "log.jsonl"
    assert alfworld_random.read_log(file, 4, 0) == {}
    file.write_text(WHOLE)
    assert alfworld_random.read_log(file, 4, 0) == {"a": ROWS[0], "b": ROWS[1]}
    assert alfworld_random.read_log(file, 5, 0) == alfworld_random.read_log(file, 4, 1) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"notes\n",
        b"notes",
        b"3\n",
        b"[]\n",
        b'{"game": 1}\n',
        b"\xff\xfe\n",
        WHOLE.encode() + b"notes\n",
    ],
)
def test_a_file_of_something_else_is_refused_and_not_changed(content, tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_bytes(content)
    with pytest.raises(SystemExit, match=r"not (a line )?of this program; name another file"):
        alfworld_random.read_log(file, 4, 0)
    assert file.read_bytes() == content


def test_nothing_to_play_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["alfworld_random"])
    with pytest.raises(SystemExit) as raised:
        alfworld_random.main()
    assert raised.value.code == 2
    assert "nothing to play" in capsys.readouterr().err
