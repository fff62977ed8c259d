"""Publishing a study: `python -m workflow.publish results/STUDY` writes its numbers and figures into docs/results/STUDY.

The text beside them, README.md, is written by hand and left alone. Of `mini`, config/published gets what reports of other
studies show of it.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.envs.registry import presentation
from threespo.errors import InputError
from threespo.files import replace_file, write_text
from threespo.paths import PUBLISHED_MINI, Paths
from threespo.pipeline.plan import check_study
from threespo.provenance.digests import file_digest
from threespo.results.analysis.comparisons import Comparison, compare_methods, comparison_table
from threespo.results.analysis.published import COLUMNS
from threespo.results.analysis.rates import Row, rows_at_edge
from threespo.results.analysis.summaries import percent_by_game, task_clusters
from threespo.results.collect import RUN_COLUMNS
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT
from threespo.study.catalogue import items_of
from threespo.study.load import load_study
from threespo.study.matrix import evaluated_runs, local_policies
from threespo.tables import read_table
from threespo.watch.export import item_files

if TYPE_CHECKING:
    import pandas as pd

    from threespo.study.config import Study

DOCS = Path("docs/results")

BY_HAND = "README.md"

CLUSTER_COLUMNS = ("env", "policy", "split", "measure", "cluster", "tasks")

CLAIM_COLUMNS = (
    *("claim", "rule", "env", "policy", "split", "measure", "preset", "method_of_paper"),
    *(
        "measured",
        "low",
        "high",
        "p",
        "p_adjusted",
        "family",
        "tests",
        "seeds_needed",
        "verdict",
        "detail",
    ),
)


def publish(paths: Paths, *, with_report: bool = False) -> list[Path]:
    """Write what is published of a study, and return the files; others in its folder, all but the text, are removed.

    Args:
        paths: of the study. All its results are read once more, to the last byte.
        with_report: whether the report's page is published, too.

    Raises:
        InputError: if the workflow has something left to do for this study, or a result is missing, damaged or edited.
    """
    study = load_study(paths.study)
    lines, well = check_study(study, paths, deep=True)
    if not well:
        raise InputError(f"{lines[0]}. Run the workflow for this study, and publish what is finished")

    folder = DOCS / paths.root.name
    folder.mkdir(parents=True, exist_ok=True)
    tables = _tables(study, paths, folder)
    for file, frame in tables.items():
        write_text(file, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))

    kinds = {"table": ".csv", "figure": ".svg", "text": ".csv"}
    copies = [
        file
        for item in items_of(study)
        for file in item_files(paths, item)
        if file.suffix == kinds[item.kind]
    ]
    copies += [paths.report] * with_report
    for source in copies:
        with replace_file(folder / source.name) as target:
            shutil.copyfile(source, target)

    written = [*tables, *(folder / source.name for source in copies)]
    for file in folder.iterdir():
        if file not in written and file.name != BY_HAND:
            file.unlink()
    return written


def _tables(study: "Study", paths: Paths, folder: Path) -> "dict[Path, pd.DataFrame]":
    """Return the tables that are published, by file."""
    names = ("main", "runs", "metrics", "episodes", "claims")
    main, runs, metrics, episodes, claims = (read_table(paths.table(name)) for name in names)
    tables = {
        folder / "runs.csv": per_run(runs, metrics, episodes, evaluation_digests(study, paths)),
        folder / "claims.csv": claims[[*CLAIM_COLUMNS]],
    }
    names = ("learning", "time_to", "tuning", "rates", "credit")
    more = {name: read_table(paths.table(name)) for name in names}
    edges = rows_at_edge(more["rates"])
    compared = compare_methods(study, episodes, edges)
    more["differences"] = differences(study, compared, edges)
    more["comparisons"] = all_comparisons(compared)
    more["clusters"] = by_cluster(study, episodes)
    more["states"] = states_met(metrics)
    tables |= {folder / f"{name}.csv": frame for name, frame in more.items() if len(frame)}
    if paths.root.name == PUBLISHED_MINI.stem:
        commits = " ".join(sorted(runs["commit"].unique()))
        tables[PUBLISHED_MINI] = main[main["mean"].notna()].assign(commit=commits)[[*COLUMNS]]
    return tables


def evaluation_digests(study: "Study", paths: Paths) -> "pd.DataFrame":
    """Return the first 16 hexadecimal digits of each evaluation's SHA-256, which who runs it again compares with theirs."""
    import pandas as pd

    rows = [
        (run.env, run.policy, run.method, run.seed, file_digest(paths.run(run).evaluation)[:16])
        for run in evaluated_runs(study)
    ]
    return pd.DataFrame(rows, columns=[*RUN_COLUMNS, "evaluation_sha256"])


