"""The paper's tables of results in its layout, with our numbers: main results, ablation, thresholds, α, efficiency."""

import math
from typing import Any, Literal

import pandas as pd

from threespo.results.labels import label, measures
from threespo.results.paper.reader_table import MISSING, Cell, Column, PaperTable, Row, text_cell
from threespo.tables import select_rows

HEADINGS = {
    "main_table": ("type", "method"),
    "ablation": ("method",),
    "thresholds": ("ξ", "ζ"),
    "alpha": ("α",),
}
"""Headings of the columns that name the paper's rows, to the left of ours."""

KINDS = {"prompting": "prompting", "rl_training": "RL training"}

MARK = "†"
"""After the names of rows with a note."""

SIDES: tuple[Literal["paper", "ours"], ...] = ("paper", "ours")

_KEY = ["paper_row", "base_model", "policy", "method"]


def main_table(cells: pd.DataFrame) -> PaperTable:
    """Return the table of main results from the table ``cells``."""
    return _success_table(cells, "main_table")


def ablation(cells: pd.DataFrame) -> PaperTable:
    """Return the table of ablations from the table ``cells``; differences from 3SPO are in brackets."""
    return _success_table(cells, "ablation")


def thresholds(cells: pd.DataFrame) -> PaperTable:
    """Return the table of ξ and ζ from the table ``cells``."""
    return _success_table(cells, "thresholds")


def alpha(cells: pd.DataFrame) -> PaperTable:
    """Return the table of α from the table ``cells``."""
    return _success_table(cells, "alpha")


def efficiency(cells: pd.DataFrame) -> PaperTable:
    """Return the table of efficiency from the table ``cells``: rollouts, different states, and states per 1,000 rollouts."""
    item_cells = select_rows(cells, item="efficiency")
    columns = [
        Column("method"),
        Column("ours"),
        Column("paper", "rollouts", ("rollouts_paper",), "paper", "number"),
        Column("ours: generations", "rollouts", ("generations_ours",), "ours", "number"),
        Column("paper", "different states", ("states_paper",), "paper", "number"),
        Column("ours", "different states", ("states_ours",), "ours", "number"),
        Column("paper", "states per 1,000", ("ratio_paper",), "paper", "number"),
        Column("ours", "states per 1,000", ("ratio_ours",), "ours", "number"),
    ]

    rows = []
    for group in _row_groups(item_cells):
        counts = group.set_index("column")
        link = _report_link(group.iloc[0])
        # In pairs, the paper's number before ours.
        numbers = []
        for column in ("rollouts", "unique_states"):
            numbers.append(_count_cell(float(counts.at[column, "paper"])))
            numbers.append(_count_cell(float(counts.at[column, "mean"]), link))
        for side, side_link in (("paper", ""), ("mean", link)):
            rollouts = float(counts.at["rollouts", side])
            states = float(counts.at["unique_states", side])
            # The paper prints no ratio: it is computed from its two counts.
            ratio = 1000 * states / rollouts
            numbers.append(Cell(_one_digit(ratio), (ratio,), side_link))
        name = text_cell(str(group["paper_name"].iloc[0]))
        rows.append(_row(group, [name], numbers))

    note = "Ours are means over training seeds; a rollout of the paper is of an unknown unit, ours is one generation."
    return PaperTable(tuple(columns), tuple(rows), _notes(item_cells, rows, [note]), "model")


def _success_table(cells: pd.DataFrame, item: str) -> PaperTable:
    """Return one of the tables of success: for each column of the paper its number and ours."""
    item_cells = select_rows(cells, item=item)
    with_difference = item == "ablation"

    columns = [*(Column(heading) for heading in HEADINGS[item]), Column("ours")]
    # The paper's columns, in its order.
    for cell in item_cells.drop_duplicates("column").to_dict("records"):
        columns += _success_columns(cell, with_difference)

    rows = []
    for group in _row_groups(item_cells):
        # The paper's name of a pair of thresholds is in two columns.
        paper_name = str(group["paper_name"].iloc[0])
        names = [text_cell(part) for part in paper_name.split("|")]
        if item == "main_table":
            names.insert(0, text_cell(KINDS[group["kind"].iloc[0]]))
        numbers = []
        for cell in group.to_dict("records"):
            numbers += [_paper_cell(cell, with_difference), _our_cell(cell, with_difference)]
        rows.append(_row(group, names, numbers))

    notes = _notes(item_cells, rows, _explain_numbers(item_cells, with_difference))
    return PaperTable(tuple(columns), tuple(rows), notes, "model")


def _success_columns(cell: dict[Any, Any], with_difference: bool) -> list[Column]:
    """Return the columns of the paper's and our numbers, below the setting that they were measured in."""
    env = cell["env"]
    heading = f"{label(env)}, {label(cell['split'], env)}"
    if len(measures(env)) > 1:
        heading += f": {label(cell['measure'], env)}"

    suffixes = ["", "_std"]
    if with_difference:
        suffixes.append("_difference")
    columns = []
    for side in SIDES:
        fields = tuple(f"{cell['column']}_{side}{suffix}" for suffix in suffixes)
        columns.append(Column(side, heading, fields, side, "number"))
    return columns


