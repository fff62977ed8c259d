"""A study of one or two environments: what is different in one stays there, and what is wrong is named."""

import json
from typing import Any

import pytest

from tests.jobs import key_of, load_tasks, make_setup, prepare
from threespo.errors import InputError
from threespo.paths import Run
from threespo.study.composition import merge
from threespo.study.load import parse_study
from threespo.study.matrix import trained_runs

ALFWORLD: dict[str, Any] = {
    "games": {"train": 2, "calibration": 2, "valid_seen": 2, "valid_unseen": 2},
    "max_steps": 15,
}
WEBSHOP: dict[str, Any] = {
    "products": 500,
    "goals": {"train": 30, "calibration": 5, "test": 7},
    "max_steps": 9,
}
VALUES: dict[str, Any] = {
    "name": "two",
    "description": "two environments",
    "seeds": [0],
    "alfworld": ALFWORLD,
    "webshop": WEBSHOP,
    "policies": {"tiny-s": {"kind": "tiny", "stands_for": "qwen2.5-1.5b-instruct"}},
    "methods": {
        "grpo": {"method": "grpo", "learning_rate": 1e-4},
        "gigpo": {"method": "gigpo", "learning_rate": 1e-4},
    },
    "training": {"generations": 100},
}


def study_with(**changes: Any) -> Any:
    return parse_study(merge(VALUES, changes), "test")


def without(env: str) -> Any:
    return parse_study({name: value for name, value in VALUES.items() if name != env}, "test")


def test_a_study_has_the_environments_that_it_names():
    assert list(study_with().environments) == ["alfworld", "webshop"]
    assert list(without("alfworld").environments) == ["webshop"]
    assert {run.env for run in trained_runs(without("webshop"))} == {"alfworld"}
    with pytest.raises(InputError, match="expected a section for one of alfworld, webshop"):
        parse_study(
            {name: value for name, value in VALUES.items() if name not in ("alfworld", "webshop")},
            "test",
        )


def test_what_is_different_in_one_environment_stays_there():
    study = study_with(
        webshop={
            "training": {"minibatch": 64, "generations": 50},
            "methods": {"grpo": {"learning_rate": 3e-4}, "gigpo": {"options": {"normalise": False}}},
        }
    )
    games, shop = study.at("alfworld"), study.at("webshop")
    assert (games.training, games.methods) == (study.training, study.methods)
    assert (shop.training.minibatch, shop.training.generations, shop.training.group_size) == (64, 50, 8)
    assert shop.methods["grpo"].learning_rate == 3e-4
    assert (shop.methods["gigpo"].learning_rate, shop.methods["gigpo"].options) == (
        1e-4,
        {"normalise": False},
    )
    assert (games.evaluation.splits, shop.evaluation.splits) == (
        ("valid_seen", "valid_unseen"),
        ("test",),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"webshop": {"training": {"generation": 5}}}, r"webshop\.training\.generation: no such field"),
        (
            {"webshop": {"training": {"group_size": 1}}},
            r"webshop\.training\.group_size: .*greater than or equal to 2",
        ),
        (
            {"webshop": {"methods": {"grop": {"learning_rate": 1}}}},
            r"webshop\.methods\.grop: no such entry",
        ),
        (
            {"webshop": {"methods": {"gigpo": {"options": {"omega": 1}}}}},
            r"webshop\.methods\.gigpo: .*omega",
        ),
        ({"webshop": {"products": 499}}, r"webshop\.products: .*greater than or equal to 500"),
        ({"webshop": {"fidelity": "exact"}}, r"webshop\.fidelity: .*'original' or 'repaired'"),
        ({"webshop": {"mode": "text_rich"}}, r"webshop\.mode: tiny policies learn to read 'text' only"),
        (
            {"webshop": {"fidelity": "original", "history_length": 0}},
            r"webshop\.history_length: expected 1 or more",
        ),
        (
            {"webshop": {"training": {"threads": 4}}},
            r"webshop\.training\.threads: the same in all environments",
        ),
        ({"webshop": {"source": "path"}}, r"webshop: source 'path' needs the field 'path'"),
        ({"evaluation": {"splits": ["tests"]}}, r"evaluation\.splits: 'tests' is no environment's"),
        (
            {
                "tuning": {"learning_rates": [1e-4, 1e-3], "generations": 9},
                "methods": {"grpo": {"learning_rate": None}},
            },
            r"methods\.gigpo\.learning_rate",
        ),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        study_with(**changes)


def test_the_shop_of_a_study(tmp_path):
    study = study_with()
    prepare(study, "webshop", tmp_path)
    splits = {
        split: load_tasks("webshop", tmp_path, split) for split in ("train", "calibration", "test")
    }
    assert {split: len(goals) for split, goals in splits.items()} == {
        "train": 30,
        "calibration": 5,
        "test": 7,
    }
    setup = make_setup(study, "webshop", tmp_path)
    assert (setup.max_steps, setup.history_length, setup.env.fidelity) == (9, 2, "repaired")
    assert setup.env.admissible(setup.env.initial(splits["test"][0])) == (
        "search[<your query>]",
        "click[search]",
    )


def test_more_goals_than_there_are_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"'goals\.test' is 900, but this catalogue has 500"):
        prepare(study_with(webshop={"goals": {"test": 900}}), "webshop", tmp_path / "shop")
    assert not (tmp_path / "shop").exists()


def test_files_put_there_by_hand_count_by_content(tmp_path):
    """Not those of the official shop: their content is pinned, and wherever they come from, it is the same."""
    keys = {}
    for source in ("path", "official"):
        for content in ("[]", "[1]"):
            (tmp_path / "items_shuffle.json").write_text(content)
            webshop = {"source": source, "path": str(tmp_path), "mirror": f"owner/shop{len(content)}"}
            keys[source, content] = json.dumps(
                key_of("data", study_with(webshop=webshop), "webshop"), sort_keys=True
            )
    assert keys["path", "[]"] != keys["path", "[1]"]
    assert keys["official", "[]"] == keys["official", "[1]"]


def test_only_what_matters_to_an_environment_reruns_it():
    def settings(study, env):
        run = Run(env, "tiny-s", "grpo", 0)
        return {
            "data": key_of("data", study, env),
            "policy": key_of("policy", study, f"{env}/tiny-s"),
            "train": key_of("train", study, run),
        }

    def changed(env, **changes):
        before, after = settings(study_with(), env), settings(study_with(**changes), env)
        return {stage for stage in before if before[stage] != after[stage]}

    assert changed("webshop", webshop={"fidelity": "original"}) == {"policy", "train"}
    # A base policy is cloned from the shop's goals, so it depends on which there are.
    assert changed("webshop", webshop={"goals": {"test": 3}}) == {"data", "policy"}
    assert changed("webshop", webshop={"methods": {"grpo": {"learning_rate": 1e-5}}}) == {"train"}
    assert changed("webshop", webshop={"training": {"minibatch": 8}}) == {"train"}
    assert not changed(
        "alfworld", webshop={"training": {"minibatch": 8}, "products": 600, "max_steps": 3}
    )
    assert not changed("webshop", alfworld={"max_steps": 3, "difficulty": "medium"})
