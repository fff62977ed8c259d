"""The limitations that the paper names, and what a study says of each."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from pydantic import Field, TypeAdapter, ValidationError

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.results.labels import label
from threespo.results.paper.reader_table import Column, PaperTable, Row, text_cell
from threespo.settings import Settings
from threespo.study.reading import read_text, read_yaml

FILE = "limitations.yaml"
"""The paper's limitations, in ``config/paper``."""


class Limitation(Settings):
    """What the authors say that their method lacks."""

    name: str = Field(min_length=1)
    says: str = Field(min_length=1)
    """In our words."""
    claim: str
    """The claim of ``claims.yaml`` that it is."""
    measured: str
    """What is set beside it: a name in ``MEASURED``."""


def read_limitations(folder: Path = PAPER_FOLDER) -> list[Limitation]:
    """Return the paper's limitations.

    Raises:
        InputError: if ``limitations.yaml`` is missing, or names a measurement that there is not.
    """
    path = folder / FILE
    try:
        values = read_yaml(read_text(path, "Restore it from the repository."), str(path))
        found = TypeAdapter(list[Limitation]).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}, {where}: {first['msg']}; restore it from the repository") from error
    for one in found:
        if one.measured not in MEASURED:
            raise InputError(
                f"{path}, {one.name!r}: measured is {one.measured!r}, expected one of: {', '.join(MEASURED)}"
            )
    return found


def limitations_table(
    claims: pd.DataFrame, metrics: pd.DataFrame, paper: list[Limitation]
) -> PaperTable:
    """Return the limitations with the verdict on each and what the study's training runs show.

    Args:
        claims: the table ``claims``.
        metrics: the table ``metrics``.
        paper: as ``read_limitations`` returns them.
    """
    columns = (
        Column("limitation"),
        *(Column(name, kind="long") for name in ("the paper", "is it one?", "in this study")),
    )
    decided = claims.drop_duplicates("claim").set_index("claim")
    found = {str(name): f"{row['verdict']}: {row['detail']}" for name, row in decided.iterrows()}
    rows = []
    for one in paper:
        columns_of, describe = MEASURED[one.measured]
        recorded = columns_of <= set(metrics.columns)
        measured = "; ".join(describe(metrics)) if recorded else "not recorded by the study's runs"
        rows.append(
            Row(
                (
                    text_cell(one.name),
                    text_cell(one.says),
                    text_cell(found.get(one.claim, "not judged")),
                    text_cell(measured),
                )
            )
        )
    return PaperTable(columns, tuple(rows))


def _revisits(metrics: pd.DataFrame) -> Iterator[str]:
    """Yield how often a visited state had been met before in its run."""
    for place, runs in _by_place(metrics):
        ends = runs.groupby(["method", "training_seed"])["detail_state_met"].last()
        visits = runs.groupby(["method", "training_seed"])["detail_state_visits"].sum()
        # A state is met once, on a visit or as what an action led to; all other visits are repetitions.
        again = 100.0 * (1.0 - ends.groupby("method").sum() / visits.groupby("method").sum())
        yield f"{place}: at least {_range(again)} of the visits were to a state already met in the run"


def _inadmissible(metrics: pd.DataFrame) -> Iterator[str]:
    """Yield how often a response named no admissible action."""
    for place, runs in _by_place(metrics):
        steps = runs.groupby(["method", "training_seed"])["env_steps"].diff().fillna(runs["env_steps"])
        wrong = (runs["inadmissible_rate"] * steps).groupby(runs["method"]).sum()
        share = 100.0 * wrong / steps.groupby(runs["method"]).sum()
        yield f"{place}: {_range(share)} of the responses in training named no admissible action"


def _by_place(metrics: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (env, policy), runs in metrics.groupby(["env", "policy"], sort=False):
        yield f"{label(str(env))}, {policy}", runs


def _range(shares: "pd.Series[float]") -> str:
    least, most = shares.idxmin(), shares.idxmax()
    if f"{shares[least]:.1f}" == f"{shares[most]:.1f}":
        return f"{shares[least]:.1f} %"
    return f"{shares[least]:.1f} % ({label(str(least))}) to {shares[most]:.1f} % ({label(str(most))})"


MEASURED: Mapping[str, tuple[set[str], Callable[[pd.DataFrame], Iterator[str]]]] = {
    "revisits": ({"detail_state_met", "detail_state_visits"}, _revisits),
    "admissible": ({"env_steps", "inadmissible_rate"}, _inadmissible),
}
"""What a study's runs say of a limitation, environment by environment, and the columns of ``metrics`` that it takes."""
