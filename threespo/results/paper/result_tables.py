"""The paper's tables of results in its layout, ours beside it: main results, ablation, thresholds, α, efficiency."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from threespo.results.labels import label, measures
from threespo.results.paper.reader_table import MISSING, Cell, Column, PaperTable, Row, text_cell

HEADS = {
    "main_table": ("type", "method"),
    "ablation": ("method",),
    "thresholds": ("ξ", "ζ"),
    "alpha": ("α",),
}
"""What the paper's rows are called by, in front of ours."""

KINDS = {"prompting": "prompting", "rl_training": "RL training"}

MARK = "†"

_SIDES = ("paper", "ours")

_KEY = ["paper_row", "base_model", "policy", "method"]


def main_table(cells: pd.DataFrame) -> PaperTable:
    """Return the table of main results from the table ``cells``."""
    return _successes(cells, "main_table")


def ablation(cells: pd.DataFrame) -> PaperTable:
    """Return the table of ablations from the table ``cells``; differences from 3SPO stand in brackets."""
    return _successes(cells, "ablation")


def thresholds(cells: pd.DataFrame) -> PaperTable:
    """Return the table of ξ and ζ from the table ``cells``."""
    return _successes(cells, "thresholds")


def alpha(cells: pd.DataFrame) -> PaperTable:
    """Return the table of α from the table ``cells``."""
    return _successes(cells, "alpha")


def efficiency(cells: pd.DataFrame) -> PaperTable:
    """Return the table of efficiency from the table ``cells``: rollouts, different states, and states per 1,000 rollouts."""
    here = cells[cells["item"] == "efficiency"]
    columns = (
        *(Column("method"), Column("ours")),
        *_pair("rollouts", ("paper", "ours: generations"), ("rollouts_paper",), ("generations_ours",)),
        *_pair("different states", ("paper", "ours"), ("states_paper",), ("states_ours",)),
        *_pair("states per 1,000", ("paper", "ours"), ("ratio_paper",), ("ratio_ours",)),
    )
    rows = []
    for group in _rows(here):
        of = group.set_index("column")
        link, numbers = _link(group.iloc[0]), list[Cell]()
        for side in ("paper", "mean"):
            counts = [float(of.at[name, side]) for name in ("rollouts", "unique_states")]
            ratio = 1000 * counts[1] / counts[0]
            numbers += [_count(value, link if side == "mean" else "") for value in counts]
            numbers.append(Cell(_fixed(ratio), (ratio,), link if side == "mean" else ""))
        rows.append(
            _row(
                group,
                (text_cell(str(group["paper_name"].iloc[0])),),
                [numbers[place] for place in (0, 3, 1, 4, 2, 5)],
            )
        )
    note = "Ours are means over training seeds; a rollout of the paper is of an unknown unit, ours is one generation."
    return PaperTable(columns, tuple(rows), _notes(here, rows, [note]), "model")


def _successes(cells: pd.DataFrame, item: str) -> PaperTable:
    here = cells[cells["item"] == item]
    rows, columns = [], [*(Column(head) for head in HEADS[item]), Column("ours")]
    differs = item == "ablation"
    for name, place in (
        here.drop_duplicates("column").set_index("column")[["env", "split", "measure"]].iterrows()
    ):
        heading = f"{label(place['env'])}, {label(place['split'], place['env'])}"
        heading += (
            f": {label(place['measure'], place['env'])}" if len(measures(place["env"])) > 1 else ""
        )
        parts = ("", "_std", *(("_difference",) if differs else ()))
        columns += _pair(
            heading, _SIDES, *([f"{name}_{side}{part}" for part in parts] for side in _SIDES)
        )

    for group in _rows(here):
        names = [text_cell(part) for part in str(group["paper_name"].iloc[0]).split("|")]
        kind = [text_cell(KINDS[group["kind"].iloc[0]])] if item == "main_table" else []
        numbers = [
            cell
            for one in group.to_dict("records")
            for cell in (_paper(one, differs), _ours(one, differs))
        ]
        rows.append(_row(group, (*kind, *names), numbers))
    return PaperTable(
        tuple(columns), tuple(rows), _notes(here, rows, _explained(here, differs)), "model"
    )


