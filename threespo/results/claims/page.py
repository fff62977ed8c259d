"""How verdicts are shown: the same words in the report and in the terminal."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from threespo.results.labels import label

OWN = "own-"
"""What ids of claims begin with that we have read into a figure or a formula; the paper has no such sentence."""

RATIOS = ("states", "resource", "rollouts", "sooner")
PLAIN = ("course", "by_type", "formula", "priority", "fewer", "longer", "level")
"""Rules whose number is a ratio, or neither ratio nor difference in points."""

SETTLED = ("formula", "known")
"""Rules that no run decides."""

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

PAPERS = "The paper's method"
OURS = "Variants of ours in its place"
"""Presets that replace parts of the method: nothing that they do is a verdict on the paper."""


def format_number(rule: str, value: float) -> str:
    """Return a measured or printed number in the unit of its rule; "" for NaN.

    Args:
        rule: kind of the rule. ``RATIOS`` end in a multiplication sign, ``PLAIN`` ones have no unit, all others are
            differences in points and have a sign.
        value: the number.
    """
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞"
    return f"{value:.2f}×" if rule in RATIOS else f"{value:.3g}" if rule in PLAIN else f"{value:+.1f}"


def format_interval(rule: str, low: float, high: float) -> str:
    """Return ``low to high`` in the unit of the rule; "" where there is no interval."""
    return "" if math.isnan(low) else f"{format_number(rule, low)} to {format_number(rule, high)}"


def claims_page(table: pd.DataFrame) -> dict[str, Any]:
    """Return what the report shows of the table ``claims``.

    Returns:
        ``parts``: the comparisons with the paper's method (``literal``, ``calibrated``), and in a part of their own those
        with presets of ours in its place. Each has a ``title``, its ``presets``, and ``sections`` of the paper with
        ``rows``, one for each comparison: its place, a cell for each preset, and the ``claims`` that it answers. Claims that
        are ``settled`` without a run by section; rows of those that are ``open``, or ``absent`` from the study; the
        ``total`` of claims, and ``counts`` of each.
    """
    settled = table["rule"].isin(SETTLED)
    # What is left has been decided by this study's numbers.
    compared = table[~table["verdict"].isin(["open", "not here"]) & ~settled]
    own = compared["method_of_paper"].astype(bool)
    absent = table[(table["verdict"] == "not here") & ~table["claim"].isin(compared[own]["claim"])]

    parts = [
        {
            "title": title,
            "presets": [name for name in part["preset"].unique() if name],
            "sections": _by_section(_compared(part)),
        }
        for title, part in ((PAPERS, compared[own]), (OURS, compared[~own]))
        if len(part)
    ]
    left = table[table["verdict"] == "open"]
    groups = {"settled": table[settled], "compared": compared[own], "absent": absent, "open": left}
    return {
        "parts": parts,
        "settled": _by_section(table[settled].to_dict("records")),
        **{name: groups[name].to_dict("records") for name in ("open", "absent")},
        "total": int(table["claim"].nunique()),
        "own": int(table.loc[table["claim"].str.startswith(OWN), "claim"].nunique()),
        "counts": {name: int(group["claim"].nunique()) for name, group in groups.items()},
    }


def counted(table: pd.DataFrame) -> str:
    """Return one sentence with the number of the paper's claims by what was found of them, with the paper's method."""
    of_paper = table["method_of_paper"].astype(bool) & ~table["claim"].str.startswith(OWN)
    by_claim = table[of_paper].groupby("claim", sort=False)["verdict"].agg(set)
    counts = {
        verdict: sum(verdict in found for found in by_claim)
        for verdict in dict.fromkeys(table["verdict"])
    }
    found = ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
    return (
        f"the paper's {len(by_claim)} claims, by verdict (a claim may have several, by setting): {found}"
    )


def claim_lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence that sums up, then a line for every verdict, for the terminal."""
    yield counted(table)
    own = table["method_of_paper"].astype(bool)
    yield from _lines(table[own])
    if not own.all():
        yield f"{OURS} (these are no verdicts on the paper):"
        yield from _lines(table[~own])


