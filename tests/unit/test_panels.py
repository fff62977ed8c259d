"""Panels for developing and for confirming: their games are their own by content, and a frozen study stays as it was."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from threespo.cli import main
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.prepare import check_panels
from threespo.envs.alfworld.prepare import prepare as prepare_games
from threespo.envs.alfworld.settings import SPLITS, AlfworldTasks
from threespo.envs.alfworld.sources import load_games
from threespo.envs.webshop.data import load_goals
from threespo.envs.webshop.prepare import prepare as prepare_shop_of
from threespo.envs.webshop.settings import WebshopTasks
from threespo.errors import InputError
from threespo.pipeline import freeze as freezing
from threespo.pipeline.freeze import freeze
from threespo.pipeline.stages import code_digest, list_jobs
from threespo.results.analysis.caveats import list_caveats
from threespo.study.config import Study
from threespo.study.confirmatory import RULE
from threespo.study.load import load_study, parse_study
from threespo.study.marks import changed_since_mark, describe_mark
from threespo.study.reading import read_yaml

COUNTS = {"train": 40, "calibration": 40, "valid_seen": 40, "valid_unseen": 40}
CONFIG = Path(__file__).parents[2] / "config" / "studies"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def tasks(**panels: int) -> AlfworldTasks:
    return AlfworldTasks.model_validate({"games": COUNTS | panels})


def test_panels_are_prepared_where_a_study_asks_for_them_and_change_nothing_else(tmp_path):
    prepare_games(tasks(), tmp_path / "plain")
    prepare_games(tasks(development=30, confirmation=50), tmp_path / "with")
    before, after = (
        {file.name: file.read_bytes() for file in (tmp_path / name).glob("*.xz")}
        for name in ("plain", "with")
    )
    assert after.keys() - before.keys() == {"development.jsonl.xz", "confirmation.jsonl.xz"}
    assert all(after[name] == content for name, content in before.items())
    assert len(load_games(tmp_path / "with", "confirmation")) == 50


def scene(problem: str) -> tuple[str, ...]:
    """What a game's problem says beside its name, by a reading of its own: every fact in brackets, sorted."""
    body = problem[problem.index("(:objects") :]
    return tuple(sorted(body.replace("\n", " ").split("(")))


def test_no_panel_has_a_game_of_another_split_whatever_it_is_called():
    seen = {}
    for split in SPLITS:
        seed = 2029 if split == "confirmation" else 7
        seen[split] = {
            (game.goal, scene(game.problem)) for game in generate_games(split, 400, seed, "small")
        }
    for panel in ("development", "confirmation"):
        for other, games in seen.items():
            assert other == panel or not seen[panel] & games


def test_a_game_that_is_in_a_panel_and_elsewhere_is_found_under_another_name():
    games = {
        split: generate_games(split, 5, 7, "small") for split in ("train", "development", "confirmation")
    }
    check_panels(games)
    twin = games["train"][3]
    lines = twin.problem.splitlines()
    renamed = "\n".join(["(define (problem another_name)", *reversed(lines[1:])])
    games["confirmation"].append(
        dataclasses.replace(twin, game_id="renamed/trial", split="confirmation", problem=renamed)
    )
    with pytest.raises(
        InputError, match="1 games of the panel 'confirmation' are in 'train' too, such as renamed/trial"
    ):
        check_panels(games)


def study_file(tmp_path: Path, **changed: object) -> Path:
    values = read_yaml((CONFIG / "ci.yaml").read_text(), "ci.yaml")
    values["alfworld"]["games"]["confirmation"] = 6
    values |= {"seeds": [0, 1, 2], "evaluation": {"seeds": [123], "splits": ["confirmation"]}} | changed
    file = tmp_path / "frozen.yaml"
    file.write_text("# A comment that stays\n" + yaml.safe_dump(values))
    return file


@pytest.fixture(autouse=True)
def nothing_has_run(tmp_path, monkeypatch):
    """A developer's own results are no reason to refuse a mark here."""
    monkeypatch.setattr(freezing, "RESULTS", tmp_path / "results")


