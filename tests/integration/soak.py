"""Kills the real `ci` study at random instants, lets it go on, and compares every result with an undisturbed run's.

    python -m tests.integration.soak [--rounds 30] [--kills 1] [--seed 0] [--folder DIR]     (`make soak`)

Each round takes a fresh copy of the repository, kills the whole workflow ``--kills`` times (SIGKILL, with
all jobs), then lets it finish. Exit code 1 if a single byte differs. Times and provenance are not compared.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.conftest import FAKES, copy_repository
from threespo.provenance.digests import file_digest

VARYING = (
    "timing",
    "wall_time",
    "learning_time",
    "time_to",
    "adaptive_time",
    "stages",
    "runs",
    "provenance",
    "compute",
)
"""Tables and figures that hold times and machines."""


def copy(folder: Path) -> Path:
    """Return a copy of the repository with its shipped policies, ready to run."""
    return copy_repository(folder).folder


def start(folder: Path, *settings: str) -> subprocess.Popen[bytes]:
    """Start the `ci` study, with further settings of `--config`, in a process group of its own."""
    # The stand-ins do nothing unless a variable asks for one.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(FAKES)])}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--config", "study=ci", *settings]
    with (folder / "output.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True, stdout=log, stderr=log
        )


def finish(folder: Path, *settings: str) -> float:
    """Run the study to its end; return the seconds that it took."""
    begun = time.monotonic()
    if start(folder, *settings).wait() != 0:
        raise SystemExit(f"the study failed:\n{_last_words(folder)}")
    return time.monotonic() - begun


def _last_words(folder: Path) -> str:
    """Return the ends of the workflow's log and of every job's, the latest last."""
    logs = sorted((_root(folder) / "logs").rglob("*.log"), key=lambda log: log.stat().st_mtime)
    ends = [(log.relative_to(folder), log.read_text()[-1500:]) for log in (folder / "output.log", *logs)]
    return "\n".join(f"--- {name}\n{end}" for name, end in ends)


def kill(folder: Path, after: float, *settings: str) -> bool:
    """Run the study and kill all of it after so many seconds; return whether it was still running."""
    process = start(folder, *settings)
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # What `threespo unlock` does, without its seconds.
    shutil.rmtree(folder / ".snakemake" / "locks", ignore_errors=True)
    return True


def _root(folder: Path) -> Path:
    """Return the folder of the study, which has another name where settings are changed; not of one beside it."""
    return min((folder / "results").iterdir(), key=lambda path: len(path.name))


def results(folder: Path) -> dict[str, str]:
    """Return the digest of every result of the study: weights, metrics, episodes, tables, figures."""
    root = _root(folder)
    kinds = (
        "tables/*.parquet",
        "figures/*.*",
        "runs/**/metrics.parquet",
        "runs/**/evaluation.parquet",
        "**/*.safetensors",
    )
    kinds += ("runs/**/learning.parquet",)
    files = [file for kind in kinds for file in root.glob(kind) if file.stem not in VARYING]
    return {str(file.relative_to(root)): file_digest(file) for file in sorted(files)}


def differences(expected: dict[str, str], got: dict[str, str]) -> list[str]:
    """Return the names of results that differ, or are there only once."""
    return sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        whole = copy(Path(name) / "whole")
        seconds = finish(whole)
        expected = results(whole)
        print(f"undisturbed: {seconds:.0f} s, {len(expected)} results", flush=True)
        good = 0
        for number in range(options.rounds):
            folder = copy(Path(name) / f"round-{number}")
            instants = [rng.uniform(1, seconds / options.kills) for _ in range(options.kills)]
            running = [kill(folder, instant) for instant in instants]
            finish(folder)
            different = differences(expected, results(folder))
            good += not different
            when = ", ".join(f"{instant:.1f} s" for instant in instants)
            print(
                f"round {number + 1}: {sum(running)} kills after {when}: {different or 'identical'}",
                flush=True,
            )
            shutil.rmtree(folder)
    print(f"{good} of {options.rounds} identical")
    return int(good != options.rounds)


if __name__ == "__main__":
    sys.exit(main())
