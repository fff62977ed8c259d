"""The first screen of the report: what was run, what it decides, and the strongest reason to doubt it."""

import math
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.optional_splits import DEVELOPMENT
from threespo.envs.registry import presentation
from threespo.envs.spec import split_purpose
from threespo.results.analysis.caveats import warn_of_few_seeds
from threespo.results.analysis.statistics import LEVEL, adjust_by_holm, difference_interval
from threespo.results.analysis.summaries import percent_by_seed
from threespo.results.claims.page import OWN, SETTLED
from threespo.results.labels import label, titled
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study

REFERENCES = ("grpo", "gigpo", "rloo", "ppo")
"""Estimators that the others are compared with: the first of them that the study trains."""

DECIDED = ("holds", "fails", "unclear")
"""What runs may find of a claim."""

SAID = {"fails": "fail", "holds": "hold", "unsupported": "are unsupported", "vacuous": "are vacuous"}
"""What its own text may show of a claim, as it is said of several."""


def build_opening(study: "Study", tables: dict[str, pd.DataFrame], mark: str = "") -> dict[str, Any]:
    """Return the first screen of the report.

    Args:
        study: the study.
        tables: ``main``, ``episodes`` and ``claims`` are read.
        mark: what is to be said of the study's mark as confirmatory; empty without one.

    Returns:
        ``mark`` (what is said of a confirmatory study, or ""), ``verdicts`` (sentences on the paper's claims), ``build_outcome_table``
        (the table's ``settings`` and ``rows``, the name of its ``reference``), ``doubt`` (the strongest caveat).
    """
    found = build_outcome_table(study, tables["main"], tables["episodes"])
    return {
        "mark": mark,
        "verdicts": list(_verdicts(tables["claims"])),
        "outcome": found,
        "doubt": _doubt(study, found),
    }


def build_outcome_table(study: "Study", main: pd.DataFrame, episodes: pd.DataFrame) -> dict[str, Any]:
    """Return success on each environment's last split, and what each method is above the reference.

    Differences are called *above* or *below* where their Welch interval excludes zero and Holm's correction for all
    differences of the table leaves them so.

    Returns:
        ``settings`` (``env``, ``policy``, ``split``, ``name``), the name of the ``reference`` (``None`` without one), and
        ``rows`` with ``method``, ``trained`` and a cell for each setting: ``None`` where it was not run, else the row of the
        table ``main``, of methods that are compared also ``gap``, ``gap_low``, ``gap_high``, ``p``, ``p_holm``, ``side`` and
        ``arms`` (success in percent of each training seed, of the method and of the reference).
    """
    names = {entry.method: name for name, entry in reversed(study.methods.items())}
    reference = next((names[method] for method in REFERENCES if method in names), None)
    settings = [
        _setting(study, env, policy) for env in study.environments for policy in local_policies(study)
    ]
    cells = {
        (index, method): _cell(study, setting, method, reference, main, episodes)
        for index, setting in enumerate(settings)
        for method in ("base", *study.methods, "strong")
    }
    compared = [cell for cell in cells.values() if cell is not None and "p" in cell]
    for cell, p in zip(compared, adjust_by_holm([cell["p"] for cell in compared]), strict=True):
        cell["p_holm"] = p
        cell["side"] = "undecided" if not p < LEVEL else "above" if cell["gap"] > 0 else "below"

    rows = []
    for method in ("base", *study.methods, "strong"):
        row = [cells[index, method] for index in range(len(settings))]
        if any(row):
            rows.append({"method": method, "trained": method in study.methods, "cells": row})
    return {"settings": settings, "rows": rows, "reference": reference}