def changes(study: Study, steps: set[tuple[str, str]] = frozenset()) -> list[str]:
    return changed_since_mark(study, code_digest(study), steps)


def words(study: Study, steps: set[tuple[str, str]] = frozenset()) -> str:
    return describe_mark(study, code_digest(study), steps)


def test_a_study_is_frozen_and_loses_its_mark_when_configuration_or_code_change(tmp_path, monkeypatch):
    monkeypatch.setattr(freezing, "current_commit", lambda: COMMIT)
    file = study_file(tmp_path)
    before = load_study(file)
    mark = freeze(file)
    study = load_study(file)
    assert study.confirmatory == mark
    assert mark.commit == COMMIT
    assert file.read_text().startswith("# A comment that stays\n")
    assert study.model_copy(update={"confirmatory": None}) == before
    assert changes(study) == []
    assert words(before) == ""
    kept = f"Confirmatory: frozen at commit {COMMIT[:12]} with the configuration {mark.configuration}"
    assert words(study).startswith(kept)
    assert list_caveats(study, words(study))[0] == words(study)
    lost = words(study.model_copy(update={"seeds": (0, 1, 3)}))
    assert lost.startswith("Not confirmatory: ")
    assert "its configuration has changed since" in lost
    assert not [said for said in list_caveats(before) if "onfirmatory" in said]

    # A label says nothing of results; a seed does.
    assert changes(study.model_copy(update={"description": "other words"})) == []
    assert changes(study.model_copy(update={"seeds": (0, 1, 3)})) == ["configuration"]
    # What is compared with what is a label to the jobs, but not to a reader of the verdicts.
    renamed = {
        name: entry.model_copy(update={"paper_row": "hgpo"}) for name, entry in study.methods.items()
    }
    assert changes(study.model_copy(update={"methods": renamed})) == ["configuration"]
    # The analysis counts as well: the modules of the tables, and the rules that decide claims.
    asked = set().union(*(job.code(study) for job in list_jobs(study) if job.stage == "tables"))
    assert "threespo.results.analysis.statistics:difference_interval" in asked
    monkeypatch.setattr(
        "threespo.pipeline.stages.semantic_digest", lambda file: f"other rules in {file.name}"
    )
    assert changes(study) == ["code"]
    monkeypatch.undo()
    monkeypatch.setattr(freezing, "current_commit", lambda: COMMIT)
    monkeypatch.setattr(
        "threespo.pipeline.stages.Job.code", lambda job, _: {"module": f"changed {job.stage}"}
    )
    assert changes(study) == ["code"]

    # Changes that every method was run again for, to the same bytes, lead from the frozen code to the present one.
    now = code_digest(study)
    assert changes(study, {(mark.code, "between"), ("between", now), ("elsewhere", "there")}) == []
    assert "changed since without an effect" in words(study, {(mark.code, now)})
    assert changes(study, {("between", now), (now, mark.code)}) == ["code"]

    # A mark is not replaced by accident.
    text = file.read_text()
    with pytest.raises(
        InputError, match=r"is frozen at commit .* no longer be confirmatory\. .*--freeze --again"
    ):
        freeze(file)
    assert file.read_text() == text
    again = freeze(file, again=True)
    assert again.code != mark.code
    assert again.configuration == mark.configuration
    assert file.read_text().count("confirmatory:") == 1


def test_a_mark_of_the_earlier_rule_says_where_it_can_be_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(freezing, "current_commit", lambda: COMMIT)
    file = study_file(tmp_path)
    freeze(file)
    assert f"rule: {RULE}" in file.read_text()
    file.write_text(file.read_text().replace(f"  rule: {RULE}\n", ""))
    said = words(load_study(file))
    assert said.startswith(f"This study was frozen at commit {COMMIT[:12]}")
    assert f"git worktree add ../frozen {COMMIT[:12]}" in said


