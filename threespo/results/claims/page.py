"""How verdicts on claims are shown: the same words in the report and in the terminal."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from threespo.results.analysis.tally import IDENTITY, OWN_PREFIX, SETTLED, tally_claims
from threespo.results.claims.finding import Row, join_details
from threespo.results.labels import label

RATIOS = ("states", "resource", "rollouts", "sooner")
UNITLESS = ("course", "by_type", "formula", "identity", "priority", "fewer", "longer", "level")
"""Rules whose number is a ratio, or neither ratio nor difference in points."""

SECTIONS = {
    "Abstract, introduction, conclusion": ("abstract", "introduction", "title", "conclusion"),
    "Method": ("sec. 3.1", "sec. 3.2", "sec. 3.3", "sec. 3.4", "figure 2"),
    "Theory": ("sec. 3.5",),
    "Results": ("main results", "sec. 4.2", "environments"),
    "Training curves": ("figure 3", "sec. 4.3"),
    "Ablations and efficiency": ("sec. 4.4", "efficiency table"),
    "State scores and case study": ("sec. 4.5", "case study"),
    "Sensitivity, compute, limitations": ("sensitivity", "compute", "limitations", "impact"),
}
"""Parts of the paper, by what their claims' ``where`` begins with."""

ELSEWHERE = "Elsewhere"

PAPER_PART = "The paper's method"
OWN_PART = "Variants of ours in its place"
"""Presets that replace parts of the method: nothing that they do is a verdict on the paper."""


def format_number(rule: str, value: float) -> str:
    """Return a measured or printed number in the unit of its rule; "" for NaN.

    Args:
        rule: label of the rule. ``RATIOS`` end in a multiplication sign, ``UNITLESS`` ones have no unit, all others are
            differences in points and have a sign.
        value: the number.
    """
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞"
    if rule in RATIOS:
        return f"{value:.2f}×"
    if rule in UNITLESS:
        return f"{value:.3g}"
    return f"{value:+.1f}"


def format_interval(rule: str, low: float, high: float) -> str:
    """Return ``low to high`` in the unit of the rule; "" where there is no interval."""
    return "" if math.isnan(low) else f"{format_number(rule, low)} to {format_number(rule, high)}"


def claims_page(table: pd.DataFrame) -> dict[str, Any]:
    """Return what the report shows of the table ``claims``.

    Returns:
        ``tally``: sentences. ``own``: how many claims we have read into figures and formulas. ``parts``: the comparisons
        with the paper's method (``literal``, ``calibrated``), and in a part of their own those with presets of ours in its
        place. Each has a ``title``, its ``presets``, and ``sections`` of the paper with ``rows``, one for each comparison:
        its place, a cell for each preset, and the ``claims`` that it answers. Claims that hold by text or algebra,
        ``identities``, and others that are ``settled`` without a run, by section; rows of those that are ``open``, or
        ``absent`` from the study.
    """
    is_settled = table["rule"].isin(SETTLED)
    is_identity = table["rule"] == IDENTITY
    # What is left has been decided by this study's numbers.
    compared = table[~table["verdict"].isin(["open", "not here"]) & ~is_settled]
    is_papers = compared["method_of_paper"].astype(bool)
    # A claim that other settings decide is not absent.
    is_absent = (table["verdict"] == "not here") & ~table["claim"].isin(compared[is_papers]["claim"])

    parts = []
    for title, part in ((PAPER_PART, compared[is_papers]), (OWN_PART, compared[~is_papers])):
        if len(part):
            presets = [name for name in part["preset"].unique() if name]
            sections = _group_by_section(_rows_by_comparison(part))
            parts.append({"title": title, "presets": presets, "sections": sections})
    return {
        "tally": tally_claims(table).describe(),
        "own": table.loc[table["claim"].str.startswith(OWN_PREFIX), "claim"].nunique(),
        "parts": parts,
        "identities": _group_by_section(table[is_identity].to_dict("records")),
        "settled": _group_by_section(table[is_settled & ~is_identity].to_dict("records")),
        "open": table[table["verdict"] == "open"].to_dict("records"),
        "absent": table[is_absent].to_dict("records"),
    }


