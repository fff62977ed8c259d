"""Replay reference searches: the products found, best first."""

from pathlib import Path

from threespo.verify import Report, read_cases, timed_report
from threespo.verify.shop import open_catalogue


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare the ranked lists of ``file``; a list counts as equal only in the same order.

    Args:
        file: cases, one a line: a query, and the ``asins`` of the products found, best first.
        catalogue: folder of the original's JSON files, with the products of the reference.

    Raises:
        InputError: if the file is broken, or ``catalogue`` is not given or no catalogue.
    """
    overlaps = []
    firsts = []
    with timed_report("search") as report, open_catalogue(catalogue) as shop:
        for case in read_cases(file, ("query", "asins")):
            expected = list(case["asins"])
            found = [shop.head(number)[0] for number in shop.index.search(case["query"])]

            # Two empty lists agree entirely.
            overlap = 1.0
            if found or expected:
                overlap = len(set(found) & set(expected)) / max(len(found), len(expected))
            overlaps.append(overlap)
            firsts.append(found[:1] == expected[:1])
            report.add_case(found == expected)

        if report.cases:
            report.details = {
                "equal_in_order": 1 - report.mismatches / report.cases,
                "least_overlap": min(overlaps),
                "mean_overlap": sum(overlaps) / report.cases,
                "top_1": sum(firsts) / report.cases,
            }
    return report