@pytest.mark.parametrize("name", ["decisive", "early", "shop", "title", "released-cap"])
def test_published_marks_are_read_and_keep_their_meaning(name):
    study = load_study(CONFIG / f"{name}.yaml")
    assert study.confirmatory is not None
    assert study.confirmatory.rule == 1
    assert "by an earlier rule" in words(study)


def test_a_study_that_has_runs_is_not_frozen_any_more(tmp_path, monkeypatch):
    monkeypatch.setattr(freezing, "current_commit", lambda: COMMIT)
    monkeypatch.setattr(freezing, "RESULTS", tmp_path / "results")
    (tmp_path / "results" / "ci" / "runs").mkdir(parents=True)
    with pytest.raises(
        InputError, match="has runs of this study already; a study is frozen before it runs"
    ):
        freeze(study_file(tmp_path))


def test_only_clean_commits_are_frozen(tmp_path, monkeypatch):
    monkeypatch.setattr(freezing, "current_commit", lambda: f"{COMMIT} with uncommitted changes")
    file = study_file(tmp_path)
    text = file.read_text()
    with pytest.raises(InputError, match="with uncommitted changes; commit first"):
        freeze(file)
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"evaluation": {"splits": ["confirmation", "valid_unseen"]}},
            "'valid_unseen' of alfworld is a panel for report",
        ),
        (
            {"evaluation": {"splits": ["confirmation"], "learning": {"split": "calibration"}}},
            "'calibration' of alfworld is a panel for calibration",
        ),
        ({"seeds": [0, 1]}, "seeds: found 2 training seeds; a verdict needs at least 3"),
    ],
)
def test_what_cannot_confirm_is_refused_when_frozen_and_when_read(
    tmp_path, monkeypatch, capsys, changed, message
):
    monkeypatch.setattr(freezing, "current_commit", lambda: COMMIT)
    file = study_file(tmp_path, **changed)
    assert main(["study", str(file), "--freeze"]) == 2
    assert message in capsys.readouterr().err
    values = read_yaml(file.read_text(), str(file))
    values["confirmatory"] = {"commit": COMMIT, "configuration": "0" * 16, "code": "0" * 16}
    with pytest.raises(InputError, match=message):
        parse_study(values, str(file))


def test_the_shops_panels_are_goals_that_nothing_else_holds(tmp_path):
    plain = {"calibration": 200, "test": 200}
    prepare_shop_of(WebshopTasks.model_validate({"products": 500, "goals": plain}), tmp_path / "plain")
    panels = plain | {"development": 150, "confirmation": 250}
    prepare_shop_of(WebshopTasks.model_validate({"products": 500, "goals": panels}), tmp_path / "with")
    before, after = (
        {file.name: file.read_bytes() for file in (tmp_path / name).glob("*.xz")}
        for name in ("plain", "with")
    )
    assert after.keys() - before.keys() == {"development.jsonl.xz", "confirmation.jsonl.xz"}
    assert all(after[name] == content for name, content in before.items())

    wished = {}
    for split in ("train", "calibration", "test", "development", "confirmation"):
        goals = load_goals(tmp_path / "with", split)
        wished[split] = {(goal.name, goal.options, goal.attributes, goal.price_upper) for goal in goals}
    assert (len(wished["development"]), len(wished["confirmation"])) == (150, 250)
    for panel in ("development", "confirmation"):
        for other, wishes in wished.items():
            assert other == panel or not wished[panel] & wishes


@pytest.mark.parametrize(
    ("goals", "message"),
    [
        (
            {"calibration": 251, "confirmation": 250},
            "1 of 251 goals in 'calibration' are in 'confirmation' too",
        ),
        ({"development": 10}, "10 of 500 goals in 'test' are in 'development' too"),
        ({"test": 200, "development": 251}, "'goals.development' is 251, but this catalogue has 250"),
    ],
)
def test_a_panel_that_another_split_reaches_into_is_refused(tmp_path, goals, message):
    with pytest.raises(InputError, match=message):
        prepare_shop_of(
            WebshopTasks.model_validate({"products": 500, "goals": goals}), tmp_path / "shop"
        )
    assert not (tmp_path / "shop").exists()
