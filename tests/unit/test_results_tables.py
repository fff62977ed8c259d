"""Tables from runs, the paper's numbers beside them, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.jobs import record, write_tables
from threespo.cli import main
from threespo.errors import InputError
from threespo.methods.tree_table import COLUMNS
from threespo.paths import Paths
from threespo.results import collect
from threespo.results.analysis.caveats import list_caveats
from threespo.results.analysis.comparisons import compare_methods
from threespo.results.analysis.curves import (
    UNITS,
    learning_table,
    learning_time_table,
    time_to_rows,
    time_to_table,
    training_curves,
    wall_time_table,
)
from threespo.results.analysis.findings import describe_findings
from threespo.results.dvc_files import learning_curves, success_by_method
from threespo.results.paper_numbers import NO_VALUE, read_results
from threespo.results.report import sections
from threespo.results.tables import main_results_table
from threespo.runs.settings import EXAMPLE_COLUMNS
from threespo.study.catalogue import TABLES
from threespo.study.load import dump_study, load_study
from threespo.study.matrix import learning_runs, probed_runs, reference_runs, trained_runs
from threespo.tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[2]
SPLITS = ("valid_seen", "valid_unseen")


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def study():
    return load_study(ROOT / "config" / "studies" / "ci.yaml")


def played(wins, first):
    """Four games of each snapshot, of which so many are won, after 100 generations, one epoch and two steps each."""
    return [
        {
            **{
                "snapshot": number,
                "epoch": number,
                "generations": 100 * number,
                "optimizer_steps": 2 * number,
            },
            **{
                "split": "valid_unseen",
                "evaluation_seed": 123,
                "task_id": str(game),
                "task_type": "put",
            },
            **{"success": game < won, "steps": 5},
        }
        for number, won in enumerate(wins, first)
        for game in range(4)
    ]


@pytest.fixture
def paths(tmp_path, study):
    """Return a finished study: GRPO wins 2 + seed of 4 games, 3SPO 1, the base none, the strong clone all."""
    made = Paths(tmp_path)
    for run in (*trained_runs(study), *reference_runs(study)):
        wins = {"base": 0, "strong": 4, "grpo": 2 + run.seed}.get(run.method, 1)
        of_run = {"env": run.env, "policy": run.policy, "method": run.method, "training_seed": run.seed}
        rest = {
            "temperature": 0.4,
            "task_type": "put",
            "steps": 5,
            "invalid_format": 0,
            "inadmissible": 0,
        }
        episodes = [
            {
                **of_run,
                **rest,
                "split": split,
                "evaluation_seed": seed,
                "task_id": f"{split}-{game}",
                "success": game < wins,
                "score": float(game < wins),
                "trials": 1,
                "first_success": game < wins,
            }
            for split in SPLITS
            for seed in study.evaluation.seeds
            for game in range(4)
        ]
        timing = [{"split": "valid_seen", "evaluation_seed": 1, "episodes": 4, "seconds": 1.0}]
        write_table(made.run(run).evaluation, episodes)
        write_table(made.run(run).evaluation_timing, timing)
        write_table(
            made.run(run).evaluation_example,
            [{**dict.fromkeys(EXAMPLE_COLUMNS, "x"), "method": run.method}],
        )
    for run in trained_runs(study):
        scores = {"detail_state_score_visits": 0.5, "detail_state_high_visits": 0.5}
        detail = {
            "detail_state_met": 30.0,
            **scores,
            **({"detail_gated": 1.0} if run.method != "grpo" else {}),
        }
        metrics = [
            {
                "epoch": epoch,
                "tasks": 16,
                "generations": 100 * epoch + run.seed * 50,
                "env_steps": 90 * epoch,
                "completed_paths": 8 * epoch,
                "optimizer_steps": epoch,
                "train_success": 0.1 * epoch,
                "epoch_paths": 8,
                "epoch_successes": epoch,
                **detail,
            }
            for epoch in (1, 2, 3)
        ]
        write_table(made.run(run).metrics, metrics)
        counts = {"successes": 1, "completed_paths": 2, "n_1": 3.0}
        types = [{"epoch": 1, "task_type": "put", "state_score_unique": 0.5, **counts}]
        write_table(made.run(run).task_types, types)
        write_table(made.run(run).trees, [], COLUMNS)
        timing = [{"epoch": epoch, "seconds": 2.0, "peak_memory_mb": 5.0} for epoch in (1, 2, 3)]
        write_table(made.run(run).timing, timing)
    for run in learning_runs(study):
        wins = [1] if run.method == "base" else [2, 3, 4] if run.method == "grpo" else [1, 1, 3]
        write_table(made.run(run).learning, played(wins, first=run.method != "base"))
    for run in probed_runs(study):
        state = {"visits": 2.0, "counted_successes": 1.0, "gated": False, "depth": 2}
        write_table(made.run(run).probe, [{"snapshot": 1, "successes": 3, "continuations": 4, **state}])
    return made


def table(paths, name):
    return pd.read_parquet(paths.table(name))


def test_every_table_is_written_and_equal_when_written_again(study, paths):
    write_tables(study, paths)
    written = {path.name for path in paths.tables.iterdir()}
    assert written == {*(f"{name}.parquet" for name in TABLES), "metrics.json", "learning_curves.csv"}
    names = TABLES
    before = {name: (paths.table(name)).read_bytes() for name in names}
    write_tables(study, paths)
    assert all(
        (paths.table(name)).read_bytes() == before[name] for name in names if name != "provenance"
    )


def test_too_few_seeds_are_said_in_one_line(study, paths, capsys):
    write_tables(study, paths)
    said = capsys.readouterr().err.splitlines()
    assert [
        line
        for line in said
        if line.startswith("tables: 2 training seeds: intervals and verdicts need at least 3")
    ]


def test_dvc_gets_success_by_method_and_a_curve_for_each(study, paths):
    write_tables(study, paths)
    found = json.loads(paths.dvc_metrics.read_text())
    # Two seeds won two and three of four games.
    assert found["success"]["alfworld"]["tiny-s"]["valid_seen"] == {
        "base": 0.0,
        "grpo": 62.5,
        "threespo-calibrated": 25.0,
        "strong": 100.0,
    }
    assert found["seeds"] == {
        "alfworld": {"tiny-s": {"base": 1, "grpo": 2, "threespo-calibrated": 2, "strong": 1}}
    }
    curves = pd.read_csv(paths.dvc_curves)
    grpo = curves[curves["curve"] == "alfworld tiny-s grpo"]
    assert set(curves["curve"]) == {"alfworld tiny-s grpo", "alfworld tiny-s threespo-calibrated"}
    # From where both seeds have an epoch (the second's first) to where the first one ends.
    assert (grpo["generations"].iloc[0], grpo["generations"].iloc[-1]) == (150, 300)
    assert grpo["success"].iloc[-1] == pytest.approx((30 + 25) / 2)


def test_a_study_without_training_has_no_curves_and_rows_that_were_not_run_no_success():
    rows = [{"env": "e", "policy": "p", "method": "m", "split": "s", "seeds": 0, "mean": np.nan}]
    assert success_by_method(pd.DataFrame(rows)) == {"success": {}, "seeds": {}}
    assert list(learning_curves(pd.DataFrame()).columns) == ["curve", "generations", "success"]


def test_the_verdicts_are_printed_and_a_study_without_tables_is_named(study, paths, capsys):
    paths.study.write_text(dump_study(study))
    assert main(["claims", str(paths.study)]) == 2
    assert "claims.parquet" in capsys.readouterr().err
    write_tables(study, paths)
    record("tables", study, "", paths)
    capsys.readouterr()
    assert main(["claims", str(paths.study)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith("Of the paper's 103 claims")
    # GRPO wins two or three of four games, 3SPO one.
    assert (
        "22-6: 3SPO is above GRPO in ALFWorld; ALFWorld, seen rooms, tiny-s, 3SPO calibrated; -37.5"
        in said
    )
    assert "fails       case-tenth-visit" in said
    # A table that somebody has edited says nothing.
    table = read_table(paths.table("claims"))
    write_table(paths.table("claims"), table.assign(verdict="holds"))
    assert main(["claims", str(paths.study)]) == 2
    assert "claims.parquet: is damaged or was edited" in capsys.readouterr().err


def test_the_trials_of_a_rate_are_shown_with_their_mean():
    same = {"env": "alfworld", "policy": "tiny-s", "method": "grpo"}
    tried = [(1e-4, 1, 40.0), (1e-4, 2, 20.0), (1e-3, 1, 35.0), (1e-3, 2, 45.0)]
    trials = pd.DataFrame(
        [
            {
                **same,
                "learning_rate": rate,
                "training_seed": seed,
                "success": won,
                "chosen": rate == 1e-3,
            }
            for rate, seed, won in tried
        ]
    )
    rates = [
        {"learning_rate": 1e-4, "success": 30.0, "runs": [40.0, 20.0], "chosen": False},
        {"learning_rate": 1e-3, "success": 40.0, "runs": [35.0, 45.0], "chosen": True},
    ]
    assert sections.tried_rates(trials) == [{**same, "rates": rates}]


def test_states_and_generations_stand_beside_the_papers(study, paths):
    write_tables(study, paths)
    rows = table(paths, "efficiency").set_index("method")
    grpo = rows.loc["grpo"]
    assert (grpo["generations"], grpo["states"], grpo["ratio"]) == (325.0, 30.0, 30 / 325)
    assert (grpo["paper_rollouts"], grpo["paper_states"]) == (340_000, 4_020)
    assert rows.loc["threespo-calibrated", "paper_states"] == 9_720


def test_the_main_table_has_ours_and_the_papers_values(study, paths):
    write_tables(study, paths)
    main = table(paths, "main").set_index(["method", "split"])
    assert list(dict.fromkeys(main.index.get_level_values("method"))) == [
        "base",
        "grpo",
        "threespo-calibrated",
        "strong",
    ]
    grpo = main.loc[("grpo", "valid_unseen")]
    assert (grpo["mean"], grpo["seeds"], grpo["episodes"]) == (62.5, 2, 2 * 2 * 4)
    assert grpo["std"] == pytest.approx(17.67767)
    assert grpo["evaluation_std"] == 0.0
    assert (grpo["paper_mean"], grpo["paper_std"], grpo["generations"]) == (70.1, 2.5, 325.0)
    assert main.loc[("threespo-calibrated", "valid_seen"), "paper_mean"] == pytest.approx(95.42)
    # The paper prints the prompted base for seen rooms only, and has nothing like our strong clone.
    assert main.loc[("base", "valid_seen"), "paper_mean"] == 4.1
    assert np.isnan(main.loc[("base", "valid_unseen"), "paper_mean"])
    assert np.isnan(main.loc[("strong", "valid_seen"), "paper_mean"])
    assert (
        main.loc[("base", "valid_seen"), "generations"],
        main.loc[("base", "valid_seen"), "seeds"],
    ) == (0.0, 1)


def test_curves_are_the_mean_of_straight_lines_where_all_seeds_have_values(study, paths):
    curves = training_curves(collect.read_metrics(study, paths))
    grpo = curves[curves["method"] == "grpo"]
    # Seed 0 has points (100, .1) (200, .2) (300, .3); seed 1 the same 50 generations later.
    assert (grpo["generations"].iloc[0], grpo["generations"].iloc[-1]) == (150.0, 300.0)
    assert np.allclose(grpo["highest"], grpo["generations"] / 1000)
    assert np.allclose(grpo["lowest"], (grpo["generations"] - 50) / 1000)
    assert np.allclose(grpo["mean"], (grpo["highest"] + grpo["lowest"]) / 2)


def test_equal_wall_time_is_when_the_first_method_has_spent_its_budget():
    """Minutes at which epochs end, by method and seed: fast 1, 2 and 3, 4; slow 2, 4 and 6; idle 1, 2 without a path."""
    ends = {
        ("fast", 0): [1, 2],
        ("fast", 1): [3, 4],
        ("slow", 0): [2, 4],
        ("slow", 1): [6],
        ("idle", 0): [2, 8],
    }
    rows = [
        {
            **{
                "env": "alfworld",
                "policy": "tiny-s",
                "method": method,
                "training_seed": seed,
                "epoch": epoch,
            },
            **{"generations": 100 * epoch, "seconds": 60.0 * (end - before), "stage": "train"},
            "train_success": np.nan if method == "idle" else epoch / 10 + seed / 2,
        }
        for (method, seed), times in ends.items()
        for epoch, (before, end) in enumerate(zip([0, *times], times, strict=False), 1)
    ]
    frame = pd.DataFrame(rows)
    found = wall_time_table(
        frame.drop(columns=["seconds", "stage"]), frame.sample(frac=1.0, random_state=0)
    ).set_index("method")
    assert list(found.index) == ["fast", "slow", "idle"]
    assert found["minutes"].tolist() == [3.0, 5.0, 8.0]
    assert found["at_minutes"].tolist() == [3.0] * 3
    # fast: seed 0 has ended with 0.2, seed 1 is at 0.6 after its first epoch.
    assert found.loc["fast", ["success_at", "success_end"]].tolist() == pytest.approx([0.4, 0.45])
    # slow: seed 1 has not ended an epoch by then.
    assert np.isnan(found.loc["slow", "success_at"])
    assert found.loc["slow", ["seeds", "generations", "generations_per_minute"]].tolist() == [
        2,
        150.0,
        30.0,
    ]
    assert found.loc["idle", ["success_at", "success_end"]].isna().all()


def test_learning_curves_begin_with_the_base_and_are_read_against_everything(study, paths):
    timing = collect.read_timing(study, paths)
    points = learning_table(study, collect.read_snapshots(study, paths))
    grpo = points[(points["method"] == "grpo") & (points["training_seed"] == 1)]
    assert grpo["success"].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert grpo[["snapshot", "generations", "epochs", "optimizer_steps"]].to_numpy().tolist() == [
        [0, 0, 0, 0], [1, 100, 1, 2], [2, 200, 2, 4], [3, 300, 3, 6]
    ]  # fmt: skip
    assert grpo["share"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    names = points.groupby("method")[["paper_row", "preset"]].first()
    assert names.to_numpy().tolist() == [["grpo", ""], ["3spo", "calibrated"]]
    assert points.groupby(["method", "training_seed"]).size().tolist() == [4] * 4
    seconds = learning_time_table(points, timing)
    # Two seconds an epoch.
    assert seconds["seconds"].tolist() == [0.0, 2.0, 4.0, 6.0] * 4

    soon = time_to_table(points, seconds).set_index(["method", "goal", "unit"])
    assert set(soon.index.get_level_values("goal")) == {"60 %", "80 %", "GRPO's end"}
    # GRPO has 0.6 at 0.4 of the way from its first to its second snapshot, 3SPO at 0.7 from its second to its third.
    assert soon.loc[("grpo", "60 %"), "mean"].to_dict() == pytest.approx(
        dict(zip(UNITS, (140, 1.4, 2.8, 2.8), strict=True))
    )
    search = soon.loc[("threespo-calibrated", "60 %")]
    assert search["mean"].to_dict() == pytest.approx(dict(zip(UNITS, (270, 2.7, 5.4, 5.4), strict=True)))
    assert search["speedup"].tolist() == pytest.approx([14 / 27] * 4)
    assert search["low"].isna().all(), "two seeds have no interval"
    never = soon.loc[("threespo-calibrated", "80 %")]
    assert (set(never["reached"]), set(never["seeds"])) == ({0}, {2})
    assert never[["mean", "speedup"]].isna().all(axis=None)
    assert soon.loc[("grpo", "GRPO's end", "generations"), ["level", "mean"]].tolist() == pytest.approx(
        [1.0, 300.0]
    )
    assert soon.loc["grpo", "speedup"].isna().all(), "not compared with itself"
    rows = time_to_rows(soon.reset_index())
    assert [(row["method"], row["goal"], row["reached"]) for row in rows if row["method"] != "grpo"] == [
        ("threespo-calibrated", "60 %", "2 of 2"),
        ("threespo-calibrated", "80 %", "0 of 2"),
        ("threespo-calibrated", "GRPO's end", "0 of 2"),
    ]


def test_a_ratio_of_times_has_its_interval_and_needs_every_seed():
    """GRPO's seeds cross 60 % after 400, 800 and 1,600 generations, the other's after a quarter of that."""

    def curves(method, crossings, end=1.0):
        return [
            {
                **{
                    "env": "alfworld",
                    "policy": "tiny-s",
                    "method": method,
                    "training_seed": seed,
                    "snapshot": number,
                },
                **{"paper_row": "grpo" if method == "grpo" else "", "success": success, "seconds": at},
                **{"generations": at, "epochs": at, "optimizer_steps": at},
            }
            for seed, crossing in enumerate(crossings)
            for number, (at, success) in enumerate([(0.0, 0.2), (crossing, 0.6), (2 * crossing, end)])
        ]

    rows = (
        curves("grpo", [400, 800, 1600])
        + curves("quick", [100, 200, 400])
        + curves("slow", [100, 200, 400], end=0.7)
    )
    ceiling = {0: 0.5, 1: 0.7, 2: 0.7}
    rows += [
        {**row, "success": min(row["success"], ceiling[row["training_seed"]])}
        for row in curves("most", [100] * 3)
    ]
    rows += [{**row, "success": row["success"] + 0.5} for row in curves("begun", [100] * 3)]
    frame = pd.DataFrame(rows)
    clock = frame[["env", "policy", "method", "training_seed", "snapshot", "seconds"]]
    found = time_to_table(frame.drop(columns="seconds"), clock).set_index(["method", "goal", "unit"])
    quick = found.loc[("quick", "60 %", "generations")]
    assert (quick["reached"], quick["seeds"]) == (3, 3)
    assert quick["mean"] == pytest.approx(200.0)
    # Logarithms to base 2 differ by 2, with a spread of 1 in both arms: Welch's t with 4 degrees of freedom.
    half = 2.776445 * (2 / 3) ** 0.5
    assert quick[["speedup", "low", "high"]].tolist() == pytest.approx(
        [4, 2 ** (2 - half), 2 ** (2 + half)], rel=1e-5
    )
    assert found.loc[("slow", "80 %", "generations"), "reached"] == 0
    most = found.loc[("most", "60 %", "generations")]
    assert most["reached"] == 2
    assert most[["mean", "speedup", "low", "high"]].isna().all()
    assert found.loc[("begun", "60 %", "generations"), ["mean", "speedup"]].isna().all(), (
        "above the level untrained"
    )
    assert found.loc[("begun", "60 %", "generations"), "reached"] == 3


def test_curves_are_drawn_as_means_with_intervals_or_seed_by_seed():
    import matplotlib as mpl

    mpl.use("Agg")
    from threespo.results.paper.learning_figure import (
        draw_curves,
        select_paper_methods,
        select_uniform_rows,
    )

    rows = [
        {
            **{"env": "alfworld", "policy": "tiny-s", "method": method, "training_seed": seed},
            **{"paper_row": row, "preset": preset},
            **{"split": "valid_unseen", "snapshot": snapshot, "generations": 100.0 * snapshot + seed * (snapshot > 0)},
            "success": 0.25 if snapshot == 0 else (0.4, 0.5, 0.9)[seed],
        }
        for method, row, preset in (
            ("grpo", "grpo", ""), ("a", "3spo", "narrow"), ("b", "3spo", "literal"), ("u", "3spo_wo_adaptive_n", "narrow"),
            ("g", "3spo_wo_adaptive_n_gated", "narrow"), ("own", "", ""),
        )
        for seed in range(3)
        for snapshot in (range(3) if seed else (0, 1))
    ]  # fmt: skip
    points = pd.DataFrame(rows)
    assert set(select_paper_methods(points)["method"]) == {"grpo", "a", "b"}
    assert set(select_paper_methods(points[points["method"] == "own"])["method"]) == {"own"}
    assert set(select_uniform_rows(points)["method"]) == {"a", "u", "g"}
    figure, means = draw_curves(select_uniform_rows(points), ["generations"])
    # The second snapshot lacks a seed. The base is one policy: no interval over copies of it.
    assert means[means["method"] == "u"][["snapshot", "seeds", "at", "mean"]].to_numpy().tolist() == [
        [0, 3, 0.0, 0.25], [1, 3, 101.0, pytest.approx(0.6)]
    ]  # fmt: skip
    ends = means[means["method"] == "u"][["low", "high"]].to_numpy()
    assert np.isnan(ends[0]).all()
    # Student's t with 2 degrees of freedom, standard error sqrt(0.07 / 3).
    half = 4.302653 * (0.07 / 3) ** 0.5
    assert ends[1].tolist() == pytest.approx([0.6 - half, 0.6 + half], abs=1e-5)
    assert len(figure.axes[0].lines) == 3
    seeds, few = draw_curves(
        points[(points["method"] == "u") & (points["training_seed"] < 2)], ["generations"]
    )
    assert len(seeds.axes[0].lines) == 2
    assert few["low"].isna().all()


def test_methods_own_columns_are_empty_for_others(study, paths):
    metrics = collect.read_metrics(study, paths)
    assert {"detail_gated", "detail_state_met"} <= set(metrics.columns[-4:])
    assert metrics.groupby("method")["detail_gated"].count().to_dict() == {
        "grpo": 0,
        "threespo-calibrated": 6,
    }


def test_a_missing_run_is_named(study, paths):
    paths.run(trained_runs(study)[0]).evaluation.unlink()
    with pytest.raises(InputError, match=re.escape("grpo/seed-0/evaluation.parquet")):
        write_tables(study, paths)


def test_a_table_of_another_run_is_refused(study, paths):
    first, second = trained_runs(study)[:2]
    paths.run(first).evaluation.write_bytes(paths.run(second).evaluation.read_bytes())
    with pytest.raises(InputError, match="belongs to another run"):
        write_tables(study, paths)


def test_a_truncated_table_is_refused_and_earlier_tables_stay(study, paths):
    write_tables(study, paths)
    before = (paths.table("main")).read_bytes()
    path = paths.run(trained_runs(study)[0]).metrics
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=re.escape("metrics.parquet")):
        write_tables(study, paths)
    assert (paths.table("main")).read_bytes() == before


def test_incomplete_and_doubled_evaluations_are_refused(study, paths):
    path = paths.run(trained_runs(study)[0]).evaluation
    whole = pd.read_parquet(path)
    write_table(path, whole.iloc[1:])
    with pytest.raises(InputError, match="incomplete"):
        write_tables(study, paths)
    write_table(path, pd.concat([whole, whole.iloc[:1]]))
    with pytest.raises(InputError, match="twice"):
        write_tables(study, paths)


def test_findings_follow_the_numbers_either_way(study, paths):
    episodes = collect.read_episodes(study, paths)
    main = main_results_table(study, episodes, collect.read_metrics(study, paths), read_results())
    said = " ".join(describe_findings(study, main, compare_methods(study, episodes)))
    assert "GRPO gains 62.5 points on the base (0.0 % → 62.5 %" in said
    assert "3SPO calibrated is 37.5 points below GRPO" in said
    other = episodes.assign(
        success=np.where(
            episodes["method"] == "grpo", episodes["task_id"].str.endswith("-1"), episodes["success"]
        )
    )
    # A third training seed, without which there would be no interval.
    third = other[other["method"].isin(study.methods) & (other["training_seed"] == 0)].assign(
        training_seed=2
    )
    other = pd.concat([other, third], ignore_index=True)
    said = " ".join(
        describe_findings(
            study,
            main_results_table(study, other, collect.read_metrics(study, paths), read_results()),
            compare_methods(study, other),
        )
    )
    # Each wins one game of four, but not the same one.
    assert "is 0.0 points above GRPO" in said
    assert "which includes zero: undecided" in said
    assert any("un-learning" in sentence for sentence in list_caveats(study))


def test_the_papers_table_is_read_as_printed():
    paper = read_results()
    main = {(method, model) for method, model, _ in paper.cells if not method.startswith("3spo_")}
    assert len(main) == 20
    ablation = paper.value("3spo_wo_difference", "qwen2.5-1.5b-instruct", "alfworld", "valid_unseen")
    assert (ablation.mean, ablation.std) == (83.58, 2.5)
    assert paper.value("3spo_alpha_35", "qwen2.5-1.5b-instruct", "alfworld", "valid_seen").mean == 93.0
    ours = paper.value("3spo", "qwen2.5-7b-instruct", "alfworld", "valid_unseen")
    assert (ours.mean, ours.std) == (95.93, 0.67)
    assert paper.value("ppo", "qwen2.5-1.5b-instruct", "alfworld", "valid_unseen") == NO_VALUE
    assert paper.value("nothing", "qwen2.5-1.5b-instruct", "alfworld", "valid_seen") == NO_VALUE
    assert paper.value("grpo", "qwen2.5-1.5b-instruct", "alfworld", "calibration") == NO_VALUE
    shop = [
        paper.value("hgpo", "qwen2.5-7b-instruct", "webshop", "test", name)
        for name in ("score", "success")
    ]
    assert [(value.mean, value.std) for value in shop] == [(88.96, 1.04), (78.51, 1.4)]
    assert paper.value("hgpo", "qwen2.5-7b-instruct", "alfworld", "valid_seen", "score") == NO_VALUE


def test_the_digitised_curve_ends_where_the_papers_text_says():
    curve = pd.read_csv(ROOT / "config" / "paper" / "fig3a.csv").set_index("epoch")
    last = curve.loc[390:400].mean()
    for method, value in {"3spo": 0.969, "hgpo": 0.882, "gigpo": 0.849, "grpo": 0.694}.items():
        assert last[method] == pytest.approx(value, abs=0.015)


def test_a_broken_paper_file_is_named(tmp_path):
    (tmp_path / "results.yaml").write_text("rows: 5")
    with pytest.raises(InputError, match=r"results\.yaml"):
        read_results(tmp_path)


def test_a_variant_is_compared_with_the_preset_that_it_varies(study, paths):
    whole = study.methods["threespo-calibrated"]
    varied = whole.model_copy(update={"options": {"preset": "calibrated", "novelty": "none"}})
    more = study.model_copy(update={"methods": {**study.methods, "wo-novelty": varied}})
    episodes = collect.read_episodes(study, paths)
    calibrated = episodes[episodes["method"] == "threespo-calibrated"]
    both = pd.concat([episodes, calibrated.assign(method="wo-novelty", success=True)], ignore_index=True)
    said = describe_findings(
        more,
        main_results_table(more, both, collect.read_metrics(study, paths), read_results()),
        compare_methods(more, both),
    )
    assert [line for line in said if "w/o R_novel is" in line] == [
        line for line in said if "above 3SPO calibrated" in line
    ]
    assert sum("w/o R_novel is 75.0 points above 3SPO calibrated" in line for line in said) == 1
    assert not any("w/o R_novel is" in line and "GRPO" in line for line in said)