def _pair(group: str, names: tuple[str, str], *fields: Any) -> list[Column]:
    """Return the columns of the paper's and our numbers of one thing."""
    paper, ours = zip(names, fields, strict=True)
    return [
        Column(paper[0], group, tuple(paper[1]), "paper", "number"),
        Column(ours[0], group, tuple(ours[1]), "ours", "number"),
    ]


def _rows(here: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the cells of each row, rows of one base model and policy together, in the paper's order."""
    order = {
        key: place
        for place, key in enumerate(dict.fromkeys(zip(here["base_model"], here["policy"], strict=True)))
    }
    models = {name: place for place, name in enumerate(dict.fromkeys(here["base_model"]))}
    groups = [group for _, group in here.groupby(_KEY, sort=False)]

    def place(group: pd.DataFrame) -> tuple[int, int]:
        first = group.iloc[0]
        return models[first["base_model"]], order[first["base_model"], first["policy"]]

    yield from sorted(groups, key=place)


def _row(group: pd.DataFrame, names: tuple[Cell, ...], numbers: list[Cell]) -> Row:
    first = group.iloc[0]
    section = (
        f"{first['base_model']}, ours: {first['policy']}"
        if first["policy"]
        else str(first["base_model"])
    )
    ours = label(first["method"]) if first["method"] else ""
    marked = ours + MARK * bool(first["note"])
    return Row((*names, text_cell(ours, marked), *numbers), section, in_study=bool(first["method"]))


def _paper(cell: dict[Any, Any], differs: bool) -> Cell:
    values = [cell["paper"], cell["paper_std"]]
    return _spread(f"{values[0]:g}", f"{values[1]:g}", values, cell["paper_difference"], differs)


def _ours(cell: dict[Any, Any], differs: bool) -> Cell:
    shown = _fixed(cell["mean"]), _fixed(cell["std"])
    return _spread(*shown, [cell["mean"], cell["std"]], cell["difference"], differs, _link(cell))


def _spread(
    mean: str, std: str, values: list[float], difference: float, differs: bool, link: str = ""
) -> Cell:
    """Return ``mean ± std (difference)``, or what there is of it."""
    shown = MISSING if math.isnan(values[0]) else mean if math.isnan(values[1]) else f"{mean} ± {std}"
    if differs and not math.isnan(difference):
        shown += f" ({difference:+.1f})".replace("-", "\N{MINUS SIGN}")
    return Cell(shown, (*values, *([difference] if differs else [])), link if shown != MISSING else "")


def _fixed(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.1f}"


def _count(value: float, link: str) -> Cell:
    return Cell(
        MISSING if math.isnan(value) else f"{value:,.0f}",
        (value,),
        link if not math.isnan(value) else "",
    )


def _link(cell: Any) -> str:
    """Return the place in the report that our number comes from."""
    return "-".join(("main", cell["env"], cell["policy"], cell["method"])) if cell["method"] else ""


def _explained(here: pd.DataFrame, differs: bool) -> list[str]:
    """Return what our numbers are."""
    played = here[here["mean"].notna()]
    if played.empty:
        return []
    seeds = played[played["std"].notna()]["seeds"]
    several = (
        f"± is the standard deviation over {_range(seeds)} training seeds"
        if len(seeds)
        else "one training seed each"
    )
    lines = [
        f"Percent; ours: {several}{', in brackets the difference from 3SPO in points' if differs else ''}."
    ]
    notes = played[played["note"] != ""]["note"].unique()
    return [*lines, *(f"{MARK} {note}." for note in notes)]


def _range(values: "pd.Series[int]") -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"


def _notes(here: pd.DataFrame, rows: list[Row], explained: list[str]) -> tuple[str, ...]:
    """Return the lines below a table: what its numbers are, and which of the paper's rows the study lacks."""
    absent = here[here["method"] == ""].drop_duplicates(["paper_row", "base_model"])
    if not any(row.in_study for row in rows):
        return (
            "This study has no rows of this table. The studies mini and paper have them: snakemake --cores all --config "
            "study=mini",
        )
    lines = []
    for model, group in absent.groupby("base_model", sort=False):
        whole = not (here[here["base_model"] == model]["method"] != "").any()
        names = (
            "all rows" if whole else ", ".join(name.replace("|", ", ") for name in group["paper_name"])
        )
        lines.append(f"{model}: {names}")
    return (
        *explained,
        *([f"The paper's rows that this study does not run: {'; '.join(lines)}."] if lines else []),
    )
