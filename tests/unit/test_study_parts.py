"""Studies that extend others, entries like others, and parts: what is run where, and that shared rows run once."""

from pathlib import Path

import pytest
import yaml

from threespo.errors import InputError
from threespo.pipeline.stages import list_jobs, list_jobs_of_part
from threespo.study.load import load_study, parse_study
from threespo.study.matrix import (
    base_policies,
    evaluated_runs,
    learning_runs,
    prompted_runs,
    reference_runs,
    runs_of_part,
    trained_runs,
    trial_runs,
)
from threespo.study.parts import PARTS
from threespo.study.resolve import resolve_study

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "config" / "studies"


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def values(**changes):
    tiny = {"kind": "tiny", "stands_for": "qwen2.5-1.5b-instruct"}
    return {
        "name": "x",
        "description": "x",
        "seeds": [0, 1],
        "alfworld": {
            "source": "embedded",
            "max_steps": 5,
            "games": {"train": 8, "calibration": 1, "valid_seen": 1, "valid_unseen": 40},
        },
        "webshop": {"source": "embedded", "products": 500, "max_steps": 5, "history_length": 0},
        "policies": {"small": {**tiny, "size": "s"}, "large": {**tiny, "size": "m"}},
        "methods": {
            "grpo": {"method": "grpo", "learning_rate": 1e-4, "paper_row": "grpo"},
            "full": {
                "method": "threespo",
                "learning_rate": 1e-5,
                "options": {"preset": "literal", "g_max": 4},
                "paper_row": "3spo",
                "parts": ["main", "ablation", "figures"],
            },
            "without": {"like": "full", "options": {"novelty": "none"}, "parts": ["ablation"]},
        },
        "agents": {"react": {"agent": "react"}},
        "training": {"generations": 100, "tasks_per_epoch": 1, "group_size": 2},
        "evaluation": {"learning": {"games": 1}},
        "parts": {
            "ablation": {"policies": ["small"]},
            "figures": {"policies": ["small"], "environments": ["alfworld"]},
        },
        **changes,
    }


def cells(runs):
    return {(run.env, run.policy, run.method) for run in runs}


def test_a_row_runs_where_one_of_its_parts_does_and_once():
    study = parse_study(values(), "x")
    everywhere = {(env, policy) for env in ("alfworld", "webshop") for policy in ("small", "large")}
    runs = trained_runs(study)
    assert len(runs) == len(set(runs)) == 2 * (4 + 4 + 2)
    assert cells(runs) == {(*place, method) for place in everywhere for method in ("grpo", "full")} | {
        (env, "small", "without") for env in ("alfworld", "webshop")
    }
    assert cells(runs_of_part(study, "ablation")) == {
        (env, "small", method)
        for env in ("alfworld", "webshop")
        for method in ("full", "without", "base", "strong")
    }
    assert cells(runs_of_part(study, "figures")) == {
        ("alfworld", "small", method) for method in ("full", "base", "strong")
    }
    assert cells(runs_of_part(study, "main")) >= cells(prompted_runs(study))
    with pytest.raises(
        InputError, match="no rows in the part 'sensitivity'; it has: main, ablation, figures"
    ):
        list_jobs_of_part(study, "sensitivity")


def test_the_jobs_of_all_parts_are_those_of_the_study():
    study = parse_study(values(), "x")
    parts = {job for part in ("main", "ablation", "figures") for job in list_jobs_of_part(study, part)}
    assert {job for job in list_jobs(study) if job.stage == "evaluate"} == {
        job for job in parts if job.stage == "evaluate"
    }
    curves = {job.name for job in parts if job.stage == "learning"}
    assert curves == {
        run.run_id for run in learning_runs(study) if run in runs_of_part(study, "figures")
    }


def test_a_part_that_is_left_out_takes_its_rows_policies_and_agents_with_it():
    study = parse_study(values(parts={"main": None, "ablation": {"policies": ["small"], "environments": ["alfworld"]},
                                      "sensitivity": None, "figures": None}, webshop=None), "x")  # fmt: skip
    assert cells(trained_runs(study)) == {
        ("alfworld", "small", "full"),
        ("alfworld", "small", "without"),
    }
    assert base_policies(study) == [("alfworld", "small")]
    assert cells(reference_runs(study)) == {
        ("alfworld", "small", "base"),
        ("alfworld", "small", "strong"),
    }
    assert prompted_runs(study) == []
    assert {job.name for job in list_jobs(study) if job.stage == "policy"} == {"alfworld/small"}


