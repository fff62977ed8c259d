"""Whatever is wrong with a study, the configuration or a command line: one message that says what, and nothing is written.

The cases are data, in ``tests/bad_input``: what is done, and what the message must say.
"""

import copy
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from tests.documents import tracked
from threespo import cli
from threespo.errors import MAX_LISTED_NAMES, InputError
from threespo.methods.registry import METHODS, check_options
from threespo.study.config import study_class
from threespo.study.configuration import REPOSITORY_FOLDERS, Configuration, results_folder
from threespo.study.load import load_study, parse_study
from threespo.study.matrix import find_run
from threespo.study.reading import read_yaml
from threespo.study.resolve import resolve_study

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "bad_input"
WHOLE = (DATA / "study.yaml").read_text()


def cases(name: str) -> list[Any]:
    found: list[Any] = yaml.safe_load((DATA / f"{name}.yaml").read_text())
    return [pytest.param(case, id=f"{number}-{str(case)[:60]}") for number, case in enumerate(found)]


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def places(tmp_path):
    """Folders that cases name in capital letters."""
    for name in ("empty", "shop", "games", "textless", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "shop" / "items_ins_v2.json").touch()
    (tmp_path / "games" / "train.jsonl").touch()
    for split in ("train", "valid_seen", "valid_unseen"):
        (tmp_path / "textless" / f"{split}.jsonl").touch()
    (tmp_path / "folder" / "study.json").write_text(
        (ROOT / "config" / "studies" / "ci.yaml").read_text()
    )
    names = {
        name.upper(): str(tmp_path / name) for name in ("empty", "shop", "games", "textless", "folder")
    }
    return {**names, "LONG": "x" * 300}


