"""Results of a study with ALFWorld, WebShop or both: each environment's numbers stay its own, from tables to the report."""

import json
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from tests.jobs import write_report, write_tables
from threespo.errors import InputError
from threespo.methods.tree_table import COLUMNS
from threespo.paths import Paths
from threespo.policy.endpoint import NOT_RUN
from threespo.results import collect
from threespo.results.analysis.caveats import list_caveats
from threespo.results.analysis.comparisons import compare_methods
from threespo.results.analysis.findings import describe_findings
from threespo.results.paper_numbers import read_results
from threespo.results.tables import main_results_table
from threespo.study.catalogue import figure_files_of, notebook_file, notebooks_of, read_catalogue
from threespo.study.confirmatory import Freeze
from threespo.study.load import dump_study, load_study
from threespo.study.matrix import evaluated_runs, learning_runs, probed_runs, prompted_runs, trained_runs
from threespo.tables import write_table
from threespo.watch import index
from threespo.watch.index import write_index

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "config" / "studies" / "ci.yaml"
SHOP = {
    "goals": {"train": 8, "calibration": 8, "test": 4},
    "max_steps": 10,
    "training": {"generations": 200, "inadmissible_penalty": 0.1},
    "methods": {"grpo": {"learning_rate": 1e-3}, "threespo-calibrated": {"options": {"omega_k": 1.0}}},
}
WINS = {
    ("alfworld", "grpo"): 2, ("alfworld", "threespo-calibrated"): 1, ("alfworld", "strong"): 4,
    ("webshop", "grpo"): 1, ("webshop", "threespo-calibrated"): 3, ("webshop", "strong"): 4,
}  # fmt: skip
"""Of four tasks, by environment and method; the base wins none."""
TYPES = {
    "alfworld": ("pick_and_place_simple", "pick_two_obj_and_place"),
    "webshop": ("beauty", "grocery"),
}
GENERATIONS = {"alfworld": 1200, "webshop": 100}


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def study_with(*environments, **changes):
    here = {name: {"alfworld": {}, "webshop": SHOP}[name] for name in environments}
    return load_study(CI, here | dropped(environments) | changes)


def dropped(environments):
    return {} if "alfworld" in environments else {"alfworld": None}


@pytest.fixture
def both():
    return study_with("alfworld", "webshop")


def partial_score(run):
    """Return what an episode that is not won scores: nothing in ALFWorld, a part in the shop."""
    if run.env == "alfworld":
        return 0
    return {"base": 0.1, "grpo": 0.5 - 0.2 * run.seed}.get(run.method, 0.2)


def episodes_of(study, run):
    wins = WINS.get((run.env, run.method), 0)
    same = {
        "env": run.env,
        "policy": run.policy,
        "method": run.method,
        "training_seed": run.seed,
        "trials": 1,
    }
    return [
        {
            **same, "split": split, "evaluation_seed": seed, "task_id": f"{task}", "task_type": TYPES[run.env][task % 2],
            "success": task < wins, "first_success": task < wins, "steps": 5, "temperature": 0.4,
            "score": 1 if task < wins else partial_score(run), "invalid_format": 0, "inadmissible": 0,
        }
        for split in study.at(run.env).evaluation.splits
        for seed in study.evaluation.seeds
        for task in range(4)
    ]  # fmt: skip


def metrics_of(run):
    search = {
        "detail_expansions": 5.0,
        "detail_capped_expansions": 1.0,
        "detail_n_0": 1.0,
        "detail_n_1": 3.0,
    }
    search["detail_generation_caps"] = 0.0
    search |= {"detail_gated_states": 3.0, "detail_known_states": 30.0, "detail_gated_roots": 4.0}
    scores = dict.fromkeys((f"detail_state_score_{name}" for name in ("visits", "unique", "known")), 0.5)
    return [
        {
            "epoch": epoch, "tasks": 16, "generations": GENERATIONS[run.env] * epoch, "env_steps": 9,
            "completed_paths": 8 * epoch, "optimizer_steps": epoch, "train_success": 0.2 * epoch, "detail_state_met": 30.0,
            "epoch_paths": 10, "epoch_successes": 2 * epoch, "detail_state_high_unique": 0.5,
            "detail_state_high_visits": 0.5, **scores, **(search if run.method != "grpo" else {}),
        }
        for epoch in (1, 2, 3)
    ]  # fmt: skip


