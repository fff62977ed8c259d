"""The training runs that a rule compares, by rows of the paper."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from threespo.results.claims.finding import Cell

if TYPE_CHECKING:
    from threespo.study.config import Study

Run: TypeAlias = pd.DataFrame
"""Rows of one training seed, in the order of time."""

Runs = dict[str, list[Run]]
"""Row of the paper -> its training seeds."""


@dataclass(frozen=True, slots=True)
class Arms:
    """Rows of the paper at one place."""

    study: "Study"
    place: Cell
    rows: tuple[str, ...]

    @property
    def methods(self) -> dict[str, str]:
        """The study's method for each row that it has."""
        return {row: name for row in self.rows if (name := self.place.find_method(self.study, row))}

    @property
    def missing(self) -> list[str]:
        """Rows that the study does not run there."""
        return [row for row in self.rows if row not in self.methods]

    def of(self, frame: pd.DataFrame, order: str = "epoch") -> Runs:
        """Return the runs of each row in a table; rows without any are left out.

        Args:
            frame: a table with columns ``env``, ``policy``, ``method`` and ``training_seed``.
            order: the column that a run's rows are sorted by.
        """
        if frame.empty:
            return {}
        here = frame[(frame["env"] == self.place.env) & (frame["policy"] == self.place.policy)]
        runs = {
            row: [
                run.sort_values(order, kind="stable")
                for _, run in here[here["method"] == name].groupby("training_seed")
            ]
            for row, name in self.methods.items()
        }
        return {row: found for row, found in runs.items() if found}
