"""The paper's case study from our own data: what the search thinks of one state at its first and at its tenth visit."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.methods.registry import check_options
from threespo.methods.tree_table import read_trees
from threespo.scoring.reward import RewardTerms, novelty_weight
from threespo.study.matrix import shown_runs

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

VISITS = (1, 10)
"""Visits that the paper shows."""

DEPTH = 7
"""Place in its paths of the state that the paper shows, from 1."""

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
        A row for each child that was sampled at a visit. The state's own numbers stand in all rows of a visit.
    """
    frames = [_of_run(study, run, read_trees(paths.run(run).trees)) for run in shown_runs(study)]
    return pd.DataFrame([row for frame in frames for row in frame], columns=list(COLUMNS))


def _of_run(study: "Study", run: "Run", trees: pd.DataFrame) -> list[dict[str, object]]:
    expanded = trees[(trees["expanded"] >= 0) & (trees["depth"] > 1)].sort_values(
        ["epoch", "task_id", "expanded"]
    )
    if expanded.empty:
        return []

    # The first of the states that were expanded equally often: groups are in the order of their first rows.
    times = expanded.groupby(["depth", "state"], sort=False).size()
    again = times[times > 1] if (times > 1).any() else times
    depth = min(again.index.get_level_values("depth"), key=lambda one: (abs(one - DEPTH), one))
    state = again[depth].idxmax()
    met = expanded[(expanded["state"] == state) & (expanded["depth"] == depth)].reset_index(drop=True)
    entry = study.at(run.env).methods[run.method]
    # Methods that search have these options (``threespo.methods.registry``).
    options: Any = check_options(entry.method, entry.options)
    rows: list[dict[str, object]] = []

    # ``min`` gives the last visit where there are fewer; ``fromkeys`` drops it where it is also the first.
    for visit in dict.fromkeys(min(one, len(met)) for one in VISITS):
        node = met.iloc[visit - 1]

        # The weights of eq. 2 at the counts that the search saw; an ablated term has none.
        omega = novelty_weight(node["visits"], options.omega_k, options.omega_fixed)
        weights = {
            "novelty_weight": omega * (options.novelty != "none"),
            "difference_weight": (0.5 - omega) * options.difference,
        }

        # Numbers of nodes are those of one tree: a task in an epoch.
        here = trees[(trees["epoch"] == node["epoch"]) & (trees["task_id"] == node["task_id"])]
        own = {
            **{"env": run.env, "method": run.method, "visit": visit, **weights},
            **{
                name: node[name]
                for name in ("observation", "depth", "epoch", "visits", "successes", "score", "rollouts")
            },
        }
        children = here[here["parent"] == node["node"]]

        rows += [
            {
                **own,
                **{"child": place, "action": child["action"], "child_score": child["score"]},
                **{name: child[name] for name in RewardTerms._fields},
            }
            for place, (_, child) in enumerate(children.iterrows())
        ]
    return rows
