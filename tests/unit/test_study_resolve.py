"""Which study is meant, and what each stage of it depends on."""

import json
import re
from pathlib import Path

import pytest

from tests.jobs import key_of
from threespo.errors import InputError
from threespo.paths import Paths, Run
from threespo.pipeline.stages import list_jobs
from threespo.study.load import dump_study, load_study
from threespo.study.matrix import prompted_runs, trained_runs, trial_runs
from threespo.study.resolve import current_study, resolve_study

ROOT = Path(__file__).resolve().parents[2]
GRPO = Run("alfworld", "tiny-s", "grpo", 0)
NOWHERE = Paths(ROOT / "nowhere")
GRID = {"learning_rates": [1e-4, 1e-3], "generations": 100}
GPT = {"model": "gpt", "input_price": 1, "output_price": 2}
CLOSED = {"kind": "endpoint", "stands_for": "gpt-4o", "endpoint": GPT}
CORE = "paper-core"
UNTUNED = {"grpo": {"learning_rate": None}, "threespo-calibrated": {"learning_rate": None}}
SEARCH = Run("alfworld", "tiny-s", "threespo-calibrated", 0)


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def study(**changes):
    return load_study(ROOT / "config" / "studies" / "ci.yaml", changes)


@pytest.mark.parametrize(
    ("gpus", "name"), [(None, "smoke"), (0, "smoke"), (1, CORE), (3, CORE), (4, "paper"), (8, "paper")]
)
def test_auto_follows_the_gpus(gpus, name):
    resolved = resolve_study({"study": "auto"}, gpus)
    assert resolved.study.name == name
    assert resolved.paths.root == Path("results") / name
    assert "chosen because" in resolved.reason
    assert ("IDLE" in resolved.reason) == (bool(gpus) and not resolved.study.gpus_per_rank), (
        "never without saying so"
    )


def games_in(folder):
    """Make a folder look as if it held real games: nothing is read when a study is resolved."""
    for name in ("train.jsonl", "valid_seen.jsonl", "valid_unseen.jsonl", "alfred.pddl", "grammar.twl2"):
        (folder / name).touch()
    return str(folder)


def test_changes_and_real_games_are_merged_into_the_study(tmp_path):
    settings = {
        "alfworld": {"max_steps": 50, "games": {"valid_seen": None}},
        "policy": {"max_prompt_tokens": 999},
    }
    config = {
        "study": "ci",
        "alfworld": games_in(tmp_path),
        "real": settings,
        "set": {"alfworld": {"games": {"train": 3}}},
    }
    resolved = resolve_study(config, None)
    assert re.fullmatch("results/ci-games-[0-9a-f]{8}", str(resolved.paths.root))
    assert resolved.study.alfworld.source == "path"
    assert resolved.study.alfworld.path == tmp_path
    assert (resolved.study.alfworld.max_steps, resolved.study.policies["tiny-s"].max_prompt_tokens) == (
        50,
        999,
    )
    assert (resolved.study.alfworld.games.train, resolved.study.alfworld.games.valid_seen) == (3, None)


def test_nested_values_that_come_as_text_are_numbers_and_nulls_again():
    changes = {
        "seeds": ["3"],
        "methods": {"grpo": {"paper_row": "null"}},
        "description": "a: text, not a mapping",
    }
    resolved = resolve_study({"study": "ci", "set": changes, "policy_build": "false"}, None)
    assert resolved.study.seeds == (3,)
    assert resolved.study.methods["grpo"].paper_row is None
    assert resolved.study.description == "a: text, not a mapping"
    assert resolved.study.policy_build is False