def _verdicts(claims: pd.DataFrame) -> Iterator[str]:
    """Yield what becomes of the paper's claims: by its own text first, then by the study's runs."""
    papers = claims[claims["method_of_paper"].astype(bool) & ~claims["claim"].str.startswith(OWN)]
    settled = papers["rule"].isin(SETTLED)
    # A claim with several rules may need runs for some of them.
    alone = settled & ~papers["claim"].isin(papers["claim"][~settled])
    by_text = papers[alone].groupby("claim")["verdict"].agg(_worst).value_counts()

    holds, fails, unclear = counts_of_claims(claims)
    total, runs = papers["claim"].nunique(), holds + fails + unclear
    left = total - int(by_text.sum()) - runs

    words = ", ".join(f"{count} {SAID[verdict]}" for verdict, count in by_text.items())
    yield f"Of the paper's {total} claims its own equations, text and numbers settle {by_text.sum()} ({words})."
    if runs:
        yield (
            f"This study's runs speak to {runs}: {holds} hold wherever they were judged, {fails} fail in at least one "
            f"place, {unclear} are undecided. The other {left} need rows, splits or models that are not here."
        )


def counts_of_claims(claims: pd.DataFrame) -> tuple[int, int, int]:
    """Return how many of the paper's claims hold, fail, and are undecided by a study's runs, with the paper's method.

    One failing place contradicts a claim; it holds only where every place says so.
    """
    own = claims["method_of_paper"].astype(bool) & ~claims["claim"].str.startswith(OWN)
    judged = own & ~claims["rule"].isin(SETTLED) & claims["verdict"].isin(DECIDED)
    found = list(claims[judged].groupby("claim")["verdict"].agg(set))
    holds, fails = found.count({"holds"}), sum("fails" in one for one in found)
    return holds, fails, len(found) - holds - fails


def _worst(verdicts: "pd.Series[str]") -> str:
    return next(
        verdict
        for verdict in ("fails", "unsupported", "vacuous", "holds")
        if (verdicts == verdict).any()
    )


def _setting(study: "Study", env: str, policy: str) -> dict[str, str]:
    split = study.at(env).evaluation.splits[-1]
    name = f"{label(env)}, {label(split, env)}"
    several = len(local_policies(study)) > 1
    return {
        "env": env,
        "policy": policy,
        "split": split,
        "name": titled(name, policy, [policy]) + f", {policy}" * several,
    }


def _cell(
    study: "Study",
    setting: dict[str, str],
    method: str,
    reference: str | None,
    main: pd.DataFrame,
    episodes: pd.DataFrame,
) -> dict[Hashable, Any] | None:
    """Return a method's success and its difference to the reference; ``None`` where it was not run."""
    at = {name: setting[name] for name in ("env", "policy", "split")}
    here = main[np.logical_and.reduce([main[name] == value for name, value in at.items()])].set_index(
        "method"
    )
    if method not in here.index or not here.at[method, "episodes"]:
        return None
    cell: dict[Hashable, Any] = here.loc[method].to_dict()

    if (
        reference is not None
        and reference in here.index
        and method in study.methods
        and method != reference
    ):
        played = episodes[np.logical_and.reduce([episodes[name] == value for name, value in at.items()])]
        # Both are trained, so each is one number a training seed.
        ours, theirs = (
            percent_by_seed(played[played["method"] == name], "success") for name in (method, reference)
        )
        gap = difference_interval(ours, theirs)
        cell |= {
            "gap": gap.estimate,
            "gap_low": gap.low,
            "gap_high": gap.high,
            "p": gap.p,
            "arms": (ours, theirs),
        }
        cell["paper_gap"] = here.at[method, "paper_mean"] - here.at[reference, "paper_mean"]
    return cell


def _doubt(study: "Study", outcome: dict[str, Any]) -> str:
    """Return the strongest reason not to believe the table, of those that apply."""
    if few := warn_of_few_seeds(study):
        return few
    compared = [cell for row in outcome["rows"] for cell in row["cells"] if cell and "side" in cell]
    undecided = sum(cell["side"] == "undecided" for cell in compared)
    halves = [
        (cell["gap_high"] - cell["gap_low"]) / 2 for cell in compared if not math.isnan(cell["gap_low"])
    ]

    if undecided and halves:
        width = float(np.median(halves))
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
