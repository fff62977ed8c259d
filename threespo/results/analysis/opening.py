"""The first screen of the report: what was run, what it decides, and the strongest reason to doubt it."""

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.optional_splits import DEVELOPMENT
from threespo.envs.registry import presentation
from threespo.envs.spec import split_purpose
from threespo.results.analysis.caveats import warn_of_few_seeds
from threespo.results.analysis.comparisons import Comparison, find_comparison, reference_method
from threespo.results.analysis.tally import tally_claims
from threespo.results.labels import label, titled
from threespo.study.matrix import local_policies
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study


def build_opening(
    study: "Study", tables: dict[str, pd.DataFrame], comparisons: Sequence[Comparison], mark: str = ""
) -> dict[str, Any]:
    """Return the first screen of the report.

    Args:
        study: the study.
        tables: ``main`` and ``claims`` are read.
        comparisons: as ``compare_methods`` returns them.
        mark: what is to be said of the study's mark as confirmatory; empty without one.

    Returns:
        ``mark``, ``verdicts`` (sentences on the paper's claims), ``outcome`` (as ``build_outcome_table`` returns it),
        ``doubt`` (the strongest caveat).
    """
    outcome = build_outcome_table(study, tables["main"], comparisons)
    return {
        "mark": mark,
        "verdicts": tally_claims(tables["claims"]).describe(),
        "outcome": outcome,
        "doubt": _strongest_doubt(study, outcome),
    }


def build_outcome_table(
    study: "Study", main: pd.DataFrame, comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """Return success on each environment's last split, and what each method is above the reference.

    Returns:
        ``settings`` (``env``, ``policy``, ``split``, ``name``), the name of the ``reference`` (``None`` without one), and
        ``rows`` with ``method``, ``trained`` and a cell for each setting: ``None`` where it was not run, else the row of the
        table ``main``, of methods that are compared also their ``comparison`` and ``paper_gap``, the paper's difference.
    """
    reference = reference_method(study)
    settings = [
        _name_setting(study, env, policy)
        for env in study.environments
        for policy in local_policies(study)
    ]
    rows = []
    for method in ("base", *study.methods, "strong"):
        trained = method in study.methods
        # The reference has no comparison with itself; base and strong clone are single policies.
        other = reference if trained and method != reference else None
        cells = [_outcome_cell(setting, method, other, main, comparisons) for setting in settings]
        if any(cells):
            rows.append({"method": method, "trained": trained, "cells": cells})
    return {"settings": settings, "rows": rows, "reference": reference}


def _name_setting(study: "Study", env: str, policy: str) -> dict[str, str]:
    split = study.at(env).evaluation.splits[-1]
    name = titled(f"{label(env)}, {label(split, env)}", policy, [policy])
    if len(local_policies(study)) > 1:
        name += f", {policy}"
    return {"env": env, "policy": policy, "split": split, "name": name}


def _outcome_cell(
    setting: dict[str, str],
    method: str,
    reference: str | None,
    main: pd.DataFrame,
    comparisons: Sequence[Comparison],
) -> dict[Hashable, Any] | None:
    """Return a method's success and its comparison with the reference; ``None`` where it was not run."""
    env = setting["env"]
    policy = setting["policy"]
    split = setting["split"]
    is_setting = (main["env"] == env) & (main["policy"] == policy)
    rows = main[is_setting & (main["split"] == split)].set_index("method")
    # ``main`` also has rows, without episodes, for what was not run.
    if method not in rows.index or not rows.at[method, "episodes"]:
        return None

    cell: dict[Hashable, Any] = rows.loc[method].to_dict()
    if reference is not None:
        found = find_comparison(comparisons, (method, reference), env, policy, split, "success")
        if found is not None:
            cell["comparison"] = found
            cell["paper_gap"] = rows.at[method, "paper_mean"] - rows.at[reference, "paper_mean"]
    return cell


def _strongest_doubt(study: "Study", outcome: dict[str, Any]) -> str:
    """Return the strongest reason not to believe the table, of those that apply."""
    # From what keeps a study from deciding anything, over what biases it, to how far it carries over.
    few_seeds = warn_of_few_seeds(study)
    if few_seeds:
        return few_seeds

    cells = [cell for row in outcome["rows"] for cell in row["cells"] if cell]
    compared: list[Comparison] = [cell["comparison"] for cell in cells if "comparison" in cell]
    undecided = sum(comparison.verdict == "undecided" for comparison in compared)
    with_interval = [comparison for comparison in compared if not math.isnan(comparison.low)]
    half_widths = [(comparison.high - comparison.low) / 2 for comparison in with_interval]
    if undecided and half_widths:
        width = float(np.median(half_widths))
        return (
            f"{undecided} of {len(compared)} differences are undecided: with {len(study.seeds)} training seeds half the "
            f"intervals are wider than ± {width:.0f} points, so smaller differences cannot be seen here. Undecided does not "
            "mean equal."
        )

    splits = {setting["split"] for setting in outcome["settings"]}
    if DEVELOPMENT in {split_purpose(split) for split in splits}:
        return "These tasks are for development: variants were chosen on them, and what is best here may be best by chance."
    kinds = {study.policies[setting["policy"]].kind for setting in outcome["settings"]}
    if "tiny" in kinds:
        return "The policy is a tiny model: signs and orders may carry over to the paper's models, sizes do not."
    tasks = ", ".join(presentation(env).describe(section) for env, section in study.environments.items())
    return f"All of this is on {tasks}: other tasks may have other winners."


def describe_outcome(study: "Study", paths: "Paths") -> list[str]:
    """Return what the workflow prints when it has ended: success by environment, the tally of claims, where the report is.

    Nothing where a part of the workflow was asked for that makes no report.

    Raises:
        InputError: if a table cannot be read.
    """
    if not all(file.is_file() for file in (paths.report, paths.table("main"), paths.table("claims"))):
        return []
    main = read_table(paths.table("main"))
    success = [_describe_success(main, study, env) for env in study.environments]
    claims = tally_claims(read_table(paths.table("claims"))).describe()
    return [*success, *claims, f"report: {paths.report}"]


def _describe_success(main: pd.DataFrame, study: "Study", env: str) -> str:
    """Return the mean success of the methods on the environment's last split, on the study's first policy."""
    split = study.at(env).evaluation.splits[-1]
    is_split = (main["env"] == env) & (main["split"] == split)
    rows = main[is_split & main["mean"].notna()]
    # One line an environment has to do in the terminal; the report has all policies.
    if len(rows):
        rows = rows[rows["policy"] == rows["policy"].iloc[0]]
    means = [
        f"{label(method)} {mean:.1f}" for method, mean in zip(rows["method"], rows["mean"], strict=True)
    ]
    return f"{label(env)}, success on {label(split, env)} in %: {', '.join(means) or 'none yet'}"