@pytest.mark.parametrize(
    ("config", "gpus", "said"),
    [
        ({"study": "paper"}, None, "--resources gpu=4, or choose"),
        ({"study": "ci", "set": {"gpus_per_rank": 1}}, 0, "gpus_per_rank is 1 .* but --resources gpu=0"),
        ({"study": "ci", "set": [1]}, None, "expected a mapping"),
        ({"study": "ci", "sett": {}}, None, "--config sett: no such key"),
        ({"study": "ci", "alfworld": "/nowhere"}, None, "no such folder"),
        ({"study": "ci", "alfworld": "/tmp", "real": "x"}, None, "--config real: expected a mapping"),
        (
            {"study": "ci", "set": {"methods": {"threespo-calibrated": {"options": {"preset": ["a"]}}}}},
            None,
            r"options\.preset: Input should be",
        ),
        ({"study": "ci", "set": {"seeds": []}}, None, "seeds"),
        (
            {"study": "ci", "set": {"methods": {"grpo": {"learning_rate": None}}}},
            None,
            "learning_rate: found None; give it",
        ),
        (
            {"study": "ci", "set": {"agents": {"base": {"agent": "react"}}}},
            None,
            r"agents\.base: this name is taken",
        ),
        (
            {"study": "ci", "set": {"agents": {"a": {"agent": "react", "policies": ["x"]}}}},
            None,
            "no policy 'x'",
        ),
        (
            {"study": "ci", "set": {"policies": {"gpt": {**CLOSED, "endpoint": None}}}},
            None,
            "needs 'endpoint'",
        ),
        (
            {"study": "ci", "set": {"policies": {"tiny-s": {"endpoint": GPT}}}},
            None,
            "other kinds must not have it",
        ),
        ({"study": "ci", "set": {"tuning": GRID}}, None, r"learning_rate: found 0\.0003; remove it"),
        (
            {"study": "ci", "set": {"tuning": GRID | {"learning_rates": [1, 0.1]}}},
            None,
            "in rising order",
        ),
        (
            {"study": "ci", "set": {"methods": UNTUNED, "tuning": GRID | {"seeds": [1]}}},
            None,
            "one of the study's seeds",
        ),
        (
            {"study": "ci", "set": {"tuning": GRID | {"learning_rates": [1e-4, 1.0000001e-4]}}},
            None,
            "in six digits",
        ),
        (
            {"study": "ci", "set": {"tuning": GRID | {"learning_rates": [1e-4, float("inf")]}}},
            None,
            "a finite number",
        ),
        ({"study": "ci", "set": {"policies": {"gpt": CLOSED}}}, None, "no entry of 'agents' plays it"),
    ],
)
def test_wrong_requests_are_refused(config, gpus, said):
    with pytest.raises(InputError, match=said):
        resolve_study(config, gpus)


def test_trials_depend_on_their_own_rate_and_budget_only():
    tuned = study(methods=UNTUNED, tuning=GRID)
    other = study(methods=UNTUNED, tuning=GRID | {"learning_rates": [1e-4, 1e-3, 1e-2]})
    assert len(trial_runs(tuned)) == 4
    for run in trial_runs(tuned):
        assert key_of("train", tuned, run) == key_of("train", other, run)
        assert key_of("evaluate", tuned, run, NOWHERE) == key_of("evaluate", other, run, NOWHERE)
    assert key_of("train", tuned, GRPO) == key_of("train", other, GRPO)
    longer = study(methods=UNTUNED, tuning=GRID | {"generations": 200})
    assert key_of("train", longer, GRPO) == key_of("train", tuned, GRPO)
    assert key_of("train", longer, trial_runs(tuned)[0]) != key_of("train", tuned, trial_runs(tuned)[0])
    choice = "alfworld/tiny-s/grpo"
    assert key_of("tune", tuned, choice) != key_of("tune", other, choice)


def test_closed_models_play_agents_and_are_neither_trained_nor_built(monkeypatch, tmp_path):
    paths = Paths(tmp_path)
    closed = {"gpt": CLOSED}
    agents = {"react": {"agent": "react"}, "direct": {"agent": "direct", "policies": ["gpt"]}}
    mixed = study(policies=closed, agents=agents)
    assert [run.run_id for run in prompted_runs(mixed)] == [
        "alfworld/tiny-s/react/seed-0",
        "alfworld/gpt/react/seed-0",
        "alfworld/gpt/direct/seed-0",
    ]
    assert trained_runs(mixed) == trained_runs(study())
    names = {str(job) for job in list_jobs(mixed)} - {str(job) for job in list_jobs(study())}
    assert names == {f"evaluate {run.run_id}" for run in prompted_runs(mixed)}
    # A key that appears lets the row run that had none; the key itself is in no setting.
    run = prompted_runs(mixed)[1]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    without = key_of("evaluate", mixed, run, paths)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with_key = key_of("evaluate", mixed, run, paths)
    assert with_key != without
    assert "sk-secret" not in json.dumps(with_key)
    # So does a cassette; with a key it grows while the row is played, and decides nothing.
    for present in (False, True):
        if present:
            paths.cassette(run).parent.mkdir(parents=True)
            paths.cassette(run).write_text("recorded\n")
        assert key_of("evaluate", mixed, run, paths) == with_key
    monkeypatch.delenv("OPENAI_API_KEY")
    assert key_of("evaluate", mixed, run, paths) not in (without, with_key)
    # What costs, limits and names of variables are changes no number; another model or address does.
    limits = {"max_cost": 1, "input_price": 9, "timeout_s": 5}
    dear = study(policies={"gpt": CLOSED | {"endpoint": GPT | limits}}, agents=agents)
    assert key_of("evaluate", dear, run, paths) == key_of("evaluate", mixed, run, paths)
    named = study(
        policies={"gpt": CLOSED | {"endpoint": GPT | {"model_env": "MY_MODEL"}}}, agents=agents
    )
    assert key_of("evaluate", named, run, paths) == key_of("evaluate", mixed, run, paths)
    monkeypatch.setenv("MY_MODEL", "gpt-next")
    assert key_of("evaluate", named, run, paths) != key_of("evaluate", mixed, run, paths)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    assert key_of("evaluate", mixed, run, paths) != with_key
    local = prompted_runs(mixed)[0]
    plain = study(agents=agents | {"direct": {"agent": "direct"}})
    assert key_of("evaluate", mixed, local, paths) == key_of("evaluate", plain, local, paths)


