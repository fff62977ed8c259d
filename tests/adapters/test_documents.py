"""The pages on the frameworks, with the frameworks: their programs run, and what they import is there."""

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import Block, blocks, missing

PROGRAMS = [
    block
    for block in blocks("python", "diff")
    if block.page.startswith("docs/frameworks/") and block.is_python
]


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_what_a_block_imports_is_there(block: Block):
    assert missing(block) == []


@pytest.mark.parametrize(
    "block", [one for one in PROGRAMS if one.language == "python" and not one.asks], ids=str
)
def test_a_block_runs(block: Block):
    if not block.runs:
        pytest.skip("of a framework that is installed in the other environment")
    # Under another name than __main__, so that what trains is defined and does not begin.
    exec(compile(block.python, str(block), "exec"), {"__name__": "document"})


@pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None, reason="verifiers is in the other environment"
)
@pytest.mark.parametrize("form", ["command", "file"])
def test_verifiers_takes_the_configuration(form, tmp_path):
    page = "docs/frameworks/verifiers.md"
    if form == "command":
        (block,) = (one for one in blocks("console", page=page) if "vf-eval" in one.text)
        words = shlex.split(block.text.removeprefix("$ "))[1:]
    else:
        (block,) = blocks("diff", page=page)
        (tmp_path / "eval.toml").write_text(block.python)
        words = ["@", "eval.toml", "--no-push"]
    command = [Path(sys.executable).with_name("vf-eval"), *words, "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.rglob("eval.json")
    assert '"environment": "webshop"' in written.read_text()
