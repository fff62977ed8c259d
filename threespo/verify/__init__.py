"""Replays of reference files: ``threespo verify KIND FILE`` says whether this code gives the reference's values.

Each kind is a module with a function ``verify(file, games, catalogue, only)``, called alike for all kinds: ``file`` has the
reference cases, ``games`` and ``catalogue`` are folders of data for the kinds that play ALFWorld or WebShop, and ``only``
names the one estimator to check. A kind ignores what it does not need. (``lucene`` is apart: it has no reference file.)
"""

import contextlib
import json
import lzma
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import open_text


@dataclass
class Report:
    """The result of a replay; printed as one line of JSON."""

    kind: str
    cases: int = 0
    mismatches: int = 0
    max_abs_error: float = 0.0
    seconds: float = 0.0
    details: dict[str, float] = field(default_factory=dict)
    """Further numbers of some kinds."""

    def as_json_fields(self) -> dict[str, float]:
        """Return what is printed of the replay besides its kind."""
        return {
            "cases": self.cases,
            "mismatches": self.mismatches,
            "max_abs_error": self.max_abs_error,
            "seconds": self.seconds,
            **self.details,
        }

    def add_case(self, equal: bool, error: float = 0.0) -> None:
        """Count one case, ``equal`` or not; ``error`` is its largest absolute deviation."""
        self.cases += 1
        self.mismatches += not equal
        self.max_abs_error = max(self.max_abs_error, error)


@contextlib.contextmanager
def timed_report(kind: str) -> Iterator[Report]:
    """Yield an empty report and fill in its duration at the end.

    Raises:
        InputError: if no case was counted: a report without cases would look like a success.
    """
    report = Report(kind)
    start = time.perf_counter()
    yield report
    # Not in a ``finally``: after an error nothing is printed.
    report.seconds = round(time.perf_counter() - start, 3)
    if not report.cases:
        raise InputError(
            f"the reference file holds no case of kind {kind!r} that applies; check KIND and --only"
        )


def read_cases(file: Path, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a reference file.

    Args:
        file: a ``.jsonl`` or ``.jsonl.xz`` file, a case a line.
        fields: names that every case must have.

    Raises:
        InputError: if the file is missing or broken, or a case lacks one of ``fields``.
    """
    # The error message names the last line that was read, even if that is none.
    number = 0
    try:
        with open_text(file) as lines:
            for number, line in enumerate(lines, start=1):
                case = json.loads(line)
                missing = [name for name in fields if not isinstance(case, dict) or name not in case]
                if missing:
                    raise InputError(
                        f"{file}, line {number}: no field {missing[0]!r}; is this a file of another kind?"
                    )
                yield case
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise InputError(
            f"{file}, after line {number}: not a readable reference file ({error})"
        ) from error


def is_within(value: float, expected: float, tolerance: float) -> bool:
    """Return whether ``value`` deviates by at most ``tolerance``, relative to max(1, |expected|)."""
    return abs(value - expected) <= tolerance * max(1.0, abs(expected))