def timing_of(run):
    """GRPO takes one minute an epoch; 3SPO two in ALFWorld and half of one in the shop."""
    seconds = {"grpo": 60.0}.get(run.method, {"alfworld": 120.0, "webshop": 30.0}[run.env])
    parts = dict.fromkeys(
        (f"{part}_seconds" for part in ("sampling", "update", "environment", "method", "logging")), 1.0
    )
    return [{"epoch": epoch, "seconds": seconds, "peak_memory_mb": 5.0, **parts} for epoch in (1, 2, 3)]


def trees_of(run):
    """Of each task type one tree in the first and one in the last epoch: a root, and two states below it."""
    texts = dict.fromkeys(("goal", "action", "response", "observation"), "x")
    numbers = dict.fromkeys(
        ("visits", "successes", "reward", "novelty", "difference", "success", "advantage"), 0.5
    )
    same = {
        **texts,
        **numbers,
        "end": "",
        "valid": True,
        "admissible": True,
        "gated": False,
        "rollouts": 2,
    }
    late = {"alfworld": 0.1, "webshop": 0.9}[run.env]
    rows = [
        {
            **same, "epoch": epoch, "task_id": kind, "task_type": kind, "node": node, "parent": -1 if node == 0 else 0,
            "depth": 1 + (node > 0), "state": str(node), "expanded": node if node < 2 else -1,
            "score": 1.0 if epoch == 1 else late * (node > 0),
        }
        for kind in TYPES[run.env]
        for epoch in (1, 3)
        for node in range(3)
    ]  # fmt: skip
    rows += [
        {**row, "node": 3, "parent": 1, "depth": 3, "expanded": -1} for row in rows if row["node"] == 1
    ]
    return [
        {name: row[name] for name in COLUMNS}
        for row in sorted(rows, key=lambda row: (row["epoch"], row["node"]))
    ]


def example_of(study, run):
    """Two steps, with text that a page has to escape."""
    names = {"env": run.env, "policy": run.policy, "method": run.method, "training_seed": run.seed}
    task = {
        **dict.fromkeys(("task_id", "task_type", "goal"), "x"),
        "split": study.at(run.env).evaluation.splits[-1],
    }
    said = {"observation": "<script>alert(1)</script>", "response": "<think>", "action": "look"}
    return [
        {**names, **task, "evaluation_seed": 1, "success": True, "score": 1.0, "step": step, **said}
        for step in (1, 2)
    ]


def probed(run):
    same = {
        "task_id": "x",
        "task_type": "x",
        "epoch": 2,
        "depth": 2,
        "continuations": 4,
        "alpha": 1.0,
        "snapshot": 1,
    }
    counts = {
        "visits": 2.0,
        "counted_successes": 1.0,
        "score": 0.5,
        "gated": False,
        "score_without_gate": 0.5,
    }
    return [{**same, **counts, "state": str(wins), "successes": wins} for wins in (1, 2)]


def snapshots_of(run, split):
    """Each of three epochs wins one game more of four than the one before, the base none."""
    generations = metrics_of(run)[0]["generations"] if run.method != "base" else 0
    return [
        {
            **{
                "snapshot": number,
                "epoch": number,
                "generations": generations * number,
                "optimizer_steps": number,
            },
            **{"split": split, "evaluation_seed": 1, "task_id": str(game), "task_type": "x", "steps": 3},
            "success": game < number,
        }
        for number in ((0,) if run.method == "base" else (1, 2, 3))
        for game in range(4)
    ]


def finish(study, folder):
    """Write what a finished study leaves for its tables."""
    paths = Paths(folder)
    for run in evaluated_runs(study):
        write_table(paths.run(run).evaluation, episodes_of(study, run))
        write_table(
            paths.run(run).evaluation_timing, [{"split": "x", "evaluation_seed": 1, "seconds": 1.0}]
        )
        write_table(paths.run(run).evaluation_example, example_of(study, run))
    for run in trained_runs(study):
        common = {
            "env_steps": 9,
            "state_score_unique": 0.5,
            "successes": 1,
            "completed_paths": 2,
            "n_1": 3.0,
        }
        types = [
            {"epoch": epoch, "task_type": kind, **common}
            for epoch in (1, 2, 3)
            for kind in TYPES[run.env]
        ]
        searched = trees_of(run) if run.method != "grpo" else []
        write_table(paths.run(run).metrics, metrics_of(run))
        write_table(paths.run(run).timing, timing_of(run))
        write_table(paths.run(run).task_types, types)
        write_table(paths.run(run).trees, searched, COLUMNS)
    for run in learning_runs(study):
        write_table(
            paths.run(run).learning, snapshots_of(run, study.at(run.env).evaluation.learning.split)
        )
    for run in probed_runs(study):
        write_table(paths.run(run).probe, probed(run))
    return paths