def folder_of(**config) -> str:
    return resolve_study({"study": "ci", **config}, None).paths.root.name


def test_a_changed_study_has_a_folder_of_its_own_and_the_same_change_the_same_one():
    changed = folder_of(set={"seeds": [5]})
    assert re.fullmatch("ci-[0-9a-f]{8}", changed)
    assert folder_of(set={"seeds": ["5"]}) == changed
    assert folder_of(set={"seeds": [6]}) not in (changed, "ci")
    assert resolve_study({"study": "ci", "set": {"seeds": [5]}}, None).study.name == changed
    # What is set as it was, or decides no result, changes no study.
    assert (
        folder_of(set={"seeds": [0, 1]}) == folder_of(set={"training": {"checkpoint_every": 7}}) == "ci"
    )
    assert folder_of(set={"seeds": [5]}, name="five") == "ci-five"
    assert folder_of(policy_build=True) != "ci"
    for name in ("../five", "Five", "a b", 1.5):
        with pytest.raises(InputError, match="--config name"):
            folder_of(name=name)


def test_what_is_set_for_all_reaches_an_environment_with_a_value_of_its_own_unless_it_is_named_apart():
    def generations(**fields):
        found = resolve_study({"study": "smoke", "set": fields}, None)
        return {
            env: found.study.at(env).training.generations for env in found.study.environments
        }, found.notes

    assert generations(seeds=[7]) == ({"alfworld": 2500, "webshop": 2000}, [])
    both, notes = generations(training={"generations": 3000})
    assert both == {"alfworld": 3000, "webshop": 3000}
    assert notes == [
        "training.generations is 3000 in webshop too, which has 2000 of its own; to keep that: webshop.training.generations"
    ]
    apart = {"webshop": {"training": {"generations": 2000}}}
    assert generations(training={"generations": 3000}, **apart) == (
        {"alfworld": 3000, "webshop": 2000},
        [],
    )


def test_a_budget_below_one_epoch_is_said():
    assert resolve_study({"study": "smoke"}, None).notes == []
    notes = resolve_study({"study": "smoke", "set": {"training": {"generations": 400}}}, None).notes
    said = "training.generations is 400 in alfworld, where an epoch of 16 tasks may take 1920: the first epoch has 3"
    assert said in notes


def test_the_present_study_is_that_of_the_call_as_long_as_there_is_one(tmp_path, monkeypatch):
    file = tmp_path / "mine.yaml"
    file.write_text((ROOT / "config" / "studies" / "ci.yaml").read_text())
    found = resolve_study({"study": str(file), "results": str(tmp_path), "set": {"seeds": [3]}}, None)
    found.paths.root.mkdir()
    found.paths.study.write_text(dump_study(found.study))
    found.paths.call.write_text(json.dumps(found.call))
    file.write_text(file.read_text().replace("a tiny", "another").replace("3.0e-4", "9.0e-4"))
    # The hash in the folder's name stands for other settings now.
    assert current_study(found.paths) == found.study
    named = resolve_study({"study": str(file), "results": str(tmp_path), "name": "mine"}, None)
    named.paths.root.mkdir()
    named.paths.call.write_text(json.dumps(named.call))
    file.write_text(file.read_text().replace("9.0e-4", "8.0e-4"))
    assert current_study(named.paths).methods["grpo"].learning_rate == 8e-4
    file.write_text("name: [")
    with pytest.raises(InputError, match="not valid YAML"):
        current_study(named.paths)
    file.unlink()
    assert current_study(found.paths) == found.study


