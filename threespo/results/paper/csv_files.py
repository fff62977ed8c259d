"""Tables as CSV files, which people open in spreadsheets."""

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""What spreadsheets begin formulas with; wide letters are the same to some of them."""

_SKIPPED_CATEGORIES = ("Cc", "Cf", "Zs", "Zl", "Zp")
"""Unicode categories of blanks, line breaks, marks of byte order and the like, which spreadsheets may pass over."""


def csv_text(frame: "pd.DataFrame") -> str:
    """Return a table as CSV, numbers to six digits, without any text that a spreadsheet takes for a formula.

    Products, models and authors of studies have written the texts, and names of columns may be theirs, too.
    """
    escaped = frame.rename(columns=_escape_formula).map(_escape_formula)
    return str(escaped.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def _escape_formula(value: object) -> object:
    """Return a cell, with a quotation mark before a text that may be taken for a formula."""
    if not isinstance(value, str):
        return value
    visible = [letter for letter in value if unicodedata.category(letter) not in _SKIPPED_CATEGORIES]
    is_formula = bool(visible) and visible[0] in _FORMULA_SIGNS
    # Some spreadsheets begin a new cell after such a blank, so that what follows may be a formula there.
    begins_cell = value.startswith(("\t", "\r", "\n"))
    return f"'{value}" if is_formula or begins_cell else value