def claim_lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield the tally, then two lines for every verdict, for the terminal."""
    yield from tally_claims(table).describe()
    is_papers = table["method_of_paper"].astype(bool)
    yield from _verdict_lines(table[is_papers])
    if not is_papers.all():
        yield f"{OWN_PART} (these are no verdicts on the paper):"
        yield from _verdict_lines(table[~is_papers])


def _verdict_lines(table: pd.DataFrame) -> Iterator[str]:
    for row in table.to_dict("records"):
        parts = (_describe_setting(row), preset_label(row["preset"]))
        setting = ", ".join(filter(None, parts))
        measured = format_number(row["rule"], row["measured"])
        interval = format_interval(row["rule"], row["low"], row["high"])
        if interval:
            measured = f"{measured} ({interval})"
        statement = join_details(row["text"], setting, measured)
        yield f"{row['verdict']:<11} {row['claim']}: {statement}"

        needed = ""
        if row["seeds_needed"] > 0:
            needed = f"{row['seeds_needed']:.0f} seeds would decide it"
        yield f"{'':<12}{join_details(row['detail'], needed)}"


def preset_label(preset: str) -> str:
    """Return the name that a reader sees of a preset of 3SPO."""
    return label(f"threespo-{preset}") if preset else ""


def paper_section(where: str) -> str:
    """Return the part of the paper that makes a claim: the first that its ``where`` names."""
    for title, starts in SECTIONS.items():
        if where.startswith(starts):
            return title
    return ELSEWHERE


def _group_by_section(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows by the part of the paper that makes their claim, in the paper's order."""
    sections: dict[str, list[Row]] = {title: [] for title in (*SECTIONS, ELSEWHERE)}
    for row in rows:
        sections[paper_section(row["where"])].append(row)
    return [{"title": title, "rows": found} for title, found in sections.items() if found]


def _rows_by_comparison(table: pd.DataFrame) -> list[Row]:
    """Return a row for each comparison, with a cell for every preset (``""`` where it is not about 3SPO).

    Several claims come down to one comparison where the study lacks the methods in which they differ: they share a row,
    which is that of the first of them.
    """
    # By what a reader sees, so that no two rows of the page look the same.
    rows: dict[Any, Row] = {}
    for row in _rows_by_claim(table):
        cells = row["cells"].items()
        numbers = [
            (preset, cell["measured"], cell["interval"], cell["verdict"]) for preset, cell in cells
        ]
        # What has no number differs by its words.
        details: list[str] = []
        if not all(cell["measured"] for _, cell in cells):
            details = [cell["detail"] for _, cell in cells]

        first = rows.setdefault((row["rule"], row["place"], *numbers, *details), row)
        known = {claim["id"] for claim in first["claims"]}
        first["claims"] += [claim for claim in row["claims"] if claim["id"] not in known]
    return list(rows.values())


def _rows_by_claim(table: pd.DataFrame) -> Iterator[Row]:
    """Yield a row for each claim and setting."""
    for _, group in table.groupby(["claim", "rule", "env", "policy", "split", "measure"], sort=False):
        first = group.iloc[0].to_dict()
        rule = first["rule"]
        claim = {
            "id": first["claim"],
            "text": first["text"],
            "where": first["where"],
            "printed": format_number(rule, first["printed"]),
            "paper": format_number(rule, first["paper"]),
        }
        yield {
            **{name: first[name] for name in ("rule", "where", "env", "policy")},
            "place": _describe_setting(first),
            "claims": [claim],
            "cells": {row["preset"]: _claim_cell(row) for row in group.to_dict("records")},
        }


def _claim_cell(row: dict[Any, Any]) -> dict[str, str]:
    return {
        "measured": format_number(row["rule"], row["measured"]),
        "interval": format_interval(row["rule"], row["low"], row["high"]),
        "verdict": row["verdict"],
        "detail": row["detail"],
        "seeds_needed": f"{row['seeds_needed']:.0f}" if row["seeds_needed"] > 0 else "",
    }


def _describe_setting(row: dict[Any, Any]) -> str:
    """Return environment, split, measure and policy, as far as the row has them; success is not named."""
    env = row["env"]
    # ``success`` and ``training`` are the usual measures; naming them would only lengthen every row.
    words = []
    if env:
        words.append(label(env))
    if row["split"]:
        words.append(label(row["split"], env or None))
    if row["measure"] not in ("", "success", "training"):
        words.append(label(row["measure"], env))
    if row["policy"]:
        words.append(row["policy"])
    return ", ".join(words)
