"""The case study: the right state, the right visits, and the weights of eq. 2 by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest

from threespo.methods.tree_table import COLUMNS
from threespo.paths import Paths
from threespo.results.paper import case_study as module
from threespo.results.paper.case_study import case_study_table
from threespo.study.load import load_study
from threespo.study.matrix import shown_runs
from threespo.tables import write_table

ROOT = Path(__file__).resolve().parents[2]


def node(number, parent, depth, state, **over):
    texts = dict.fromkeys(("task_type", "goal", "response"), "")
    base = {
        **texts, "task_id": "game", "node": number, "parent": parent, "depth": depth, "state": state,
        "action": f"to {state}", "observation": f"room {state}", "valid": True, "admissible": True,
        "end": "", "visits": 0.0, "successes": 0.0,
        "score": 1.0, "gated": False, "expanded": -1, "rollouts": 0, "reward": 0.5, "novelty": 0.5, "difference": 0.0,
        "success": 0.0, "advantage": math.nan,
    }  # fmt: skip
    row = {**base, **over}
    return {name: row[name] for name in COLUMNS[1:]}


def tree(epoch, visits):
    """A root and one room, which has been on ``visits`` paths and leads to a child."""
    rows = [
        node(0, -1, 1, "root", expanded=0, rollouts=1),
        node(1, 0, 2, "hall", expanded=1, rollouts=1, visits=visits, score=1 / (1 + visits)),
        node(2, 1, 3, "end", score=0.25, novelty=0.1),
    ]
    return [{"epoch": epoch, **row} for row in rows]


@pytest.mark.parametrize(("epochs", "visits"), [(12, [1, 10]), (4, [1, 4]), (1, [1])])
def test_the_most_expanded_state_at_its_first_and_tenth_visit(tmp_path, epochs, visits):
    study, paths = load_study(ROOT / "config" / "studies" / "ci.yaml"), Paths(tmp_path)
    (run,) = shown_runs(study)
    rows = [row for epoch in range(1, epochs + 1) for row in tree(epoch, float(epoch - 1))]
    write_table(paths.run(run).trees, rows)
    found = case_study_table(study, paths)
    assert list(found.columns) == list(module.COLUMNS)
    assert found["observation"].unique().tolist() == ["room hall"], (
        "the root is met as often, and does not count"
    )
    assert found["visit"].tolist() == visits
    for _, row in found.iterrows():
        weight = 0.5 * math.exp(-0.1 * (row["visit"] - 1))
        assert row["novelty_weight"] == pytest.approx(weight)
        assert row["difference_weight"] == pytest.approx(0.5 - weight)
        assert (row["child_score"], row["action"], row["novelty"]) == (0.25, "to end", 0.1)
        assert row["visits"] == row["visit"] - 1


def test_without_expansions_there_is_no_case(tmp_path):
    study, paths = load_study(ROOT / "config" / "studies" / "ci.yaml"), Paths(tmp_path)
    (run,) = shown_runs(study)
    write_table(paths.run(run).trees, pd.DataFrame(columns=list(COLUMNS)))
    assert case_study_table(study, paths).empty


def test_a_state_at_depth_seven_is_shown_even_where_another_is_expanded_more_often(tmp_path):
    study, paths = load_study(ROOT / "config" / "studies" / "ci.yaml"), Paths(tmp_path)
    (run,) = shown_runs(study)
    # A chain of nine states: the one at depth 3 is in each of six epochs, that at depth 7 in three, depth 6 in five.
    rows = []
    for epoch in range(1, 7):
        for number in range(9):
            depth = number + 1
            known = depth == 3 or (depth == 6 and epoch < 6) or (depth == 7 and epoch < 4)
            state = f"s{depth}" if known else f"{depth} in {epoch}"
            rows.append(
                {"epoch": epoch, **node(number, number - 1, depth, state, expanded=number, rollouts=1)}
            )
    write_table(paths.run(run).trees, rows)
    found = case_study_table(study, paths)
    assert (found["observation"].unique().tolist(), found["depth"].unique().tolist()) == (
        ["room s7"],
        [7],
    )
    assert found["visit"].tolist() == [1, 3]
    shorter = [
        {**row, "expanded": -1 if row["depth"] == 7 else row["expanded"]}
        for row in rows
        if row["depth"] < 8
    ]
    write_table(paths.run(run).trees, shorter)
    found = case_study_table(study, paths)
    assert (found["observation"].unique().tolist(), found["depth"].unique().tolist()) == (
        ["room s6"],
        [6],
    )
