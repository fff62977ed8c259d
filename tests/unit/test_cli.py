"""The command line: what a person sees when something is wrong, and the one line that others parse."""

import json
import shutil
import sys
import types
from pathlib import Path

import pytest

from threespo import cli
from threespo.errors import InputError
from threespo.verify import Report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_study_prints_every_field_with_its_value(capsys):
    assert cli.main(["study", "ci", "--set", "{training: {generations: 7}}"]) == 0
    study = json.loads(capsys.readouterr().out)
    assert study["training"]["generations"] == 7
    assert study["training"]["clip"] == 0.2
    assert study["name"] == "ci"


@pytest.mark.parametrize("name", ["ci", "smoke", "mini", "paper"])
def test_every_study_file_is_valid_and_named_after_itself(name, capsys):
    assert cli.main(["study", name]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["study", "nowhere"], "study 'nowhere': neither a file nor a name"),
        (["study", "ci", "--set", "[1]"], "--set: expected a YAML mapping"),
        (["study", "ci", "--set", "{a: ["], "--set: not valid YAML"),
        (["study", "ci", "--set", "{trainig: {}}"], "trainig: no such field"),
        (
            ["study", "ci", "--set", "{alfwrold: {max_steps: 3}}"],
            "nor an environment (there are alfworld, webshop)",
        ),
        (
            ["study", "ci", "--set", "{policies: {tiny-s: {size: xl}}}"],
            "policies.tiny-s.size: no size 'xl'; there are s, m",
        ),
        (
            ["study", "ci", "--set", "{methods: {grpo: {options: {normalize: true}}}}"],
            "methods.grpo: options.normalize: grpo has no such option; there are: normalise",
        ),
        (
            ["data", "STUDY", "--env", "textcraft"],
            "has nothing to do for 'data textcraft'; it has: alfworld",
        ),
        (["data", "EDITED", "--env", "alfworld"], "not valid YAML"),
        (
            ["data", "EDITED_FIELD", "--env", "alfworld"],
            "alfworld.games.train: Input should be a valid integer",
        ),
        (["train", "missing.json", "--run", "a/b/c/seed-0"], "missing.json: cannot be read"),
        (["tables", "STUDY"], "runs/alfworld/tiny-s/grpo/seed-0/metrics.parquet: no record of"),
        (["train", "STUDY", "--run", "a/b/c/seed-0"], "has nothing to do for 'train a/b/c/seed-0'"),
        (
            ["policy", "STUDY", "--env", "alfworld", "--policy", "tiny-x"],
            "has nothing to do for 'policy alfworld/tiny-x'",
        ),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(arguments, said, capsys, tmp_path):
    study = Path(shutil.copy("config/studies/ci.yaml", tmp_path / "study.json"))
    # A study.json that somebody has edited by hand, so that it is no JSON, or a field is wrong.
    edited = {
        "EDITED": '{"name": "ci",',
        "EDITED_FIELD": study.read_text().replace("train: 8", "train: many"),
    }
    for name, text in edited.items():
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    places = {"STUDY": str(study), **{name: str(tmp_path / name) for name in edited}}
    arguments = [places.get(argument, argument) for argument in arguments]
    assert cli.main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("threespo: ")
    assert said in message
    assert "Traceback" not in message
    noted = (".jobs.lock", ".journal.jsonl")
    assert sorted(path for path in tmp_path.rglob("*") if path.name not in noted) == before, (
        "nothing is written"
    )


def test_a_full_gpu_is_one_line_wherever_it_happens(monkeypatch, capsys):
    import torch

    def fill(_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(cli, "_run_study", fill)
    assert cli.main(["study", "smoke"]) == 1
    assert capsys.readouterr().err.startswith("threespo: out of GPU memory; ")


def test_an_interrupt_ends_with_130(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run_study", interrupted)
    assert cli.main(["study", "ci"]) == 130
    assert "interrupted" in capsys.readouterr().err


def _verifier(monkeypatch, **report):
    module = types.ModuleType("threespo.verify.prompts")
    module.verify = lambda file, games, catalogue, only: Report("prompts", **report)
    monkeypatch.setitem(sys.modules, "threespo.verify.prompts", module)


@pytest.mark.parametrize(("mismatches", "code"), [(0, 0), (3, 1)])
def test_verify_ends_with_one_line_of_json(monkeypatch, capsys, mismatches, code):
    _verifier(monkeypatch, cases=9, mismatches=mismatches, max_abs_error=0.5, seconds=0.1)
    assert cli.main(["verify", "prompts", "file"]) == code
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {
        "kind": "prompts",
        "cases": 9,
        "mismatches": mismatches,
        "max_abs_error": 0.5,
        "seconds": 0.1,
    }


def test_verify_refuses_a_bad_file(monkeypatch, capsys):
    module = types.ModuleType("threespo.verify.prompts")

    def verify(*_):
        raise InputError("file: not a reference file")

    module.verify = verify
    monkeypatch.setitem(sys.modules, "threespo.verify.prompts", module)
    assert cli.main(["verify", "prompts", "file"]) == 2


def test_unknown_commands_and_kinds_are_refused(capsys):
    for arguments in (["nonsense"], ["verify", "nonsense", "file"], []):
        with pytest.raises(SystemExit) as refused:
            cli.main(arguments)
        assert refused.value.code == 2
    assert "usage: threespo" in capsys.readouterr().err