def _row_groups(item_cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the cells of each row, rows of one base model and policy together, in the paper's order."""
    # Several policies may stand for one base model, and each has a section of its own.
    models = list(dict.fromkeys(item_cells["base_model"]))
    pairs = list(dict.fromkeys(zip(item_cells["base_model"], item_cells["policy"], strict=True)))

    def position(group: pd.DataFrame) -> tuple[int, int]:
        first = group.iloc[0]
        model = first["base_model"]
        return models.index(model), pairs.index((model, first["policy"]))

    groups = [group for _, group in item_cells.groupby(_KEY, sort=False)]
    return sorted(groups, key=position)


def _row(group: pd.DataFrame, names: list[Cell], numbers: list[Cell]) -> Row:
    first = group.iloc[0]
    section = str(first["base_model"])
    if first["policy"]:
        section = f"{section}, ours: {first['policy']}"
    ours = label(first["method"]) if first["method"] else ""
    # The CSV file has the name without the mark.
    marked = ours + MARK if first["note"] else ours
    cells = (*names, text_cell(ours, marked), *numbers)
    return Row(cells, section, in_study=bool(first["method"]))


def _paper_cell(cell: dict[Any, Any], with_difference: bool) -> Cell:
    # ``g`` gives the digits that the paper prints.
    shown = _mean_and_std(
        f"{cell['paper']:g}", f"{cell['paper_std']:g}", cell["paper"], cell["paper_std"]
    )
    values = [cell["paper"], cell["paper_std"]]
    if with_difference:
        shown += _signed_difference(cell["paper_difference"])
        values.append(cell["paper_difference"])
    return Cell(shown, tuple(values))


def _our_cell(cell: dict[Any, Any], with_difference: bool) -> Cell:
    mean = cell["mean"]
    std = cell["std"]
    shown = _mean_and_std(_one_digit(mean), _one_digit(std), mean, std)
    values = [mean, std]
    if with_difference:
        shown += _signed_difference(cell["difference"])
        values.append(cell["difference"])
    # A dash has no place in the report that it comes from.
    link = _report_link(cell) if shown != MISSING else ""
    return Cell(shown, tuple(values), link)


def _mean_and_std(mean_text: str, std_text: str, mean: float, std: float) -> str:
    """Return ``mean ± std``, or what there is of it."""
    if math.isnan(mean):
        return MISSING
    return mean_text if math.isnan(std) else f"{mean_text} ± {std_text}"


def _signed_difference(difference: float) -> str:
    if math.isnan(difference):
        return ""
    # A hyphen is narrower than a plus sign: differences below each other would not line up.
    return f" ({difference:+.1f})".replace("-", "\N{MINUS SIGN}")


def _one_digit(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.1f}"


def _count_cell(count: float, link: str = "") -> Cell:
    if math.isnan(count):
        return Cell(MISSING, (count,))
    return Cell(f"{count:,.0f}", (count,), link)


def _report_link(cell: Any) -> str:
    """Return the place in the report that our number comes from; "" where the study lacks the row."""
    if not cell["method"]:
        return ""
    return "-".join(("main", cell["env"], cell["policy"], cell["method"]))


def _explain_numbers(item_cells: pd.DataFrame, with_difference: bool) -> list[str]:
    """Return what our numbers are, and what the mark means."""
    played = item_cells[item_cells["mean"].notna()]
    if played.empty:
        return []

    spread = "one training seed each"
    # Rows of a single seed have no standard deviation.
    seeds = played[played["std"].notna()]["seeds"]
    if len(seeds):
        fewest = int(seeds.min())
        most = int(seeds.max())
        number = str(most) if fewest == most else f"{fewest} to {most}"
        spread = f"± is the standard deviation over {number} training seeds"
    difference = ", in brackets the difference from 3SPO in points" if with_difference else ""

    # Notes are the same for many rows.
    notes = played[played["note"] != ""]["note"].unique()
    marked = [f"{MARK} {note}." for note in notes]
    return [f"Percent; ours: {spread}{difference}.", *marked]


def _notes(item_cells: pd.DataFrame, rows: list[Row], explanation: list[str]) -> tuple[str, ...]:
    """Return the lines below a table: what its numbers are, and which of the paper's rows the study lacks."""
    if not any(row.in_study for row in rows):
        remedy = "The studies mini and paper have them: snakemake --cores all --config study=mini"
        return (f"This study has no rows of this table. {remedy}",)

    # A row that the study lacks has a cell for each column.
    absent = select_rows(item_cells, method="").drop_duplicates(["paper_row", "base_model"])
    models_in_study = set(item_cells.loc[item_cells["method"] != "", "base_model"])
    lacking = []
    for model, group in absent.groupby("base_model", sort=False):
        names = "all rows"
        if model in models_in_study:
            # The file separates the two parts of some names by a bar.
            names = ", ".join(name.replace("|", ", ") for name in group["paper_name"])
        lacking.append(f"{model}: {names}")
    if not lacking:
        return tuple(explanation)
    return (*explanation, f"The paper's rows that this study does not run: {'; '.join(lacking)}.")