def table(paths, name):
    return pd.read_parquet(paths.table(name))


def draw(notebook, paths):
    """Execute a notebook's cells here, and return the variables that they leave and all figures that they drew."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    plt.close("all")
    entry = read_catalogue().notebooks[notebook]
    cells = json.loads((ROOT / notebook_file(notebook)).read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    values = {"__name__": "notebook"}
    exec(code[0], values)
    values.update(tables=str(paths.tables), figures=str(paths.figures))
    if entry.source is not None:
        values.update(table=notebook, inputs=entry.tables)
    for source in code[1:]:
        exec(source, values)
    return [plt.figure(number) for number in plt.get_fignums()]


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_visible()]


def test_the_shops_score_stands_beside_its_success_and_the_papers(both, tmp_path):
    paths = finish(both, tmp_path)
    write_tables(both, paths)
    main = table(paths, "main").set_index(["env", "method", "split"])
    assert list(dict.fromkeys(main.index.get_level_values("env"))) == ["alfworld", "webshop"]
    grpo = main.loc[("webshop", "grpo", "test")]
    assert (grpo["mean"], grpo["paper_mean"], grpo["paper_std"]) == (25.0, 56.8, 3.8)
    # One of four is bought as asked for; the others score 0.5 with one seed and 0.3 with the other: 62.5 and 47.5.
    assert grpo["score_mean"] == pytest.approx(55.0)
    assert grpo["score_std"] == pytest.approx(10.6066, abs=1e-4)
    assert grpo["score_evaluation_std"] == pytest.approx(0.0)
    assert (grpo["interval"], grpo["seeds"], np.isnan(grpo["score_low"])) == ("", 2, True)
    assert (grpo["paper_score_mean"], grpo["paper_score_std"], grpo["generations"]) == (75.8, 3.5, 300.0)
    base = main.loc[("webshop", "base", "test")]
    assert (base["paper_mean"], base["paper_score_mean"]) == (5.2, 23.1)
    unseen = main.loc[("alfworld", "grpo", "valid_unseen")]
    assert unseen[["mean", "paper_mean", "generations"]].tolist() == [50.0, 70.1, 3600.0]
    assert main.loc["alfworld", [name for name in main if "score" in name]].isna().all(axis=None)


def test_rows_that_were_not_run_have_the_splits_of_their_environment(both, tmp_path):
    closed = load_study(CI, {"webshop": SHOP, "agents": {"react": {"agent": "react"}}})
    paths = finish(both, tmp_path)
    costs = collect.read_metrics(both, paths)
    main = main_results_table(
        closed, collect.read_episodes(both, paths), costs, read_results(), prompted_runs(closed)
    )
    absent = main[main["note"] == NOT_RUN]
    assert list(zip(absent["env"], absent["split"], strict=True)) == [
        ("alfworld", "valid_seen"), ("alfworld", "valid_unseen"), ("webshop", "test"),
    ]  # fmt: skip
    assert absent[["mean", "score_mean"]].isna().all(axis=None)


def test_findings_name_the_environment_and_never_mix_two(both, tmp_path):
    paths = finish(both, tmp_path)
    write_tables(both, paths)
    said = describe_findings(both, table(paths, "main"), compare_methods(both, table(paths, "episodes")))
    assert len(said) == 6
    assert said[0].startswith(
        "ALFWorld, tiny-s: GRPO gains 50.0 points on the base (0.0 % → 50.0 %; no interval of the"
    )
    assert said[0].count("interval") == 1, "ALFWorld's score is its success"
    assert said[2].startswith(
        "ALFWorld, tiny-s: with 3,600 generations (GRPO: 3,600) 3SPO calibrated is 25.0 points below"
    )
    assert said[3].startswith("WebShop, tiny-s: GRPO gains 25.0 points on the base (0.0 % → 25.0 %")
    assert "its task score goes from 10.0 to 55.0 (no interval of the change, which needs" in said[3]
    assert said[5].startswith(
        "WebShop, tiny-s: with 300 generations (GRPO: 300) 3SPO calibrated is 50.0 points above GRPO"
    )
    assert "Its task score is 25.0 points above; no interval of the difference" in said[5]
    alone = study_with("alfworld")
    assert describe_findings(
        alone, table(paths, "main"), compare_methods(alone, table(paths, "episodes"))
    )[0].startswith("tiny-s: GRPO gains 50.0 points")


def test_limits_say_what_is_missing_and_only_that(both):
    one, shop = list_caveats(study_with("alfworld")), list_caveats(study_with("webshop"))
    assert "only ALFWorld and the methods above are run; its other rows and WebShop are not." in one[-1]
    assert "only WebShop and the methods above are run; its other rows and ALFWorld are not." in shop[-1]
    assert "only the methods above are run; its other rows are not." in list_caveats(both)[-1]
    assert not any("shop" in sentence for sentence in one[:-1])
    assert not any("household" in sentence or "alfworld=DIR" in sentence for sentence in shop)
    assert any("--config webshop=DIR" in sentence for sentence in shop)
    assert any("repaired one" in sentence for sentence in shop)
    original = load_study(CI, {"webshop": SHOP | {"fidelity": "original"}})
    assert not any("repaired one" in sentence for sentence in list_caveats(original))
    said = " ".join(list_caveats(both))
    assert "0.2 in ALFWorld; 0.1 in WebShop is subtracted" in said
    assert (
        "grpo: 0.0003, threespo-calibrated: 3e-05 in ALFWorld; grpo: 0.001, threespo-calibrated: 3e-05 in WebShop"
        in said
    )


def test_efficiency_and_wall_time_are_each_environments_own(both, tmp_path):
    paths = finish(both, tmp_path)
    write_tables(both, paths)
    rows = table(paths, "efficiency")
    assert rows[["env", "method", "generations"]].to_numpy().tolist() == [
        ["alfworld", "grpo", 3600.0], ["alfworld", "threespo-calibrated", 3600.0],
        ["webshop", "grpo", 300.0], ["webshop", "threespo-calibrated", 300.0],
    ]  # fmt: skip
    assert rows["paper_states"].isna().tolist() == [False, False, True, True]
    times = table(paths, "wall_time").set_index(["env", "method"])
    # In ALFWorld GRPO ends first, after 3 minutes; 3SPO is then half of the way from 0.2 (2 min) to 0.4 (4 min).
    assert times.loc[
        ("alfworld", "grpo"), ["minutes", "at_minutes", "success_at"]
    ].tolist() == pytest.approx([3, 3, 0.6])
    search = times.loc[("alfworld", "threespo-calibrated")]
    assert search[["minutes", "at_minutes", "success_at", "success_end"]].tolist() == pytest.approx(
        [6, 3, 0.3, 0.6]
    )
    assert search["generations_per_minute"] == pytest.approx(600)
    # In the shop 3SPO does, after 1.5: GRPO is between 0.2 (1 min) and 0.4 (2 min).
    assert times.loc[
        ("webshop", "threespo-calibrated"), ["at_minutes", "success_at"]
    ].tolist() == pytest.approx([1.5, 0.6])
    assert times.loc[("webshop", "grpo"), ["at_minutes", "success_at"]].tolist() == pytest.approx(
        [1.5, 0.3]
    )


def test_scores_of_recorded_states_by_type_and_third(both, tmp_path):
    paths = finish(both, tmp_path)
    write_tables(both, paths)
    scores = table(paths, "state_scores").set_index(["env", "task_type", "third", "low"])
    assert set(scores["method"]) == {"threespo-calibrated"}
    assert "middle" not in scores.index.get_level_values("third"), "the second epoch has no tree"
    assert scores.loc[("alfworld", "pick_and_place_simple", "early")]["share"].tolist() == [
        0,
        0,
        0,
        0,
        1,
    ]
    # Two seeds of four states each: the root's 0 and three times 0.9, or 0.1 in ALFWorld.
    late = scores.loc[("webshop", "beauty", "late")]
    assert (late["share"].tolist(), set(late["states"])) == ([0.25, 0, 0, 0, 0.75], {8})
    assert late["mean"].to_numpy() == pytest.approx(0.675)
    assert scores.loc[("alfworld", "pick_two_obj_and_place", "late")]["share"].tolist() == [
        1,
        0,
        0,
        0,
        0,
    ]


def test_a_case_is_told_for_each_environment_with_its_own_constants(both, tmp_path):
    paths = finish(both, tmp_path)
    write_tables(both, paths)
    cases = table(paths, "case_study").groupby("env", sort=False)["novelty_weight"].first()
    # N = 0.5: half of exp(-0.1 N) by default, of exp(-1 N) as the shop's entry has it.
    assert cases.to_dict() == pytest.approx(
        {"alfworld": 0.5 * np.exp(-0.05), "webshop": 0.5 * np.exp(-0.5)}
    )


@pytest.mark.parametrize(
    "environments",
    [
        pytest.param(("alfworld",), marks=pytest.mark.long),
        pytest.param(("webshop",), marks=pytest.mark.long),
        ("alfworld", "webshop"),
    ],
)
def test_report_and_figures_of_any_choice_of_environments(tmp_path, environments):
    study = study_with(*environments)
    paths = finish(study, tmp_path)
    write_tables(study, paths)
    names = {"alfworld": "ALFWorld", "webshop": "WebShop"}
    before = [f"{names[env]}, " if len(environments) > 1 else "" for env in environments]
    drawn = {name: draw(name, paths) for name in notebooks_of(study)}
    parts = {"alfworld": ["seen rooms", "unseen rooms"], "webshop": ["test goals", "test goals"]}
    expected = [
        f"{head}tiny-s, {part}"
        for head, env in zip(before, environments, strict=True)
        for part in parts[env]
    ]
    assert titles(drawn["main_results"][0]) == expected
    assert titles(drawn["training_curves"][0]) == [f"{head}tiny-s" for head in before]
    for figure in drawn["state_scores"][:3:2]:
        assert titles(figure) == [f"{head}tiny-s" for head in before]
    gated = (
        pd.read_csv(paths.figures / "gated_states.csv").groupby("quantity")["mean"].agg(["min", "max"])
    )
    # 3 of 30 known states, and 4 of 16 roots, in every epoch.
    assert gated.loc["gated states"].tolist() == pytest.approx([0.1, 0.1])
    assert gated.loc["gated roots"].tolist() == pytest.approx([0.25, 0.25])
    kinds = [
        [text.get_text() for text in axis.get_xticklabels()] for axis in drawn["state_scores"][1].axes
    ]
    assert kinds == [
        {"alfworld": ["easy", "medium", "hard"], "webshop": ["beauty", "grocery"]}[env]
        for env in environments
    ]
    # The trees of these runs are expanded at depth 2 at most. A title may wrap, but not between "depth" and its number.
    for name, depth in (("case_study", ", depth\u00a02"), ("score_reliability", "")):
        expected = [f"{head}3SPO calibrated{depth}" for head in before]
        assert [title for title in titles(drawn[name][0]) if title] == expected
    # The episode has two steps of each searching method, and text that LaTeX and Markdown have to escape.
    told = {kind: paths.figure("reasoning", kind).read_text(encoding="utf-8") for kind in ("md", "tex")}
    assert (
        told["tex"].count("\\textless{}think\\textgreater{}")
        == told["md"].count("\\<think>")
        == 2 * len(environments)
    )
    assert "with a repair" in paths.figure("lemmas", "tex").read_text(encoding="utf-8")
    written = {(path.stem, path.suffix[1:]) for path in paths.figures.iterdir()}
    assert written == {file for name in notebooks_of(study) for file in figure_files_of(name)}
    write_report(study, paths)
    assert "<script>alert(1)" not in paths.report.read_text()
    assert "&lt;script&gt;alert(1)" in paths.report.read_text()
    shown = re.sub(
        r"data:[^\"]+|srcdoc=\"[^\"]+|(?s:<script>.*?</script>)", "", paths.report.read_text()
    )
    assert not re.search(r"\bnan\b", shown, re.IGNORECASE)
    assert ("<th>benchmark</th>" in shown) == (len(environments) > 1)
    assert (">test goals: task score<" in shown, ">55.0 ± 10.6 <" in shown) == (
        "webshop" in environments,
    ) * 2
    assert (">340,000<" in shown, ">grocery<" in shown) == (
        "alfworld" in environments,
        "webshop" in environments,
    )
    said = {("alfworld",): "300 gen", ("webshop",): "200 gen"}.get(
        environments, "300 (ALFWorld) and 200 (WebShop) gen"
    )
    assert f"{said}erations a run" in shown


def test_where_no_tree_was_recorded_the_items_say_so_and_the_report_is_there(tmp_path):
    study = study_with("alfworld")
    paths = finish(study, tmp_path)
    for run in trained_runs(study):
        write_table(paths.run(run).trees, [], COLUMNS)
    write_tables(study, paths)
    for name in notebooks_of(study):
        draw(name, paths)
    write_report(study, paths)
    for name in ("case_study", "scores_by_type"):
        assert "No search tree of this study was recorded" in paths.figure(name, "svg").read_text(
            encoding="utf-8"
        )
    assert 'href="#trees' not in paths.report.read_text(encoding="utf-8")
    # Of the same notebook, and of runs whose trees need not be recorded.
    assert "No search tree" not in paths.figure("mean_scores", "svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "column"), [("main", "evaluation_std"), ("time_to", "reached"), ("runs", "record")]
)
def test_a_table_of_another_version_is_told_and_the_report_stays(tmp_path, name, column):
    study = study_with("alfworld")
    paths = finish(study, tmp_path)
    write_tables(study, paths)
    for notebook in notebooks_of(study):
        draw(notebook, paths)
    write_report(study, paths)
    before = paths.report.read_bytes()
    write_table(paths.table(name), table(paths, name).drop(columns=column))
    with pytest.raises(
        InputError, match=f"{paths.tables}: a table lacks .*{column}.*the workflow makes again"
    ):
        write_report(study, paths)
    assert paths.report.read_bytes() == before


def test_the_index_lists_studies_with_a_report_and_has_their_rows(tmp_path):
    for name, environments in (
        ("one", ("alfworld",)),
        ("two", ("alfworld", "webshop")),
        ("unfinished", ("alfworld",)),
    ):
        study = study_with(*environments).model_copy(update={"description": f"</script> of {name}"})
        paths = finish(study, tmp_path / name)
        write_tables(study, paths)
        paths.study.write_text(dump_study(study))
        if name != "unfinished":
            paths.report.write_text("a report")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "report.html").write_text("without anything beside it")
    html = write_index(tmp_path).read_text()
    rows = json.loads(re.search(r"const STUDIES = (.*);", html)[1])
    assert list(rows) == ["one", "two"]
    grpo = rows["two"]["WebShop, test goals, tiny-s: GRPO"]
    assert grpo == {
        "place": "main-webshop-tiny-s-grpo",
        "mean": 25.0,
        "low": None,
        "high": None,
        "seeds": 2,
    }
    assert set(rows["two"]) > set(rows["one"])
    assert html.count("</script>") == 2, "a study's words cannot end a script"
    assert 'href="one/report.html"' in html
    assert re.search(r"Not listed, since .*: broken\.", html)


def test_the_index_says_frozen_only_while_the_mark_holds(tmp_path, monkeypatch):
    mark = {"rule": 2, "commit": "0" * 40, "configuration": "0" * 16, "code": "0" * 16}
    judged = {
        "alfworld": {"games": {"confirmation": 6}},
        "evaluation": {"splits": ["confirmation"]},
        "seeds": [0, 1, 2],
    }
    study = load_study(CI, judged).model_copy(update={"confirmatory": Freeze(**mark)})
    paths = finish(study, tmp_path / "one")
    write_tables(study, paths)
    paths.study.write_text(dump_study(study))
    paths.report.write_text("a report")
    assert (
        "frozen, but its configuration and its code has changed since"
        in write_index(tmp_path).read_text()
    )
    monkeypatch.setattr(index, "changed_since_mark", lambda *_: [])
    assert "<small>frozen before it ran</small>" in write_index(tmp_path).read_text()
    paths.table("main").unlink()
    with pytest.raises(InputError, match=r"reports of another version only \(one\)"):
        write_index(tmp_path)


def test_no_report_no_index(tmp_path):
    with pytest.raises(InputError, match="no study with a report"):
        write_index(tmp_path)
    assert not (tmp_path / "index.html").exists()
