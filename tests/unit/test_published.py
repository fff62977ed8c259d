"""What is published of studies, and what reports show of the published miniature study."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from threespo.errors import InputError
from threespo.results.analysis import published
from threespo.results.analysis.comparisons import compare_methods
from threespo.results.analysis.holm import adjust_by_holm
from threespo.results.analysis.published import COLUMNS, compare_with_published, read_published
from threespo.results.analysis.statistics import (
    Interval,
    difference_interval,
    seeds_needed,
    task_error,
)
from threespo.results.analysis.summaries import summarize
from threespo.results.collect import RUN_COLUMNS
from threespo.study.load import load_study
from threespo.study.matrix import evaluated_runs
from workflow.publish import all_comparisons, by_cluster, differences, per_run, states_met

ROOT = Path(__file__).resolve().parents[2]
SMOKE = load_study(ROOT / "config" / "studies" / "smoke.yaml")
# Training seeds draw their pools: equal ones of two methods are pairs.
PAIRED = load_study(ROOT / "config" / "studies" / "smoke.yaml", {"training": {"pool_by_seed": True}})
MINI = load_study(ROOT / "config" / "studies" / "mini.yaml")


def row(method, mean, *, env="alfworld", split="valid_unseen", model="qwen2.5-1.5b-instruct", **more):
    given = {
        "env": env,
        "split": split,
        "stands_for": model,
        "method": method,
        "mean": mean,
        "seeds": 3,
        "commit": "abc",
    }
    return {**dict.fromkeys(COLUMNS), **given, **more}


def test_rows_stand_beside_those_of_the_same_method_split_and_model():
    theirs = pd.DataFrame(
        [
            row("grpo", 40.0, low=30.0, high=50.0, paper_mean=70.1),
            row("grpo", 90.0, split="valid_seen"),
            row("grpo", 60.0, model="qwen2.5-7b-instruct"),
            row("hgpo", 45.0),
            row("grpo", 75.0, env="webshop", split="test"),
        ]
    )
    alike = row("grpo", 56.0, split="valid_seen"), row("grpo", 77.0, env="webshop", split="test")
    ours = pd.DataFrame([row("grpo", 55.0), *alike])
    found = compare_with_published(SMOKE, ours, theirs)
    assert found["places"] == [
        {"env": "alfworld", "split": "valid_unseen"},
        {"env": "webshop", "split": "test"},
    ]
    shown = {
        (one["stands_for"][8:10], one["method"]): [
            cell and (cell["mean"], cell["here"]) for cell in one["cells"]
        ]
        for one in found["rows"]
    }
    assert shown == {
        ("1.", "grpo"): [(40.0, 55.0), (75.0, 77.0)],
        ("7b", "grpo"): [(60.0, None), None],
        ("1.", "hgpo"): [(45.0, None), None],
    }
    assert (found["seeds"], found["commits"]) == (3, "abc")


def test_nothing_is_shown_beside_the_published_study_itself_or_where_nothing_is_published():
    rows = pd.DataFrame([row("grpo", 40.0)])
    assert compare_with_published(MINI, rows, rows) is None
    assert compare_with_published(SMOKE, rows, rows.iloc[:0]) is None


def test_the_file_in_the_repository_has_the_rows_of_the_study():
    """Every row of its main table, and no other, with the number of the paper's table."""
    rows = read_published()
    key = ["env", "policy", "method", "split"]
    assert not rows.duplicated(key).any()
    expected = {
        (run.env, run.policy, run.method, split)
        for run in evaluated_runs(MINI)
        for split in MINI.at(run.env).evaluation.splits
    }
    assert set(rows[key].itertuples(index=False, name=None)) == expected
    trained = rows[rows["method"].isin(MINI.methods)]
    assert (trained["seeds"] == len(MINI.seeds)).all()
    assert rows["mean"].between(0, 100).all()
    literal = rows.set_index(key)["paper_mean"]
    assert literal["alfworld", "tiny-s", "threespo-literal", "valid_unseen"] == 93.18
    assert literal["webshop", "tiny-s", "threespo-literal", "test"] == 79.46


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("env,split\n", "has no column 'policy'"),
        (",".join(COLUMNS) + "\n" + ",".join("x" for _ in COLUMNS), "cannot be read"),
        (
            ",".join(COLUMNS) + "\n" + ",".join("1" if name != "policy" else "" for name in COLUMNS),
            "'policy' has an empty",
        ),
    ],
)
def test_a_damaged_file_is_named(tmp_path, monkeypatch, text, says):
    monkeypatch.setattr(published, "PUBLISHED_MINI", tmp_path / "mini.csv")
    (tmp_path / "mini.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        read_published()


def episodes(rates, env="alfworld", split="valid_unseen", games=10):
    """Return episodes in which run ``seed`` of a method wins the first ``rates[method][seed]`` of ten games."""
    return pd.DataFrame(
        [
            {"env": env, "policy": "tiny-s", "method": method, "split": split, "training_seed": seed, "evaluation_seed": 123,
             "task_id": f"game-{game}", "success": game < won, "score": float(game < won)}
            for method, wins in rates.items()
            for (seed, won), game in product(enumerate(wins), range(games))
        ]
    )  # fmt: skip


def of(rates):
    """Return the episodes that differences are computed from."""
    seen = episodes({name: [9] * len(wins) for name, wins in rates.items()}, split="valid_seen")
    return pd.concat([episodes(rates), seen])


def test_differences_from_grpo_are_those_of_pairs_on_the_split_that_is_judged_last():
    rates = {
        "grpo": [5, 6, 7],
        "threespo-literal": [1, 2, 1],
        "threespo-improved": [7, 4, 6],
        "base": [1],
    }
    found = differences(PAIRED, compare_methods(PAIRED, of(rates))).set_index("first")
    assert [*found.index] == ["threespo-literal", "threespo-improved"]
    assert set(found["second"]) == {"grpo"}
    for name, row in found.iterrows():
        # A seed has the same pool in both arms.
        paired = stats.ttest_rel(rates[name], rates["grpo"])
        ends = paired.confidence_interval(0.95)
        assert row["points"] == pytest.approx(10 * (np.mean(rates[name]) - np.mean(rates["grpo"])))
        # Wider, since runs of the better row may have failed unseen: of three a share of 63 % would be missed.
        assert row["low"] <= 10 * ends.low + 1e-9
        assert row["high"] >= 10 * ends.high - 1e-9
        assert row["p"] >= paired.pvalue - 1e-9
        arms = [[10.0 * won for won in rates[method]] for method in (name, "grpo")]
        won = {
            method: np.mean([np.arange(10) < each for each in rates[method]], axis=0) for method in rates
        }
        error = task_error(100 * (won[name] - won["grpo"]), range(10))
        guarded = difference_interval(*arms, floor=0.0, least_error=error, units=range(3))
        assert (row["low"], row["high"], row["p"]) == pytest.approx(
            (guarded.low, guarded.high, guarded.p)
        )
        needed = seeds_needed(*arms, floor=0.0, units=range(3))
        assert row["seeds_alone"] == (
            needed if row["side"] == "undecided" else pytest.approx(math.nan, nan_ok=True)
        )
    smaller, larger = sorted(found["p"])
    assert sorted(found["p_holm"]) == pytest.approx([min(1.0, 2 * smaller), max(2 * smaller, larger)])


def test_without_a_reference_there_are_no_differences():
    assert differences(SMOKE, compare_methods(SMOKE, of({"threespo-literal": [1, 2, 3]}))).empty


def in_layouts(rates, floors=4, games=5):
    """Return episodes of several layouts: run ``seed`` wins the first ``rates[method][seed][floor]`` of five games each."""
    return pd.DataFrame(
        [
            {"env": "alfworld", "policy": "tiny-s", "method": method, "split": "valid_unseen", "training_seed": seed,
             "evaluation_seed": 123, "task_id": f"pick-Mug-None-Shelf-{floor}/trial_{game}",
             "success": game < won[floor], "score": float(game < won[floor])}
            for method, wins in rates.items()
            for seed, won in enumerate(wins)
            for floor in range(floors)
            for game in range(games)
        ]
    )  # fmt: skip


def test_intervals_of_and_beside_the_base_come_out_of_what_is_published():
    """By hand, from ``clusters`` and the means of seeds in ``runs``: CR1 over layouts, and the spread between seeds."""
    rates = {
        "base": [(0, 1, 3, 1)],
        "grpo": [(2, 3, 5, 1), (3, 2, 4, 2), (1, 4, 4, 4)],
        "threespo-literal": [(0, 0, 1, 0), (1, 0, 2, 0), (0, 1, 1, 1)],
    }
    played = in_layouts(rates)
    compared = compare_methods(SMOKE, played)
    clusters = by_cluster(SMOKE, played)
    assert clusters["tasks"].to_list() == [5] * 4
    assert clusters["base"].to_list() == [0.0, 20.0, 60.0, 20.0]
    assert clusters["grpo"].to_list() == pytest.approx([40.0, 60.0, 260 / 3, 140 / 3])

    def variance(values):
        sums = 5 * (values - values.mean())
        return float((sums**2).sum()) / 20**2 * 4 / 3

    won = played[played["method"] == "base"]["success"].to_numpy(dtype=float)
    base = summarize(won.reshape(1, 1, -1), [floor for floor in range(4) for _ in range(5)])
    half = stats.t.ppf(0.975, 3) * math.sqrt(variance(clusters["base"]))
    assert (base.low, base.high) == pytest.approx((max(0, 25 - half), 25 + half))

    table = all_comparisons(compared)
    assert set(table["family"]) == {"base", "reference"}
    for method in ("grpo", "threespo-literal"):
        (row,) = table[(table["method"] == method) & (table["other"] == "base")].to_dict("records")
        seeds = [100 * sum(won) / 20 for won in rates[method]]
        between = np.var(seeds, ddof=1) / 3
        error = math.sqrt(between + variance(clusters[method] - clusters["base"]))
        half = stats.t.ppf(0.975, 2) * error
        points = np.mean(seeds) - 25
        assert row["estimate"] == pytest.approx(points)
        # Below, a share of the trained runs may have failed unseen; the base, which is no run, cannot.
        shares = np.arange(0, 1, 0.005)
        chances = (1 - shares) ** 3
        lost = shares * max(np.mean(seeds), np.median(seeds))
        quantiles = stats.t.ppf(1 - 0.025 / chances, 2)
        low = np.min((points - lost - quantiles * error)[chances > 0.05])
        assert (row["low"], row["high"]) == pytest.approx((low, points + half), rel=1e-3)
        remaining = abs(points) - (lost if points > 0 else 0.0)
        p = chances * np.minimum(1, 2 * stats.t.sf(remaining / error, 2))
        assert row["p"] == pytest.approx(np.max(p), rel=1e-3)


def test_states_are_published_by_epoch_where_they_were_counted():
    key = {"policy": "tiny-s", "method": "grpo", "training_seed": 0}
    metrics = pd.DataFrame(
        [
            {
                **key,
                "env": env,
                "epoch": epoch,
                "generations": 100 * epoch,
                "detail_state_met": 7.0 * epoch,
                "loss": 0.1,
            }
            for env in ("alfworld", "webshop")
            for epoch in (1, 2)
        ]
    )
    found = states_met(metrics)
    assert [*found] == [*RUN_COLUMNS, "epoch", "generations", "states_met"]
    assert found[["env", "generations", "states_met"]].to_numpy().tolist() == [
        ["alfworld", 100, 7.0],
        ["alfworld", 200, 14.0],
    ]


def test_a_run_is_published_with_what_it_cost():
    key = {"env": "alfworld", "policy": "tiny-s", "method": "grpo"}
    costs = {"generations": 2500.0, "optimizer_steps": 9.0, "learning_rate": 3e-4, "commit": "abc"}
    runs = pd.DataFrame([{**key, "training_seed": seed, **costs} for seed in (0, 1)])
    metrics = pd.DataFrame(
        [{**key, "training_seed": seed, "epoch": epoch} for seed in (0, 1) for epoch in (1, 2, 3)]
    )
    digests = pd.DataFrame(
        [{**key, "training_seed": seed, "evaluation_sha256": f"{seed}"} for seed in (0, 1)]
    )
    found = per_run(runs, metrics, episodes({"grpo": [5, 6], "base": [1]}), digests)
    assert found["epochs"].to_list()[1:] == [3, 3]
    assert found["success_percent"].to_list() == [10.0, 50.0, 60.0]
    assert found["episodes"].to_list() == [10, 10, 10]
    assert found["generations"].isna().to_list() == [True, False, False]
    assert found["evaluation_sha256"].to_list()[1:] == ["0", "1"]
    # No search, no counts.
    assert found["unvisited_percent"].isna().all()


def test_states_without_a_count_are_weighted_by_the_epochs_states():
    key = {"env": "alfworld", "policy": "tiny-s", "method": "threespo-literal", "training_seed": 0}
    runs = pd.DataFrame(
        [{**key, "generations": 9, "optimizer_steps": 1, "learning_rate": 1e-4, "commit": "abc"}]
    )
    names = ("epoch", "detail_unvisited_share", "detail_expansions")
    metrics = pd.DataFrame(
        [{**key, **dict(zip(names, values, strict=True))} for values in ((1, 1.0, 30.0), (2, 0.2, 10.0))]
    )
    found = per_run(runs, metrics, episodes({"threespo-literal": [1]}), runs[RUN_COLUMNS])
    # 30 and 2 of 40.
    assert found["unvisited_percent"].to_list() == [80.0]


BY_COMMAND = ("mini", "smoke", "shop", "early", "released-cap", "deviations", "credit")
PUBLISHED_HERE = [ROOT / "docs" / "results" / name for name in BY_COMMAND]


def _as_published(first, second):
    """Student's interval alone, by which these pages were made: without failed runs, and of no width without spread."""
    found = difference_interval(first, second)
    if np.isnan(found.p):
        return Interval(found.estimate, found.estimate, found.estimate, float(found.estimate == 0))
    return found


@pytest.mark.parametrize("folder", PUBLISHED_HERE, ids=lambda folder: folder.name)
def test_the_published_differences_are_those_of_the_published_runs(folder):
    runs, found = pd.read_csv(folder / "runs.csv"), pd.read_csv(folder / "differences.csv")
    assert len(found)
    of_row = runs.groupby(["env", "policy", "split", "method"])["success_percent"].apply(list)
    gaps = [
        _as_published(
            *(of_row[row["env"], row["policy"], row["split"], row[side]] for side in ("first", "second"))
        )
        for row in found.to_dict("records")
    ]
    assert found["points"].to_list() == pytest.approx([gap.estimate for gap in gaps], abs=1e-3)
    assert found["low"].to_list() == pytest.approx([gap.low for gap in gaps], abs=1e-3)
    assert found["high"].to_list() == pytest.approx([gap.high for gap in gaps], abs=1e-3)
    adjusted = adjust_by_holm([gap.p for gap in gaps])
    assert found["p_holm"].to_list() == pytest.approx(adjusted, rel=1e-2)
    for p, gap, side in zip(adjusted, gaps, found["side"], strict=True):
        assert side == ("undecided" if p >= 0.05 else "above" if gap.estimate > 0 else "below")


@pytest.mark.parametrize("folder", PUBLISHED_HERE, ids=lambda folder: folder.name)
def test_the_page_beside_them_says_their_numbers(folder):
    """Each cell of its table: a method's mean, and minus GRPO's with the interval, in bold where that is decided."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    runs, found = pd.read_csv(folder / "runs.csv"), pd.read_csv(folder / "differences.csv")
    runs = runs[runs["split"].isin(["valid_unseen", "test", "confirmation", "development"])]
    means = runs.groupby(["env", "policy", "method"])["success_percent"].mean()
    gaps = found.set_index(["env", "policy", "first"])
    table = text[text.index("| | row |") :].partition("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    places = [cell.strip("`").split("/") for cell in header[2:]]
    said = set()
    for _, name, *cells in rows:
        for (env, policy), cell in zip(places, cells, strict=True):
            key = (env, policy, name.strip("`"))
            assert bool(cell) == (key in means.index), key
            if not cell:
                continue
            said.add(key)
            expected = f"{means[key]:.1f}"
            if key in gaps.index:
                gap = gaps.loc[key]
                side = "" if gap["side"] == "undecided" else f"; **{gap['side']}**"
                points, low, high = (round(float(gap[end])) for end in ("points", "low", "high"))
                expected += f" ({points}, {low} to {high}{side})"
            assert cell.replace("−", "-") == expected, key
    assert said >= set(gaps.index)
