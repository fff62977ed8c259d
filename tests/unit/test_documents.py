"""The code of the documents on the environments: it runs where it can, and else names what is there."""

import argparse
import importlib.util
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import documents
from tests.documents import ROOT, Block, blocks, defines, missing
from threespo import cli
from threespo.verify import alfworld, read_cases

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
RECIPE = "docs/exactness.md"
"""Its program has a test of its own."""
FRAMEWORKS = {"datasets", "openenv", "ray", "skyrl_gym", "trl", "verifiers"}
"""What the tests of the adapters import, and these need not."""
# Blocks that show a part of an example; the example itself is run.
PARTS = [
    block
    for block in blocks("python")
    if block.page == "docs/searching.md" and "import" not in block.text
]
PROGRAMS = [block for block in blocks("python", "diff") if block.is_python and block not in PARTS]
# What a diff leads to runs where its lines are all of the program.
WHOLE = [
    one for one in PROGRAMS if one.language == "python" or one.page == "docs/frameworks/gymnasium.md"
]


@pytest.mark.parametrize(
    "block", [one for one in WHOLE if one.runs and one.page != RECIPE and not one.asks], ids=str
)
def test_a_block_runs(block: Block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.python, str(block), "exec"), {"__name__": "document"})


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_block_compiles_and_imports_what_is_there(block: Block):
    compile(block.python, str(block), "exec")
    for module, name in block.imports - block.foreign:
        assert defines(module, name), (module, name)
    assert missing(block) == []
    unknown = {
        module.split(".")[0]
        for module, _ in block.foreign
        if not importlib.util.find_spec(module.split(".")[0])
    }
    assert unknown <= FRAMEWORKS


@pytest.mark.parametrize("block", PARTS, ids=str)
def test_a_part_is_a_part_of_an_example(block: Block):
    examples = [textwrap.dedent(file.read_text()) for file in (ROOT / "examples").glob("*.py")]
    lines = [line.strip() for line in block.text.splitlines()]
    assert any("\n".join(lines) in "\n".join(map(str.strip, text.splitlines())) for text in examples)


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_a_command_is_one(block: Block):
    """Its options are those of the command, its extras and files are there."""
    for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words[0] == "threespo":
            _parse(words[1:])
        for extras in re.findall(r"\.\[([\w,]+)\]", line):
            assert set(extras.split(",")) <= EXTRAS.keys()
        for file in re.findall(r"\b(?:examples|benchmarks|tests)/[\w/]+\.py\b", line):
            assert (ROOT / file).is_file()
        for module in re.findall(r"python -m (threespo[\w.]*)", line):
            assert defines(module, "main")


def _parse(words: list[str]) -> argparse.Namespace:
    return cli._build_parser().parse_args([word.strip("[]") for word in words])


def _replayed() -> list[tuple[str, str]]:
    text = "\n".join(block.text for block in blocks("console", page="docs/exactness.md"))
    return re.findall(r"^\$ threespo (verify .*)\n(\{.*\})$", text, re.MULTILINE)


@pytest.mark.parametrize(("call", "line"), _replayed(), ids=[call for call, _ in _replayed()])
def test_replays_print_what_the_document_shows(call: str, line: str, request, capsys):
    words = call.split()
    if not words[2].startswith("tests/"):
        shared = request.getfixturevalue("shared")
        places = {"GAMES": shared / "data" / "alfworld", "SHOP": shared / "data" / "webshop_1k"}
        words = [
            words[0],
            words[1],
            str(shared / "golden" / words[2]),
            *(str(places.get(one, one)) for one in words[3:]),
        ]
    else:
        words[2] = str(ROOT / words[2])
    assert cli.main(words) == 0
    found, shown = json.loads(capsys.readouterr().out), json.loads(line)
    assert found.keys() == shown.keys()
    for name in found.keys() - {"seconds"}:
        # What is below the tolerance of a kind depends on the processor.
        assert found[name] == shown[name] or (name == "max_abs_error" and 0 < found[name] < 1e-6), name


def test_as_many_states_are_compared_as_the_document_says(shared):
    cases = list(read_cases(shared / "golden" / "alfworld_traces.jsonl.xz", ("game_id", "steps")))
    told = f"{len(cases)} episodes of {len({case['game_id'] for case in cases})} games"
    text = (ROOT / "docs" / "exactness.md").read_text()
    assert f"{told}, {sum(len(case['steps']) for case in cases):,} states" in text


def test_recorded_traces_are_replayed(tmp_path, monkeypatch):
    """The recipe of the document, from the stock engine's answers to the verdict on ours."""
    pytest.importorskip("textworld", reason="the stock engine (extra: oracle) is not installed")
    (block,) = blocks("python", page=RECIPE)
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": "document"})
    report = alfworld.verify(Path("traces.jsonl"), Path("games"))
    assert (report.cases, report.mismatches) == (2, 0)


@pytest.mark.parametrize("block", blocks("yaml", "toml"), ids=str)
def test_settings_can_be_read(block: Block):
    assert tomllib.loads(block.text) if block.language == "toml" else yaml.safe_load(block.text)


def test_blocks_say_their_language():
    assert {block.language for block in blocks()} <= {
        "python",
        "diff",
        "console",
        "text",
        "yaml",
        "toml",
        "json",
    }


@pytest.mark.parametrize(
    "why", ["an unpacked archive", "one within another repository", "somebody else's", "no git"]
)
def test_what_git_alone_knows_is_not_tested_without_it(tmp_path, monkeypatch, why):
    """And the reason is told."""
    monkeypatch.setattr(documents, "ROOT", tmp_path / "archive")
    (tmp_path / "archive" / "docs").mkdir(parents=True)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    says = "no checkout of git.*not a git repository"
    if why == "one within another repository":
        subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
        says = f"its top is {tmp_path}, and not {tmp_path}/archive"
    elif why == "somebody else's":
        subprocess.run(["git", "init", "--quiet", tmp_path / "archive"], check=True)
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        says = "dubious ownership"
    elif why == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
        says = "git is not installed"
    with pytest.raises(pytest.skip.Exception, match=says):
        documents.tracked("docs")


def test_a_checkout_has_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for name in ("docs/b.md", "docs/a.md", "c.md"):
        (tmp_path / name).write_text("text")
    for command in (["init", "--quiet"], ["add", "docs", "c.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert documents.tracked("docs") == ["docs/a.md", "docs/b.md"]
    assert documents.tracked() == ["c.md", "docs/a.md", "docs/b.md"]
