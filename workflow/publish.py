"""Publishing `mini`: `python -m workflow.publish results/mini` writes what reports of other studies show of it."""

import argparse
import sys
from pathlib import Path

from threespo.errors import InputError
from threespo.files import atomic_text
from threespo.results.published import COLUMNS
from threespo.study import records
from threespo.study.paths import PUBLISHED, Paths
from threespo.tables import read_table


def publish(paths: Paths) -> int:
    """Write the study's table of main results to ``config/published``, and return the number of rows.

    Raises:
        InputError: if this is another study, or its tables are missing or damaged.
    """
    name = PUBLISHED.stem
    if paths.root.name != name:
        raise InputError(f"{paths.root}: {PUBLISHED} is of the study {name!r} alone, in the folder results/{name}")
    files = [paths.table("main"), paths.table("runs")]
    for file in files:
        records.check_used(file)
    main, runs = (read_table(file) for file in files)
    commits = sorted(runs["commit"].unique())
    rows = main[main["mean"].notna()].assign(commit=" ".join(commits))[[*COLUMNS]]
    atomic_text(PUBLISHED, rows.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    return len(rows)


def main() -> int:
    """Publish the study in the folder that is given; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m workflow.publish", description=__doc__)
    parser.add_argument("results", type=Path, metavar="FOLDER", help="results/mini")
    try:
        print(f"{PUBLISHED}: {publish(Paths(parser.parse_args().results))} rows")
    except InputError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