def per_run(
    runs: "pd.DataFrame", metrics: "pd.DataFrame", episodes: "pd.DataFrame", digests: "pd.DataFrame"
) -> "pd.DataFrame":
    """Return success and task score in percent of every run on every split, and what the run cost.

    ``unvisited_percent`` is the share of a search's expanded states that had no count yet (N = 0), over the whole run.
    """
    played = episodes.assign(
        success_percent=100 * episodes["success"], score_percent=100 * episodes["score"]
    )
    found = played.groupby([*RUN_COLUMNS, "split"]).agg(
        success_percent=("success_percent", "mean"),
        score_percent=("score_percent", "mean"),
        episodes=("success", "size"),
    )
    # A study without searches has not these columns.
    searched = metrics.reindex(
        columns=list(dict.fromkeys([*metrics, "detail_unvisited_share", "detail_expansions"]))
    )
    searched["unvisited"] = searched["detail_unvisited_share"] * searched["detail_expansions"]
    whole = searched.groupby(RUN_COLUMNS).agg(
        epochs=("epoch", "max"), unvisited=("unvisited", "sum"), expansions=("detail_expansions", "sum")
    )
    whole["unvisited_percent"] = 100 * whole["unvisited"] / whole["expansions"]

    costs = runs[[*RUN_COLUMNS, "generations", "optimizer_steps", "learning_rate", "commit"]]
    costs = costs.merge(whole[["epochs", "unvisited_percent"]].reset_index(), on=RUN_COLUMNS)
    return (
        found.reset_index()
        .merge(costs, how="left", on=RUN_COLUMNS)
        .merge(digests, how="left", on=RUN_COLUMNS)
    )


def differences(
    study: "Study", compared: list[Comparison], edges: "Mapping[Row, str] | None" = None
) -> "pd.DataFrame":
    """Return how many points each trained method is above the reference, in every measure: one family, none left out.

    ``seeds_alone`` is how many training seeds an arm would decide an undecided one, if it were the only one; empty where it
    is more than a thousand. ``at_edge``, in studies with trials of learning rates, names the methods of a pair whose rate is
    at an edge of what was tried.
    """
    import pandas as pd

    found = [one for one in compared if one.family == "reference"]
    order = list(study.methods)
    rows = [
        {
            "env": one.env,
            "policy": one.policy,
            "split": one.split,
            "measure": one.measure,
            "first": one.method,
            "second": one.other,
            "points": one.estimate,
            "low": one.low,
            "high": one.high,
            "p": one.p,
            "p_holm": one.p_holm,
            "tests": one.tests,
            "side": one.verdict,
            "seeds_alone": one.seeds_needed(),
            **_name_edges(study, one, edges or {}),
        }
        for one in sorted(found, key=lambda one: order.index(one.method))
    ]
    return pd.DataFrame(rows)


def _name_edges(study: "Study", comparison: Comparison, edges: "Mapping[Row, str]") -> dict[str, str]:
    if study.tuning is None:
        return {}
    setting = (comparison.env, comparison.policy)
    pair = (comparison.method, comparison.other)
    return {"at_edge": " ".join(method for method in pair if (*setting, method) in edges)}


def all_comparisons(compared: list[Comparison]) -> "pd.DataFrame":
    """Return the whole table of comparisons: those with the base and between presets, too, each with its family."""
    return comparison_table(compared).assign(seeds_alone=[one.seeds_needed() for one in compared])


def by_cluster(study: "Study", episodes: "pd.DataFrame") -> "pd.DataFrame":
    """Return every method's percent in each cluster of tasks on the split that is compared, a column a method.

    A cluster is what the interval of a single policy is over: a layout of rooms, a product. ``tasks`` is how many tasks a
    cluster has. A trained method has its mean over training seeds.
    """
    import pandas as pd

    frames = []
    for env in study.environments:
        split = study.at(env).evaluation.splits[-1]
        for policy in local_policies(study):
            is_setting = (episodes["env"] == env) & (episodes["policy"] == policy)
            played = episodes[is_setting & (episodes["split"] == split)]
            if played.empty:
                continue
            for measure in ("success", "score"):
                if measure not in presentation(env).measures:
                    continue
                frame = _cluster_means(env, played, measure)
                for column, value in enumerate((env, policy, split, measure)):
                    frame.insert(column, CLUSTER_COLUMNS[column], value)
                frames.append(frame)
    if not frames:
        return pd.DataFrame()
    merged = pd.concat(frames, ignore_index=True)
    methods = [name for name in ("base", *study.methods, "strong") if name in merged]
    others = [name for name in merged if name not in (*CLUSTER_COLUMNS, *methods)]
    return merged[[*CLUSTER_COLUMNS, *methods, *others]]


def _cluster_means(env: str, played: "pd.DataFrame", measure: str) -> "pd.DataFrame":
    """Return a row for each cluster, with its number of tasks and the mean of each method in it."""
    import pandas as pd

    of_task = {
        method: percent_by_game(rows, measure).mean(axis=0) for method, rows in played.groupby("method")
    }
    tasks = pd.DataFrame(of_task)
    groups = tasks.groupby(task_clusters(env, list(tasks.index)))
    means = groups.mean()
    means.insert(0, "tasks", groups.size())
    return means.rename_axis("cluster").reset_index()


def states_met(metrics: "pd.DataFrame") -> "pd.DataFrame":
    """Return how many different states each run had met after each epoch, where the paper counts them."""
    columns = [*RUN_COLUMNS, "epoch", "generations", "detail_state_met"]
    met = metrics.reindex(columns=columns)
    met = met[(met["env"] == DETAILED_ENVIRONMENT) & met["detail_state_met"].notna()]
    return met.rename(columns={"detail_state_met": "states_met"})


def main() -> int:
    """Publish the study in the folder that is given; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m workflow.publish", description=__doc__)
    parser.add_argument("results", type=Path, metavar="FOLDER", help="results/STUDY")
    parser.add_argument("--report", action="store_true", help="publish the report's page, too")
    arguments = parser.parse_args()
    try:
        for file in publish(Paths(arguments.results), with_report=arguments.report):
            print(file)
    except InputError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
