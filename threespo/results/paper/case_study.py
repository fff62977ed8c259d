"""The paper's case study from our own data: what the search thinks of one state at its first and at its tenth visit."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.methods.registry import check_options
from threespo.methods.tree_table import read_trees
from threespo.results.paper_numbers import VISITS
from threespo.scoring.reward import RewardTerms, novelty_weight
from threespo.study.matrix import shown_runs
from threespo.tables import select_rows

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

DEPTH = 7
"""Place in its paths of the state that the paper shows, from 1."""

STATE_COLUMNS = ("observation", "depth", "epoch", "visits", "successes", "score", "rollouts")
"""Columns of a tree's node that are the state's own."""

COLUMNS = (
    "env", "method", "observation", "depth", "visit", "epoch", "visits", "successes", "score", "rollouts", "novelty_weight",
    "difference_weight", "child", "action", "child_score", *RewardTerms._fields,
)  # fmt: skip


def case_study_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return the first and the tenth visit to the state that each method's recorded trees expand most often at depth 7.

    There is one such state for each environment and method, of the first base policy and the first seed. Where no state is
    expanded twice at that depth, it is one of the nearest depth at which a state is, of two the smaller. A state that was
    expanded less than ten times is shown at its last visit instead. Roots do not count, since their novelty is never in
    question; nor do expansions of the same state at another depth, where its score is another.

    Returns:
        A row for each child that was sampled at a visit; the state's own numbers are repeated in all rows of a visit.
    """
    rows = []
    for run in shown_runs(study):
        rows += _rows_of_run(study, run, read_trees(paths.run(run).trees))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows_of_run(study: "Study", run: "Run", trees: pd.DataFrame) -> list[dict[str, object]]:
    # Roots do not count: their depth is 1.
    is_expanded = (trees["expanded"] >= 0) & (trees["depth"] > 1)
    expanded = trees[is_expanded].sort_values(["epoch", "task_id", "expanded"])
    if expanded.empty:
        return []

    expansions = _expansions_of_shown_state(expanded)
    entry = study.at(run.env).methods[run.method]
    # Methods that search have these options (``threespo.methods.registry``).
    options: Any = check_options(entry.method, entry.options)
    rows: list[dict[str, object]] = []

    # A state with fewer expansions is shown at its last one, and only once where that is also the first.
    available = [min(visit, len(expansions)) for visit in VISITS]
    for visit in dict.fromkeys(available):
        node = expansions.iloc[visit - 1]
        # The weights of eq. 2 at the counts that the search saw; an ablated term has none.
        omega = novelty_weight(node["visits"], options.omega_k, options.omega_fixed)
        state_columns = {
            "env": run.env,
            "method": run.method,
            "visit": visit,
            "novelty_weight": omega * (options.novelty != "none"),
            "difference_weight": (0.5 - omega) * options.difference,
            **node[list(STATE_COLUMNS)].to_dict(),
        }

        # Numbers of nodes are those of one tree: a task in an epoch.
        children = select_rows(trees, epoch=node["epoch"], task_id=node["task_id"], parent=node["node"])
        for number, child in enumerate(children.to_dict("records")):
            rows.append(
                {
                    **state_columns,
                    "child": number,
                    "action": child["action"],
                    "child_score": child["score"],
                    **{name: child[name] for name in RewardTerms._fields},
                }
            )
    return rows


def _expansions_of_shown_state(expanded: pd.DataFrame) -> pd.DataFrame:
    """Return the expansions of the state that is expanded most often, at the depth that is shown or the nearest one."""
    # Groups are in the order of their first rows: of states that were expanded equally often the first is taken.
    counts = expanded.groupby(["depth", "state"], sort=False).size()
    if (counts > 1).any():
        counts = counts[counts > 1]
    depths = counts.index.get_level_values("depth")
    # Of two depths that are equally near the smaller.
    depth = min(depths, key=lambda candidate: (abs(candidate - DEPTH), candidate))
    state = counts[depth].idxmax()
    return select_rows(expanded, state=state, depth=depth).reset_index(drop=True)