def named(value: Any, places: dict[str, str]) -> Any:
    """Return a value of a case with the folders that it names."""
    if isinstance(value, dict):
        return {key: named(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [named(inner, places) for inner in value]
    first, slash, rest = value.partition("/") if isinstance(value, str) else (value, "", "")
    return f"{places[first]}{slash}{rest}" if isinstance(first, str) and first in places else value


def written(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("[!.]*"))
    }


def check(message: str, says: list[Any], begins: str = "") -> None:
    assert message.startswith(begins)
    missing = [part for part in says if str(part) not in message]
    assert not missing, f"{missing} not in {message!r}"
    assert "Traceback" not in message
    assert len(message) < 2000, "nobody reads that"


def changed(values: Any, path: list[str], new: Any) -> Any:
    """Return nested values with another one at a place."""
    values = copy.copy(values)
    key = int(path[0]) if isinstance(values, list) else path[0]
    values[key] = changed(values[key], path[1:], new) if path[1:] else new
    return values


def without(values: dict[str, Any], path: list[str]) -> dict[str, Any]:
    if path[1:]:
        return {**values, path[0]: without(values[path[0]], path[1:])}
    return {key: value for key, value in values.items() if key != path[0]}


def numbers(values: Any, place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the places of all numbers."""
    if isinstance(values, dict):
        return [found for key, inner in values.items() for found in numbers(inner, (*place, key))]
    if isinstance(values, list):
        return [
            found
            for number, inner in enumerate(values)
            for found in numbers(inner, (*place, str(number)))
        ]
    return [place] if isinstance(values, int | float) and not isinstance(values, bool) else []


BASE = yaml.safe_load(WHOLE)
NUMBERS = numbers(BASE)
WRONG_NUMBERS = yaml.safe_load((DATA / "numbers.yaml").read_text())["values"]


def test_what_the_cases_change_is_valid_itself(tmp_path):
    (tmp_path / "study.yaml").write_text("﻿" + WHOLE, encoding="utf-8")
    assert load_study(tmp_path / "study.yaml") == parse_study(BASE, "whole"), (
        "a byte order mark is left out"
    )


def test_what_is_written_without_a_point_is_a_number_and_a_name_is_text():
    text = "{methods: {3e-4: {learning_rate: 3e-4}, b: {learning_rate: 1E+2}}, seeds: [1_000], name: e1}"
    rates = {"3e-4": {"learning_rate": 0.0003}, "b": {"learning_rate": 100.0}}
    assert read_yaml(text, "text") == {"methods": rates, "seeds": [1000], "name": "e1"}


def test_yaml_is_that_of_its_present_version():
    """YAML 1.1 takes half of these for something else."""
    text = "[010, 08, -0777, 3:20, 190:20:30.15, 0b11, yes, No, on, OFF, y, =, 0o17, 0x1F, .5, 1., 12e03, 1_000.5, True, ~]"
    numbers_and_texts = [10, 8, -777, "3:20", "190:20:30.15", "0b11", "yes", "No", "on", "OFF", "y", "="]
    assert read_yaml(text, "text") == [*numbers_and_texts, 15, 31, 0.5, 1.0, 12000.0, 1000.5, True, None]
    assert read_yaml("{on: 1, 'no': !!int '010', <<: {off: 0o10}}", "text") == {
        "on": 1,
        "no": 10,
        "off": 8,
    }


def fields_with_numbers(model: Any, place: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the settings classes' fields that are numbers; names of entries are ``*``."""
    found: set[tuple[str, ...]] = set()
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            found |= fields_with_numbers(field.annotation, (*place, name))
    elif model in (int, float):
        found.add(place)
    else:
        key = ("*",) if typing.get_origin(model) is dict else ()
        for part in typing.get_args(model):
            found |= fields_with_numbers(part, (*place, *key))
    return found


def test_every_number_of_the_schema_is_among_those_that_are_tried():
    entries = {"families", "methods", "policies", "agents"}
    plain = [tuple(part for part in place if not part.isdigit()) for place in NUMBERS]
    tried = {
        tuple(
            "*" if above in entries else part for above, part in zip(("", *place), place, strict=False)
        )
        for place in plain
    }
    # Rates are what the trials of this study choose: `studies.yaml` has cases of them.
    chosen = {(*env, "methods", "*", "learning_rate") for env in ((), ("alfworld",), ("webshop",))}
    # A budget in epochs excludes that in generations: `studies.yaml` has its cases, too.
    # A template's variable may be any value, a number among them.
    # A mark needs three panels' worth of other fields; `studies.yaml` has cases of its rule.
    free = {("policies", "*", "chat_template_kwargs", "*"), ("confirmatory", "rule")}
    assert fields_with_numbers(study_class()) - chosen - free - {("training", "epochs")} <= tried
    for method in METHODS:
        wanted = fields_with_numbers(type(check_options(method, {})))
        entries_of = [entry for entry in BASE["methods"].values() if entry["method"] == method]
        given = {name for entry in entries_of for name in entry.get("options", {})}
        assert {name for (name,) in wanted} <= given, method


@pytest.mark.parametrize("place", NUMBERS, ids=".".join)
def test_no_number_takes_what_is_none_of_its_kind(place):
    for wrong in WRONG_NUMBERS:
        with pytest.raises(InputError) as refused:
            parse_study(changed(BASE, list(place), wrong), "my.yaml")
        field = ".".join(place).replace(".options.", ": options.")
        check(str(refused.value), [field, "found"], f"my.yaml: not a valid study\n  {field}: ")


@pytest.mark.parametrize("case", cases("studies"))
def test_a_wrong_field_is_named(case, tmp_path):
    values = without(BASE, case["without"].split(".")) if "without" in case else BASE
    for place, new in case.get("change", {}).items():
        values = changed(values, place.split("."), new)
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(InputError) as refused:
        resolve_study({"study": str(file), "results": str(tmp_path / "results")}, None)
    check(str(refused.value), case["says"], f"{file}: ")
    assert case.get("hides", "\0") not in str(refused.value)
    assert list(tmp_path.iterdir()) == [file], "nothing is written"


LONG_TEXTS = {
    "WHOLE": WHOLE,
    "NESTED": "[" * 5000,
    "BOMB": "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 1}]\n" for n in range(9)),
    "DIGITS": "seeds: [" + "9" * 5000 + "]\n",
}


@pytest.mark.parametrize("case", cases("texts"))
def test_a_file_that_is_no_study_is_named(case, tmp_path):
    text = case["text"]
    for name, long in LONG_TEXTS.items():
        text = text.replace(name, long)
    file = tmp_path / "my.yaml"
    file.write_bytes(text.encode(case.get("encoding", "utf-8")))
    with pytest.raises(InputError) as refused:
        resolve_study({"study": str(file)}, None)
    message = str(refused.value)
    check(message, case["says"], f"{file}: ")
    assert len(message.splitlines()) == 1 or "not a valid study" in message


@pytest.mark.parametrize("case", cases("configuration"))
def test_a_wrong_configuration_is_named(case, places, tmp_path):
    config = named(case.get("config", {"study": "ci"}), places)
    before = written(tmp_path)
    with pytest.raises(InputError) as refused:
        resolve_study({"results": str(tmp_path / "results"), **config}, None, case.get("given", ()))
    check(str(refused.value), case["says"])
    assert written(tmp_path) == before, "nothing is written"


def test_no_folder_of_the_repository_may_hold_results(tmp_path, monkeypatch):
    tops = {name.partition("/")[0] for name in tracked() if "/" in name and not name.startswith(".")}
    assert tops <= set(REPOSITORY_FOLDERS)
    # Through a link, too; and folders beside those are fine, wherever they lie.
    (tmp_path / "repository" / "threespo").mkdir(parents=True)
    (tmp_path / "repository" / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path / "repository")
    Path("link").symlink_to("threespo")
    whole = str(tmp_path / "repository" / "threespo")
    for folder in ("link", "link/new", whole, "../repository/threespo", "results/../link"):
        with pytest.raises(InputError, match="the repository's own threespo"):
            results_folder(Configuration({"results": folder}))
    for folder in (
        "results",
        "results/mine",
        "threespo2",
        "my.results",
        "../elsewhere",
        str(tmp_path / "elsewhere"),
    ):
        assert results_folder(Configuration({"results": folder})) == Path(folder)


@pytest.mark.parametrize("case", cases("files_of_configuration"))
def test_what_is_wrong_in_the_file_of_configuration_is_blamed_on_it(case, tmp_path, monkeypatch):
    (tmp_path / "config" / "studies").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text(case["text"])
    (tmp_path / "config" / "studies" / "ci.yaml").write_text(
        (ROOT / "config" / "studies" / "ci.yaml").read_text()
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        resolve_study(case.get("config", {"study": "ci"}), None)
    check(str(refused.value), case["says"])


@pytest.mark.parametrize("case", cases("commands"))
def test_a_wrong_command_line_ends_with_one_message_and_exit_code_two(case, places, tmp_path, capsys):
    for name, text in case.get("files", {}).items():
        file = Path(places["FOLDER"]) / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    before = written(tmp_path)
    assert cli.main([str(part) for part in named(case["run"], places)]) == 2
    said = capsys.readouterr()
    check(said.err, case["says"], "threespo: ")
    assert said.out == ""
    assert written(tmp_path) == before, "nothing is written"
    assert not list(Path("config/studies").glob(".*")), "no lock and no journal either"


def test_the_cases_are_as_many_as_there_should_be():
    files = ("studies", "texts", "configuration", "files_of_configuration", "commands")
    apart = sum(len(cases(name)) for name in files)
    assert apart > 250
    assert len(NUMBERS) * len(WRONG_NUMBERS) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "set={training: {generations: 1e23}}",
            "--config set: no valid change of config/studies/ci.yaml",
        ),
        ("policy_build=maybe", "--config policy_build: expected true or false, found 'maybe'"),
        ("results=my results", "--config results: expected the path of a folder without blanks"),
        ("alfworld=EMPTY", "no games. It must hold ALFWorld games"),
    ],
)
def test_snakemake_ends_with_one_message_and_exit_code_two(config, said, places):
    given = config.replace("EMPTY", places["EMPTY"])
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--config", "study=ci", given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("threespo: ")]
    assert said in line
    assert "Traceback" not in done.stderr + done.stdout


def test_a_study_of_a_thousand_runs_does_not_fill_the_screen():
    study = parse_study({**BASE, "seeds": list(range(100))}, "my.yaml")
    with pytest.raises(
        InputError, match="no run 'a/b/c/seed-0'; it has: alfworld/tiny-s/grpo/seed-0"
    ) as refused:
        find_run(study, "a/b/c/seed-0")
    assert re.search(r" … and \d{4} more$", str(refused.value))
    assert str(refused.value).count(", ") == MAX_LISTED_NAMES - 1
