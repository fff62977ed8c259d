"""How verdicts are shown: the same words in the report and in the terminal."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from threespo.results.figures import label

RATIOS = ("cost", "sooner")
PLAIN = ("course", "by_type", "formula")
"""Rules whose number is a ratio, or neither ratio nor difference in points."""

SETTLED = ("formula", "known")
"""Rules that no run decides."""


def number(rule: str, value: float) -> str:
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


def interval(rule: str, low: float, high: float) -> str:
    """Return ``low to high`` in the unit of the rule; "" where there is no interval."""
    return "" if math.isnan(low) else f"{number(rule, low)} to {number(rule, high)}"


def page(table: pd.DataFrame) -> dict[str, Any]:
    """Return what the report shows of the table ``claims``.

    Returns:
        ``compared``: a row for each claim and place, with a cell for each of the ``presets``; rows of the claims that are
        ``settled`` without a run, ``open``, or ``absent`` from the study; the ``total`` of claims, and ``counts`` of each.
    """
    claims = table.groupby("claim", sort=False)["verdict"].first()
    settled = table["rule"].isin(SETTLED)
    # What is left has been decided by this study's numbers.
    compared = table[~table["verdict"].isin(["open", "not here"]) & ~settled]

    return {
        "presets": [name for name in compared["preset"].unique() if name],
        "compared": list(_compared(compared)),
        "settled": table[settled].to_dict("records"),
        "open": table[table["verdict"] == "open"].to_dict("records"),
        "absent": table[table["verdict"] == "not here"].to_dict("records"),
        "total": len(claims),
        "counts": {
            "compared": compared["claim"].nunique(),
            "settled": int(settled.sum()),
            "open": int((claims == "open").sum()),
            "absent": int((claims == "not here").sum()),
        },
    }


def counted(table: pd.DataFrame) -> str:
    """Return one sentence with the number of the paper's claims by what was found of them."""
    by_claim = table.groupby("claim", sort=False)["verdict"].agg(set)
    counts = {verdict: sum(verdict in found for found in by_claim) for verdict in dict.fromkeys(table["verdict"])}
    found = ", ".join(f"{verdict} {count}" for verdict, count in counts.items())
    return f"the paper's {len(by_claim)} claims, by verdict (a claim may have several, by setting): {found}"


def lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence that sums up, then a line for every verdict, for the terminal."""
    yield counted(table)
    for row in table.to_dict("records"):
        place = ", ".join(filter(None, (_place(row), preset_label(row["preset"]))))
        found = " ".join(filter(None, (number(row["rule"], row["measured"]), _in_brackets(row))))
        yield f"{row['verdict']:<9} {row['claim']}: {row['text']}" + "".join(f"; {part}" for part in (place, found) if part)
        if row["detail"]:
            yield f"{'':<10}{row['detail']}"


def preset_label(preset: str) -> str:
    """Return the name that a reader sees of a preset of 3SPO."""
    return label(f"threespo-{preset}") if preset else ""


def _compared(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each claim and place, with a cell for every preset (``""`` where it is not about 3SPO)."""
    for _, group in table.groupby(["claim", "env", "policy", "split", "measure"], sort=False):
        first = group.iloc[0].to_dict()
        cells = {
            row["preset"]: {
                "measured": number(row["rule"], row["measured"]),
                "interval": interval(row["rule"], row["low"], row["high"]),
                "verdict": row["verdict"],
                "detail": row["detail"],
            }
            for row in group.to_dict("records")
        }
        yield {
            "text": first["text"],
            "where": first["where"],
            "place": _place(first),
            "printed": number(first["rule"], first["printed"]),
            "paper": number(first["rule"], first["paper"]),
            "cells": cells,
        }


def _place(row: dict[Any, Any]) -> str:
    """Return environment, split, measure and policy, as far as the row has them; success goes without saying."""
    env = row["env"] or None
    words = [label(env) if env else "", label(row["split"], env) if row["split"] else "", row["policy"]]
    measure = "" if row["measure"] in ("", "success", "training") else label(row["measure"], env)
    return ", ".join(filter(None, (*words[:2], measure, words[2])))


def _in_brackets(row: dict[Any, Any]) -> str:
    words = interval(row["rule"], row["low"], row["high"])
    return f"({words})" if words else ""