def test_trials_are_of_the_rows_that_run():
    methods = values()["methods"]
    for entry in methods.values():
        entry.pop("learning_rate", None)
    tuning = {"learning_rates": [1e-4, 1e-3], "generations": 10}
    study = parse_study(values(methods=methods, tuning=tuning), "x")
    assert cells(trial_runs(study)) == cells(trained_runs(study))


def test_an_entry_is_like_another_but_for_its_own_fields_and_labels():
    study = parse_study(
        values(
            webshop={
                "source": "embedded",
                "products": 500,
                "methods": {"full": {"options": {"alpha": 3.0}}},
            }
        ),
        "x",
    )
    full, without = study.methods["full"], study.methods["without"]
    assert without.options == {**full.options, "novelty": "none"}
    assert (without.learning_rate, without.paper_row, without.parts) == (
        full.learning_rate,
        None,
        ("ablation",),
    )
    assert study.at("webshop").methods["without"].options["alpha"] == 3.0
    assert "alpha" not in study.at("alfworld").methods["without"].options

    # What is set for one call reaches the entries like it.
    changed = resolve_study(
        {"study": "paper", "set": {"methods": {"threespo-literal": {"options": {"alpha": 7.0}}}}}, 4
    ).study
    assert changed.methods["wo-novelty"].options["alpha"] == 7.0
    assert changed.methods["alpha-35"].options["alpha"] == 35


def test_a_study_extends_another_and_keeps_some_of_its_entries(tmp_path):
    base = values()
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**base, "confirmatory": None}, sort_keys=False))
    own = {"extends": "base", "name": "own", "keep": {"policies": ["small"], "methods": ["full", "grpo"], "agents": []},
           "training": {"generations": 200}}  # fmt: skip
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    study = load_study(tmp_path / "own.yaml")
    assert (study.name, study.description) == ("own", "x")
    assert (study.training.generations, study.training.tasks_per_epoch) == (200, 1)
    assert (list(study.policies), list(study.methods), study.agents) == (["small"], ["grpo", "full"], {})
    assert cells(evaluated_runs(study)) == {
        (env, "small", method)
        for env in ("alfworld", "webshop")
        for method in ("grpo", "full", "base", "strong")
    }

    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**base, "extends": "own"}))
    with pytest.raises(InputError, match=r"extends: 8 files extend each other; is it a ring\?"):
        load_study(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("extends: base\n")
    with pytest.raises(InputError, match=r"own\.yaml: name: this field is required"):
        load_study(tmp_path / "own.yaml")


def test_the_core_of_the_paper_are_runs_of_the_paper_with_the_same_keys():
    """So that each takes the other's results where both lie beside each other."""
    paper, core = (resolve_study({"study": name}, 4) for name in ("paper", "paper-core"))
    runs = [
        job
        for job in list_jobs(core.study)
        if job.stage in ("train", "evaluate", "learning", "policy", "data")
    ]
    assert len(trained_runs(core.study)) == 6
    for job in runs:
        assert (
            job.settings(core.study, core.paths).key() == job.settings(paper.study, paper.paths).key()
        ), job


@pytest.mark.parametrize("name", ["paper", "paper-fair", "mini"])
def test_the_whole_paper_has_all_four_parts_with_at_least_its_three_seeds(name):
    study = load_study(STUDIES / f"{name}.yaml")
    assert len(study.seeds) >= 3
    for part in PARTS:
        assert list_jobs_of_part(study, part)
    fair = load_study(STUDIES / "paper-fair.yaml")
    assert [*fair.methods] == [*load_study(STUDIES / "paper.yaml").methods]
    assert all(entry.options.get("max_generations_per_task") is None for entry in fair.methods.values())


def test_curves_are_drawn_of_the_part_figures_where_a_study_has_it_and_else_of_every_row():
    mini, smoke = (
        load_study(ROOT / "config" / "studies" / f"{name}.yaml") for name in ("mini", "smoke")
    )
    drawn = {(run.env, run.policy, run.method) for run in learning_runs(mini)}
    named = {name for name, entry in mini.methods.items() if "figures" in entry.parts}
    assert drawn == {("alfworld", "tiny-s", name) for name in (*named, "base")}
    assert {run.method for run in learning_runs(smoke)} == {*smoke.methods, "base"}
    assert {run.env for run in learning_runs(smoke)} == {"alfworld", "webshop"}
