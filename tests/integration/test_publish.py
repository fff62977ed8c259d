"""`python -m workflow.publish`: what goes from a finished study into docs/results."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import threespo.results.analysis.published
from threespo.results.analysis.published import read_published

AS_IF_OTHERS_SHOWED_IT = """
import sys
from pathlib import Path
import threespo.results.analysis.published
import workflow.publish
for module in (workflow.publish, threespo.results.analysis.published):
    module.PUBLISHED_MINI = Path("config/published/ci.csv")
sys.exit(workflow.publish.main())
"""
"""The command, where `ci` stands in the place of `mini`."""


def publish(checkout, *arguments, program=("-m", "workflow.publish")):
    return subprocess.run(
        [sys.executable, *program, "results/ci", *arguments],
        cwd=checkout.folder, env=checkout.environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def published(checkout):
    return {
        path.name: path.read_bytes() for path in (checkout.folder / "docs" / "results" / "ci").glob("*")
    }


@pytest.mark.slow
def test_every_run_is_published_with_its_own_episodes_and_the_reports_figures(finished_copy):
    ours = finished_copy.folder / "config" / "published" / "mini.csv"
    before = ours.read_bytes()
    done = publish(finished_copy)
    assert done.returncode == 0, done.stderr
    there = published(finished_copy)
    assert {"runs.csv", "differences.csv", "claims.csv", "learning.csv"} <= there.keys()
    assert {"comparisons.csv", "clusters.csv", "states.csv"} <= there.keys()
    assert {"main_table.csv", "main_results.svg"} <= there.keys()
    assert {"reasoning.csv", "lemmas.csv"} <= there.keys(), "texts are published as their data"
    assert "report.html" not in there
    assert sorted(line.rpartition("/")[2] for line in done.stdout.split()) == sorted(there)
    # Other studies' reports show `mini`, and no other.
    assert ours.read_bytes() == before

    runs = pd.read_csv(finished_copy.folder / "docs" / "results" / "ci" / "runs.csv").set_index(
        ["env", "policy", "method", "training_seed", "split"]
    )
    files = sorted(finished_copy.results().glob("runs/*/*/*/seed-*/evaluation.parquet"))
    assert files
    for file in files:
        env, policy, method, seed = file.parent.parts[-4:]
        for split, episodes in pd.read_parquet(file).groupby("split"):
            row = runs.loc[(env, policy, method, int(seed.removeprefix("seed-")), split)]
            assert row["success_percent"] == pytest.approx(100 * episodes["success"].mean(), rel=1e-5)
            assert row["episodes"] == len(episodes)
            assert row["evaluation_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        metrics = file.with_name("metrics.parquet")
        if metrics.exists() and "threespo" in method:
            epochs = pd.read_parquet(metrics)
            expansions = epochs["detail_expansions"]
            share = (epochs["detail_unvisited_share"] * expansions).sum() / expansions.sum()
            assert 0 < share < 1
            assert row["unvisited_percent"] == pytest.approx(100 * share, rel=1e-5)
        else:
            assert pd.isna(row["unvisited_percent"])
    assert (
        there["main_results.svg"]
        == (finished_copy.results() / "figures" / "main_results.svg").read_bytes()
    )

    # The text is kept, what the study does not make any more is not.
    folder = finished_copy.folder / "docs" / "results" / "ci"
    (folder / "README.md").write_text("by hand")
    (folder / "left_over.svg").write_text("<svg/>")
    assert publish(finished_copy).returncode == 0
    assert published(finished_copy) == {**there, "README.md": b"by hand"}


@pytest.mark.slow
def test_of_mini_reports_get_every_row_that_was_run(finished_copy, monkeypatch):
    # Not in this process: its package has the weights that are shipped, which the copy has not.
    done = publish(finished_copy, "--report", program=("-c", AS_IF_OTHERS_SHOWED_IT))
    assert done.returncode == 0, done.stderr
    assert {"config/published/ci.csv", "docs/results/ci/report.html"} <= set(done.stdout.split())
    monkeypatch.chdir(finished_copy.folder)
    monkeypatch.setattr(
        threespo.results.analysis.published, "PUBLISHED_MINI", Path("config/published/ci.csv")
    )
    rows, main = read_published(), pd.read_parquet("results/ci/tables/main.parquet")
    key = ["env", "policy", "method", "split"]
    expected = main[main["mean"].notna()].set_index(key)["mean"]
    assert rows.set_index(key)["mean"].to_dict() == pytest.approx(expected.to_dict(), rel=1e-5)
    assert rows["commit"].str.match(r"[0-9a-f]{12}|unknown").all()


@pytest.mark.slow
def test_of_an_edited_table_nothing_is_published(finished_copy):
    table = finished_copy.results() / "tables" / "episodes.parquet"
    episodes = pd.read_parquet(table)
    episodes["success"] = True
    table.unlink()
    episodes.to_parquet(table)
    done = publish(finished_copy)
    assert done.returncode == 2
    assert "episodes.parquet" in done.stderr
    assert "Run the workflow" in done.stderr
    assert not published(finished_copy)
