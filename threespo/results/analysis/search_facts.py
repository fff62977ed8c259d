"""What recorded search trees show of a run: steps that lead back, and the next states of a state's first and tenth visit."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.methods.tree_table import read_trees
from threespo.results.collect import RUN_COLUMNS
from threespo.results.paper_numbers import VISITS
from threespo.study.matrix import searching_runs

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

COLUMNS = (*RUN_COLUMNS, "steps", "back", "states", "next_first", "next_tenth", "met_before")

NODE = ["epoch", "task_id", "node"]


def collect_search_facts(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return a row for each run that searches, over all trees that it recorded (``training.recorded_tasks``).

    Returns:
        ``steps`` sampled transitions; ``back`` the share of them that lead to an observation which their path has shown
        before. ``states`` that were expanded ten times or more: ``next_first`` and ``next_tenth`` are the mean numbers of
        different states that were sampled at their first and tenth expansion, ``met_before`` the share of the latter that
        earlier trees or expansions had. NaN where there are none.
    """
    rows = []
    for run in searching_runs(study):
        names = dict(zip(RUN_COLUMNS, (run.env, run.policy, run.method, run.seed), strict=True))
        trees = read_trees(paths.run(run).trees).sort_values(NODE, kind="stable", ignore_index=True)
        rows.append({**names, **share_leading_back(trees), **count_next_states(trees)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def share_leading_back(trees: pd.DataFrame) -> dict[str, Any]:
    """Return how many sampled transitions there are (``steps``), and the share that lead back (``back``)."""
    observations_on_path: dict[tuple[Any, ...], frozenset[str]] = {}
    steps = 0
    steps_back = 0
    columns = trees[[*NODE, "parent", "observation"]]
    for epoch, task, node, parent, observation in columns.itertuples(index=False, name=None):
        # Parents come before children. A root has none.
        before = observations_on_path.get((epoch, task, parent), frozenset())
        observations_on_path[epoch, task, node] = before | {observation}
        if parent >= 0:
            steps += 1
            steps_back += observation in before
    return {"steps": steps, "back": steps_back / steps if steps else np.nan}


def count_next_states(trees: pd.DataFrame) -> dict[str, Any]:
    """Return how many different states follow the first and the tenth expansion of a state, as means over states."""
    children = trees[trees["parent"] >= 0].groupby(["epoch", "task_id", "parent"])["state"]
    next_states: dict[tuple[Any, ...], set[str]] = {node: set(states) for node, states in children}
    # ``expanded`` counts within one tree, so epoch and task come first.
    expanded = trees[trees["expanded"] >= 0].sort_values(["epoch", "task_id", "expanded"], kind="stable")

    tenth_visit = VISITS[-1] - 1
    first_counts: list[int] = []
    tenth_counts: list[int] = []
    shares_met: list[float] = []
    for _, visits in expanded.groupby("state", sort=True):
        # States with fewer visits would be in the first mean only: both are over the same states.
        if len(visits) <= tenth_visit:
            continue
        nodes = visits[NODE].itertuples(index=False, name=None)
        by_visit = [next_states.get(node, set()) for node in nodes]
        first_counts.append(len(by_visit[0]))

        tenth = by_visit[tenth_visit]
        tenth_counts.append(len(tenth))
        # A visit at which nothing was sampled has no share.
        if tenth:
            earlier: set[str] = set().union(*by_visit[:tenth_visit])
            shares_met.append(len(tenth & earlier) / len(tenth))
    if not first_counts:
        return {"states": 0, "next_first": np.nan, "next_tenth": np.nan, "met_before": np.nan}
    return {
        "states": len(first_counts),
        "next_first": float(np.mean(first_counts)),
        "next_tenth": float(np.mean(tenth_counts)),
        "met_before": float(np.mean(shares_met)) if shares_met else np.nan,
    }
