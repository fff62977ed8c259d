"""Prompts and parser, byte for byte."""

import hashlib

from threespo.envs.alfworld.text import alfworld_prompt
from threespo.envs.parsing import parse_response
from threespo.envs.webshop.text import MAX_PROMPT_LENGTH, webshop_prompt
from threespo.verify import projection, prompts


def test_reference_prompts(shared):
    report = prompts.verify(shared / "golden" / "prompts.jsonl.xz")
    assert (report.cases, report.mismatches) == (40, 0)


def test_reference_projections(shared):
    report = projection.verify(shared / "golden" / "projection.jsonl.xz")
    assert (report.cases, report.mismatches) == (60, 0)


def test_template_bytes_are_fixed():
    """Hashes of prompts that equal verl-agent's, so that the bytes are guarded without the reference files."""
    history = [
        ("You are in a room.", "go to desk 1"),
        ("A desk.", "look"),
        ("A desk.", "take mug 1 from desk 1"),
    ]
    later = alfworld_prompt(
        "put a mug in bed.", "You pick up the mug 1.", ["help", "go to bed 1", "look"], history, 2
    )
    first = alfworld_prompt(
        "put a mug in bed.", "You are in a room.", ["help", "go to bed 1", "look"], [], 2
    )
    assert "Below are the most recent 2 observations" in later
    assert (
        "[Observation 2: 'A desk.', Action 2: 'look']\n[Observation 3: 'A desk.', Action 3: 'take mug"
        in later
    )
    assert "You are now at step 4 and" in later
    assert "['go to bed 1'\n 'look']." in first
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (first, later)]
    assert digests == ["49838207e65cf0c6", "7ca79786aee26ca2"]


def test_history_length_zero_uses_the_template_without_history():
    shown = alfworld_prompt("g.", "obs", ["look"], [("a", "b")], 0)
    assert shown == alfworld_prompt("g.", "obs", ["look"], [], 2)


def test_webshop_template_bytes_are_fixed():
    """Hashes of prompts that equal verl-agent's, as above."""
    history = [("'Search'", "search[lamp]"), ("'Back to Search'", "click[next >]")]
    later = webshop_prompt("buy a lamp", "'Page 2'", ["click[back to search]"], history, 2)
    first = webshop_prompt("buy a lamp", "'Search'", ["search[<your query>]", "click[search]"], [], 2)
    assert "[Observation 1: ''Search'', Action 1: 'search[lamp]']\n[Observation 2: " in later
    assert "[\n'search[<your query>]',\n'click[search]',\n].\n" in first
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (first, later)]
    assert digests == ["76cf4faff211bf81", "3d3f8fb8a25389dc"]


def test_an_over_long_webshop_prompt_loses_its_history():
    def prompt(length):
        return webshop_prompt("g", "o" * length, ["click[a]"], [("'Search'", "search[a]")], 2)

    fits = MAX_PROMPT_LENGTH - len(prompt(0))
    assert len(prompt(fits)) == MAX_PROMPT_LENGTH
    assert prompt(fits + 1) == webshop_prompt("g", "o" * (fits + 1), ["click[a]"], [], 2)


def test_format_validity_is_not_admissibility():
    assert parse_response("<think>a</think><action> Go To Desk 1 </action>", 30) == (
        "go to desk 1",
        True,
    )
    assert parse_response("go to desk 1", 30) == ("go to desk 1", False)
    assert parse_response("<think>\u597d</think><action>look</action>", 30) == ("look", False)
    assert parse_response("x" * 50, 30) == ("x" * 30, False)
    assert parse_response("x" * 50, 20) == ("x" * 20, False)
