"""Tables as CSV files, which people open in spreadsheets."""

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""What spreadsheets begin formulas with; wide letters are the same to some of them."""

_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")
"""Unicode categories of blanks, line breaks, marks of byte order and the like, which spreadsheets may pass over."""


def csv_text(frame: "pd.DataFrame") -> str:
    """Return a table as CSV, numbers to six digits, without any text that a spreadsheet takes for a formula.

    Products, models and authors of studies have written the texts, and names of columns may be theirs, too.
    """
    named = frame.rename(columns=_harmless)
    return str(named.map(_harmless).to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def _harmless(value: object) -> object:
    """Return a cell, with a quotation mark before a text that may be taken for a formula."""
    if not isinstance(value, str):
        return value
    seen = next((letter for letter in value if unicodedata.category(letter) not in _UNSEEN), "")
    return f"'{value}" if seen in _FORMULAS or value.startswith(("\t", "\r", "\n")) else value
