"""Snakemake's lints of the workflow: `python -m workflow.lint`. Exit code 1 if lint.yaml does not except one of them."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

EXCEPTIONS = Path(__file__).with_name("lint.yaml")


def main() -> int:
    """Print every lint that is not excepted, and every exception that nothing needs."""
    excepted = yaml.safe_load(EXCEPTIONS.read_text())
    with tempfile.TemporaryDirectory() as results:
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--lint",
            "--config",
            "study=ci",
            f"results={results}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)

    # Snakemake 9 prints text whatever form is asked for, and its exit code says whether there was any.
    said = done.stdout + done.stderr
    lints: list[tuple[str, str]] = []
    where = ""
    for line in said.splitlines():
        if head := re.fullmatch(r"Lints for (.*):", line):
            where = head[1]
        elif title := re.fullmatch(r"    \* (.*):", line):
            lints.append((where, title[1]))
    if done.returncode and not lints:
        print(said, file=sys.stderr)
        return 1

    wrong = [f"{where}: {title}" for where, title in lints if title not in excepted]
    unused = excepted.keys() - {title for _, title in lints}
    wrong += [f"{EXCEPTIONS}: nothing needs the exception {title!r}" for title in unused]
    print(
        "\n".join(wrong) or f"snakemake --lint: {len(lints)} lints, all excepted in {EXCEPTIONS.name}",
        file=sys.stderr,
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
