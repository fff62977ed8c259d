"""The code of the documents on the environments: it runs where it can, and else names what is there."""

import argparse
import re
import shlex
import textwrap
import tomllib

import pytest
import yaml

from tests.documents import ROOT, Block, blocks, defines, missing
from threespo import cli

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# Blocks that show a part of an example; the example itself is run.
PARTS = [block for block in blocks("python") if block.page == "docs/searching.md" and "import" not in block.text]
WHOLE = [block for block in blocks("python") if block not in PARTS]
OF_OTHERS = ("openenv", "skyrl_gym", "trl", "datasets", "verifiers", "agent_system", "skyrl_train", "skyrl")


@pytest.mark.parametrize("block", [block for block in WHOLE if block.runs], ids=str)
def test_a_block_runs(block: Block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", [*WHOLE, *blocks("diff")], ids=str)
def test_a_block_compiles_and_imports_what_is_there(block: Block):
    compile(block.python, str(block), "exec")
    for module, name in block.imports - block.foreign:
        assert defines(module, name), (module, name)
    assert missing(block) == []
    # What is not installed here is a framework's, which `make test-adapters` installs.
    assert block.runs or {module.split(".")[0] for module, _ in block.foreign} & set(OF_OTHERS)


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
    return cli._parser().parse_args([word.strip("[]") for word in words])


@pytest.mark.parametrize("block", blocks("yaml", "toml"), ids=str)
def test_settings_can_be_read(block: Block):
    assert tomllib.loads(block.text) if block.language == "toml" else yaml.safe_load(block.text)


def test_blocks_say_their_language():
    assert {block.language for block in blocks()} <= {"python", "diff", "console", "text", "yaml", "toml", "json"}
