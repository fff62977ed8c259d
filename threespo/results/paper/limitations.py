"""The limitations that the paper names, and what a study says of each."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
    """What the paper says, in our words."""
    claim: str
    """The claim of ``claims.yaml`` that judges it."""
    measured: str
    """What this study measures of it: a name in ``MEASURED``."""


def read_limitations(folder: Path = PAPER_FOLDER) -> list[Limitation]:
    """Return the paper's limitations.

    Raises:
        InputError: if ``limitations.yaml`` is missing, or names a measurement that there is not.
    """
    path = folder / FILE
    values = read_yaml(read_text(path, "Restore it from the repository."), str(path))
    try:
        limitations = TypeAdapter(list[Limitation]).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}, {where}: {first['msg']}; restore it from the repository") from error

    for limitation in limitations:
        if limitation.measured not in MEASURED:
            raise InputError(
                f"{path}, {limitation.name!r}: measured is {limitation.measured!r}, "
                f"expected one of: {', '.join(MEASURED)}"
            )
    return limitations


def limitations_table(
    claims: pd.DataFrame, metrics: pd.DataFrame, paper: list[Limitation]
) -> PaperTable:
    """Return the limitations with the verdict on each and what the study's training runs show."""
    # The first row of a claim decides; further ones are those of variants.
    verdicts = {}
    for row in claims.drop_duplicates("claim").to_dict("records"):
        verdicts[row["claim"]] = f"{row['verdict']}: {row['detail']}"

    rows = []
    for limitation in paper:
        verdict = verdicts.get(limitation.claim, "not judged")
        measurement = MEASURED[limitation.measured]
        # Methods and versions differ in what they record.
        measured = "not recorded by the study's runs"
        if measurement.columns <= set(metrics.columns):
            measured = "; ".join(measurement.describe(metrics))
        texts = (limitation.name, limitation.says, verdict, measured)
        cells = tuple(text_cell(text) for text in texts)
        rows.append(Row(cells))

    headings = ("the paper", "is it one?", "in this study")
    long_columns = [Column(heading, kind="long") for heading in headings]
    return PaperTable((Column("limitation"), *long_columns), tuple(rows))


def _describe_revisits(metrics: pd.DataFrame) -> Iterator[str]:
    """Yield how often a visited state had been met before in its run."""
    for setting, runs in _runs_by_setting(metrics):
        # ``detail_state_met`` is a running total, ``detail_state_visits`` is counted again in each epoch.
        by_run = runs.groupby(["method", "training_seed"])
        met = by_run["detail_state_met"].last().groupby("method").sum()
        visits = by_run["detail_state_visits"].sum().groupby("method").sum()
        # A state is new once, on a visit or as the result of an action; so at least this share of visits is to old ones.
        revisits = 100.0 * (1.0 - met / visits)
        yield f"{setting}: at least {_range_over_methods(revisits)} of the visits were to a state already met in the run"


def _describe_inadmissible(metrics: pd.DataFrame) -> Iterator[str]:
    """Yield how often a response named no admissible action."""
    for setting, runs in _runs_by_setting(metrics):
        # Steps are a running total, the rate is that of an epoch.
        steps = runs.groupby(["method", "training_seed"])["env_steps"].diff().fillna(runs["env_steps"])
        # The share over all responses, not the mean of the epochs' rates: epochs differ in length.
        inadmissible = (runs["inadmissible_rate"] * steps).groupby(runs["method"]).sum()
        responses = steps.groupby(runs["method"]).sum()
        shares = 100.0 * inadmissible / responses
        yield f"{setting}: {_range_over_methods(shares)} of the responses in training named no admissible action"


def _runs_by_setting(metrics: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (env, policy), runs in metrics.groupby(["env", "policy"], sort=False):
        yield f"{label(str(env))}, {policy}", runs


def _range_over_methods(percent: "pd.Series[float]") -> str:
    lowest = str(percent.idxmin())
    highest = str(percent.idxmax())
    least = f"{percent[lowest]:.1f} %"
    most = f"{percent[highest]:.1f} %"
    # Texts are compared: shares that differ only in digits that are not shown are one number to a reader.
    if least == most:
        return least
    return f"{least} ({label(lowest)}) to {most} ({label(highest)})"


class Measurement(NamedTuple):
    """What a study's runs show of a limitation."""

    columns: set[str]
    """Columns of ``metrics`` that it needs."""
    describe: Callable[[pd.DataFrame], Iterator[str]]
    """Yields a sentence for each environment and policy."""


MEASURED: Mapping[str, Measurement] = {
    "revisits": Measurement({"detail_state_met", "detail_state_visits"}, _describe_revisits),
    "admissible": Measurement({"env_steps", "inadmissible_rate"}, _describe_inadmissible),
}
