"""Choosing a method's learning rate from the trials of the study's grid."""

import sys
from typing import TYPE_CHECKING

from threespo.files import atomic_json
from threespo.study.matrix import Run, trials_of
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.matrix import Paths


def choose(study: "Study", env: str, policy: str, method: str, paths: "Paths") -> None:
    """Write the rate whose trial won most calibration games; of equals the smallest.

    Raises:
        InputError: if a trial's evaluation is missing.
    """
    success = {run.rate: trial_success(run, paths) for run in trials_of(study, env, policy, method)}
    best = max(success, key=lambda rate: success[rate])
    atomic_json(paths.choice(env, policy, method), {"learning_rate": best})
    shown = ", ".join(f"{rate:g}: {value:.1%}" for rate, value in success.items())
    print(f"choose {env}/{policy}/{method}: {best:g} of {shown}", file=sys.stderr)


def trial_success(run: Run, paths: "Paths") -> float:
    """Return the share of calibration games that a trial's final policy won."""
    return float(read_table(paths.run(run) / "evaluation.parquet")["success"].mean())
