"""The examples of README.md and config/README.md: every call of the workflow in them means a valid study."""

import re
import shlex
from pathlib import Path

import pytest
from snakemake.cli import parse_config

from threespo.study.resolve import resolve_study

ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[list[str]]:
    """Return the words of all calls of Snakemake in the two files."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "config/README.md")]
    call = re.compile(r"^\$ (snakemake .*)$|`((?:snakemake|--config) [^`]*)`", re.MULTILINE)
    calls = [found for text in texts for found in call.findall(text)]
    return [shlex.split(first or second, comments=True) for first, second in calls]


def values(words: list[str], option: str) -> list[str]:
    """Return the values that follow an option, as Snakemake reads them: up to the next option."""
    if option not in words:
        return []
    after = words[words.index(option) + 1 :]
    end = next((place for place, word in enumerate(after) if word.startswith("--")), len(after))
    return after[:end]


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_an_example_means_a_valid_study(words, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    # Placeholders of the documents.
    for name in (
        "train.jsonl.xz",
        "valid_seen.jsonl.xz",
        "valid_unseen.jsonl.xz",
        "alfred.pddl",
        "grammar.twl2",
    ):
        (tmp_path / name).write_bytes(b"")
    own = ROOT / "config" / "studies" / "ci.yaml"
    written = [word for word in values(words, "--config") if "=value" not in word]
    given = [word.replace("=DIR", f"={tmp_path}").replace("my/study.yaml", str(own)) for word in written]
    gpus = [int(word.removeprefix("gpu=")) for word in values(words, "--resources")]
    found = resolve_study(parse_config(given), gpus[0] if gpus else None)
    # What changes the study changes its folder.
    plain = [word for word in given if not word.startswith(("set=", "name=", "policy_build="))]
    assert (found.paths == resolve_study(parse_config(plain), gpus[0] if gpus else None).paths) == (
        plain == given
    )


def test_there_are_examples_of_both_files_and_they_change_what_they_say():
    assert len(examples()) >= 10
    found = [
        resolve_study(parse_config(values(words, "--config")), None)
        for words in examples()
        if "study=smoke" in words
    ]
    budgets = [
        {env: one.study.at(env).training.generations for env in one.study.environments} for one in found
    ]
    # As the text beside them says.
    assert budgets == [{"alfworld": 2000, "webshop": 2000}, {"alfworld": 2000, "webshop": 5000}]
