"""The paper's case study from our own data: what the search thinks of one state at its first and at its tenth visit."""

from typing import TYPE_CHECKING

import pandas as pd

from threespo.methods.threespo import ThreespoOptions
from threespo.methods.tree_table import read_trees
from threespo.scoring.reward import novelty_weight
from threespo.study.matrix import shown_runs

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.paths import Paths, Run

VISITS = (1, 10)
"""Visits that the paper shows."""

COLUMNS = (
    "env", "method", "observation", "visit", "epoch", "visits", "successes", "score", "rollouts", "novelty_weight",
    "difference_weight", "child", "action", "child_score", "novelty", "difference", "success",
)  # fmt: skip


def case_study(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return one row for each sampled child of the state that was expanded most often in a method's recorded trees in
    an environment.

    The state's own numbers stand in all rows of a visit; roots do not count, since their novelty is never in question. A
    method whose states were expanded less often than ten times is shown at its last visit instead.
    """
    frames = [_of_run(study, run, read_trees(paths.run(run).trees)) for run in shown_runs(study)]
    return pd.DataFrame([row for frame in frames for row in frame], columns=list(COLUMNS))


def _of_run(study: "Study", run: "Run", trees: pd.DataFrame) -> list[dict[str, object]]:
    expanded = trees[(trees["expanded"] >= 0) & (trees["depth"] > 1)].sort_values(["epoch", "task_id", "expanded"])
    if expanded.empty:
        return []
    # Of states met equally often the first: ``value_counts`` keeps their order.
    state = expanded["state"].value_counts(sort=False).idxmax()
    met = expanded[expanded["state"] == state].reset_index(drop=True)
    options = ThreespoOptions.model_validate(study.at(run.env).methods[run.method].options)
    rows: list[dict[str, object]] = []
    for visit in dict.fromkeys(min(one, len(met)) for one in VISITS):
        node = met.iloc[visit - 1]
        omega = novelty_weight(node["visits"], options.omega_k, options.omega_fixed)
        weights = {
            "novelty_weight": omega * (options.novelty != "none"),
            "difference_weight": (0.5 - omega) * options.difference,
        }
        here = trees[(trees["epoch"] == node["epoch"]) & (trees["task_id"] == node["task_id"])]
        own = {
            **{"env": run.env, "method": run.method, "visit": visit, **weights},
            **{name: node[name] for name in ("observation", "epoch", "visits", "successes", "score", "rollouts")},
        }
        children = here[here["parent"] == node["node"]]
        rows += [
            {
                **own,
                **{"child": place, "action": child["action"], "child_score": child["score"]},
                **{name: child[name] for name in ("novelty", "difference", "success")},
            }
            for place, (_, child) in enumerate(children.iterrows())
        ]
    return rows
