"""The shipped base policy: made by the present recipe, strong where it should be, weak where it should be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from threespo.imitation.alfworld_curriculum import recipe

from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate
from threespo.envs.episode import EpisodeSetup
from threespo.errors import InputError
from threespo.imitation.curriculum import curriculum_of
from threespo.runs.data import load_tasks, prepare
from threespo.study.config import Study, load_study

SMOKE = Path(__file__).parents[2] / "config" / "studies" / "smoke.yaml"


@pytest.fixture(scope="module")
def study() -> Study:
    return load_study(SMOKE, {"alfworld": {"games": {"train": 4, "calibration": 4, "valid_seen": 2, "valid_unseen": 2}}})


@pytest.fixture(scope="module")
def data(study, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "alfworld"
    prepare(study, "alfworld", folder)
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Study, Path]:
    """The study of `make reproduce`, and its shop."""
    study, folder = load_study(SMOKE), tmp_path_factory.mktemp("data") / "webshop"
    prepare(study, "webshop", folder)
    return study, folder


@pytest.mark.parametrize("policy", ["tiny-s", "tiny-m"])
def test_studies_use_the_shipped_policies(data, tmp_path, policy):
    """Fails when games, explorer, prompts, tokenizer or recipe changed and the policy was not built anew."""
    mini = load_study(SMOKE.with_name("mini.yaml"))
    base_policy.provide(mini, "alfworld", policy, data, tmp_path / "out")
    shipped = base_policy.SHIPPED / f"alfworld-small-{policy[-1]}"
    for name in ("policy.json", "base/model.safetensors", "strong/tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (shipped / name).read_bytes()


def test_studies_use_the_shipped_policy_of_the_shop(shop, tmp_path):
    study, data = shop
    base_policy.provide(study, "webshop", "tiny-s", data, tmp_path / "out")
    shipped = base_policy.SHIPPED / "webshop-500-s"
    for name in ("policy.json", "base/model.safetensors", "strong/tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (shipped / name).read_bytes()


def test_what_is_claimed_of_the_shops_policy_holds_on_test_goals(shop):
    """Goals that nobody chose by; bounds are the claims less three standard errors or more."""
    study, data = shop
    facts = json.loads((base_policy.SHIPPED / "webshop-500-s" / "policy.json").read_text())
    assert facts["strong"]["success_t1.0"] >= 0.65
    assert facts["strong"]["binding"]["product_recall"] >= 0.85
    assert 0.05 <= facts["base"]["success_t1.0"] <= 0.3
    assert facts["base"]["valid_format_t1.0"] >= 0.95
    curriculum, goals = curriculum_of(study, "webshop", "s", data), load_tasks("webshop", data, "test")[:80]
    folder = base_policy.SHIPPED / "webshop-500-s"
    strong, base = (base_policy.measure(folder / name, curriculum, goals, 3) for name in ("strong", "base"))
    assert strong["success_t1.0"] >= 0.5
    assert strong["admissible_t1.0"] >= 0.8
    assert base["success_t1.0"] <= 0.3
    assert base_policy.binding(folder / "strong", curriculum, goals, 3)["product_recall"] >= 0.75


def test_another_recipe_does_not_use_it(study, data):
    known = json.loads((base_policy.SHIPPED / "alfworld-small-s" / "policy.json").read_text())["fingerprint"]
    curriculum = curriculum_of(study, "alfworld", "s", data)
    assert base_policy.recipe_fingerprint(curriculum) == known
    assert base_policy.recipe_fingerprint(replace(curriculum, plan=recipe("m", "small"))) != known
    assert base_policy.recipe_fingerprint(replace(curriculum, setup=EpisodeSetup(Alfworld(), 15, 1))) != known


@pytest.mark.parametrize("size", ["s", "m"])
def test_what_is_claimed_of_the_shipped_policies(size):
    facts = json.loads((base_policy.SHIPPED / f"alfworld-small-{size}" / "policy.json").read_text())
    assert facts["strong"]["success_t1.0"] >= 0.7
    assert facts["strong"]["binding"]["take_recall"] >= 0.9
    assert facts["strong"]["binding"]["take_false_positives"] <= 0.1
    assert 0.1 <= facts["base"]["success_t1.0"] <= 0.3
    assert facts["base"]["valid_format_t1.0"] >= 0.95


def test_the_larger_policy_is_about_four_times_the_smaller():
    files = [base_policy.SHIPPED / f"alfworld-small-{size}" / "policy.json" for size in "sm"]
    small, large = (json.loads(file.read_text())["parameters"] for file in files)
    assert 3.5 < large / small < 4.5


@pytest.mark.parametrize(("size", "count"), [("s", 80), ("m", 40)])
def test_the_claims_hold_on_games_nobody_chose_by(study, data, size, count):
    """Fresh games in unseen rooms; bounds are the claims less three standard errors or more."""
    curriculum = curriculum_of(study, "alfworld", size, data)
    games = [compile_game(record) for record in generate("valid_unseen", count, 991, "small")]
    folder = base_policy.SHIPPED / f"alfworld-small-{size}"
    strong, base = (base_policy.measure(folder / name, curriculum, games, 3) for name in ("strong", "base"))
    assert strong["success_t1.0"] >= 0.55
    assert base["success_t1.0"] <= 0.35
    assert base["valid_format_t1.0"] >= 0.93
    bound = base_policy.binding(folder / "strong", curriculum, games, 3)
    assert bound["take_recall"] >= 0.8
    assert bound["take_false_positives"] <= 0.1


def test_a_broken_shipped_description_is_named(study, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "SHIPPED", tmp_path)
    (tmp_path / "alfworld-small-s").mkdir()
    (tmp_path / "alfworld-small-s" / "policy.json").write_text("{")
    with pytest.raises(InputError, match=r"policy\.json: the shipped policy's description is broken"):
        base_policy.provide(study, "alfworld", "tiny-s", data, tmp_path / "out")
    assert not (tmp_path / "out").exists()