def _settings(one):
    return {
        "data": key_of("data", one, "alfworld"),
        "policy": key_of("policy", one, "alfworld/tiny-s"),
        "grpo": key_of("train", one, GRPO),
        "search": key_of("train", one, SEARCH),
        "evaluate": key_of("evaluate", one, GRPO, NOWHERE),
        "learning": key_of("learning", one, GRPO),
        "tables": key_of("tables", one),
    }


@pytest.mark.parametrize(
    ("change", "stages_that_change"),
    [
        ({"seeds": [0, 1, 2]}, {"tables"}),
        ({"description": "else"}, {"tables"}),
        ({"evaluation": {"temperature": 0.9}}, {"evaluate", "learning", "tables"}),
        ({"evaluation": {"seeds": [5]}}, {"evaluate", "tables"}),
        ({"evaluation": {"learning": {"games": 1, "seeds": [5]}}}, {"learning", "tables"}),
        ({"evaluation": {"learning": {"split": "calibration"}}}, {"learning", "tables"}),
        ({"training": {"snapshots": 4}}, {"grpo", "search", "tables"}),
        ({"training": {"generations": 9}}, {"grpo", "search", "tables"}),
        ({"methods": {"grpo": {"learning_rate": 9.0}}}, {"grpo", "tables"}),
        ({"methods": {"grpo": {"paper_row": None}}}, {"tables"}),
        ({"policies": {"tiny-s": {"stands_for": "qwen2.5-7b-instruct"}}}, {"tables"}),
        ({"policies": {"tiny-s": {"learning_rate_scale": 0.5}}}, {"grpo", "search", "tables"}),
        ({"policy_build": True}, {"policy", "tables"}),
        ({"policies": {"tiny-s": {"bases": 2}}}, {"policy", "tables"}),
        ({"training": {"pool": 4, "pool_by_seed": True}}, {"grpo", "search", "tables"}),
        ({"alfworld": {"games": {"train": 9}}}, {"data", "policy", "tables"}),
        ({"alfworld": {"max_steps": 9}}, {"policy", "grpo", "search", "evaluate", "learning", "tables"}),
    ],
)
def test_a_field_matters_to_these_stages_only(change, stages_that_change):
    before, after = _settings(study()), _settings(study(**change))
    assert {stage for stage in before if before[stage] != after[stage]} == stages_that_change


def test_the_order_of_rows_is_that_of_the_tables_and_so_part_of_their_key():
    family = {"depth": 2, "branching": 2, "solutions": 1}
    rows = {
        "families": {"a": family, "b": family},
        "methods": {"grpo": {"method": "grpo"}, "rloo": {"method": "rloo"}},
    }
    for section in rows:
        turned = {**rows, section: dict(reversed(rows[section].items()))}
        assert key_of("tables", study(laboratory=turned)) != key_of("tables", study(laboratory=rows))
    one = study()
    turned = one.model_copy(update={"methods": dict(reversed(one.methods.items()))})
    assert key_of("tables", turned) != key_of("tables", one)


def test_where_games_lie_does_not_matter_but_which_they_are(tmp_path):
    def settings(folder):
        return key_of("data", study(alfworld={"source": "path", "path": str(folder)}), "alfworld")

    for name in ("one", "two"):
        game = tmp_path / name / "train" / "task" / "trial" / "game.tw-pddl"
        game.parent.mkdir(parents=True)
        game.write_text("game")
    assert settings(tmp_path / "one") == settings(tmp_path / "two")
    game.write_text("longer game")
    assert settings(tmp_path / "one") != settings(tmp_path / "two")


def test_settings_are_json_without_this_machines_paths(tmp_path):
    for key in _settings(study(alfworld={"source": "path", "path": str(tmp_path)})).values():
        assert str(tmp_path) not in json.dumps(key)


def test_trained_runs_cover_the_matrix():
    assert len(trained_runs(study(seeds=[1, 2, 3]))) == 3 * 2


def test_beside_real_data_embedded_environments_are_left_out(tmp_path):
    (tmp_path / "items.json").touch()
    both = resolve_study({"study": "smoke"}, None)
    assert list(both.study.environments) == ["alfworld", "webshop"]
    shop = resolve_study(
        {"study": "smoke", "webshop": str(tmp_path), "real": {"policy": {"max_response_tokens": 64}}},
        None,
    )
    assert list(shop.study.environments) == ["webshop"]
    assert shop.paths.root.name == "smoke-shop"
    assert shop.study.policies["tiny-s"].max_response_tokens == 64
    with pytest.raises(InputError, match="has no section 'webshop'"):
        resolve_study({"study": "ablations", "webshop": str(tmp_path)}, None)