def _lines(table: pd.DataFrame) -> Iterator[str]:
    for row in table.to_dict("records"):
        place = ", ".join(filter(None, (_place(row), preset_label(row["preset"]))))
        found = " ".join(filter(None, (format_number(row["rule"], row["measured"]), _in_brackets(row))))
        yield f"{row['verdict']:<11} {row['claim']}: {row['text']}" + "".join(
            f"; {part}" for part in (place, found) if part
        )
        needed = f"{row['seeds_needed']:.0f} seeds would decide it" if row["seeds_needed"] > 0 else ""
        yield f"{'':<12}{'; '.join(filter(None, (row['detail'], needed)))}"


def preset_label(preset: str) -> str:
    """Return the name that a reader sees of a preset of 3SPO."""
    return label(f"threespo-{preset}") if preset else ""


def paper_section(where: str) -> str:
    """Return the part of the paper that a claim stands in: the first that its ``where`` names."""
    return next((title for title, starts in SECTIONS.items() if where.startswith(starts)), ELSEWHERE)


def _by_section(rows: Iterable[dict[Any, Any]]) -> list[dict[str, Any]]:
    """Return rows by the part of the paper that they stand in, in the paper's order."""
    found: dict[str, list[dict[Any, Any]]] = {title: [] for title in (*SECTIONS, ELSEWHERE)}
    for row in rows:
        found[paper_section(row["where"])].append(row)
    return [{"title": title, "rows": rows} for title, rows in found.items() if rows]


def _compared(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each comparison, with a cell for every preset (``""`` where it is not about 3SPO).

    Several claims come down to one comparison where the study lacks the methods in which they differ: they share a row,
    which stands with the first of them.
    """
    rows: dict[Any, dict[str, Any]] = {}
    for row in _each_claim(table):
        cells = row["cells"].items()
        numbers = tuple(
            (preset, *(cell[name] for name in ("measured", "interval", "verdict")))
            for preset, cell in cells
        )
        # What has no number is told apart by its words.
        words = (
            ()
            if all(measured for _, measured, *_ in numbers)
            else tuple(cell["detail"] for _, cell in cells)
        )
        first = rows.setdefault((row["rule"], row["place"], numbers, words), row)
        known = {claim["id"] for claim in first["claims"]}
        first["claims"] += [claim for claim in row["claims"] if claim["id"] not in known]
    return list(rows.values())


def _each_claim(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each claim and place."""
    for _, group in table.groupby(["claim", "rule", "env", "policy", "split", "measure"], sort=False):
        first = group.iloc[0].to_dict()
        cells = {
            row["preset"]: {
                "measured": format_number(row["rule"], row["measured"]),
                "interval": format_interval(row["rule"], row["low"], row["high"]),
                "verdict": row["verdict"],
                "detail": row["detail"],
                "seeds_needed": f"{row['seeds_needed']:.0f}" if row["seeds_needed"] > 0 else "",
            }
            for row in group.to_dict("records")
        }
        claim = {
            "id": first["claim"],
            "text": first["text"],
            "where": first["where"],
            "printed": format_number(first["rule"], first["printed"]),
            "paper": format_number(first["rule"], first["paper"]),
        }
        place = {
            "rule": first["rule"],
            "where": first["where"],
            "env": first["env"],
            "policy": first["policy"],
        }
        yield {**place, "place": _place(first), "claims": [claim], "cells": cells}


def _place(row: dict[Any, Any]) -> str:
    """Return environment, split, measure and policy, as far as the row has them; success goes without saying."""
    env = row["env"] or None
    words = [label(env) if env else "", label(row["split"], env) if row["split"] else "", row["policy"]]
    measure = "" if row["measure"] in ("", "success", "training") else label(row["measure"], env or "")
    return ", ".join(filter(None, (*words[:2], measure, words[2])))


def _in_brackets(row: dict[Any, Any]) -> str:
    words = format_interval(row["rule"], row["low"], row["high"])
    return f"({words})" if words else ""
