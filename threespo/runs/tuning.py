"""Choosing a method's learning rate from the trials of the study's grid."""

import sys
from statistics import fmean

from threespo.files import write_json
from threespo.paths import Paths, Run
from threespo.runs.settings import TuneSettings
from threespo.tables import read_table


def choose_learning_rate(settings: TuneSettings) -> None:
    """Write the rate whose trials won the most games of the calibration split; the smallest of equal ones.

    Raises:
        InputError: if a trial's evaluation is missing.
    """
    trials: dict[float | None, list[float]] = {}
    for run in settings.trials:
        trials.setdefault(run.rate, []).append(trial_success(run, settings.paths))
    success = {rate: fmean(values) for rate, values in trials.items()}
    # Trials come with rising rates, and ``max`` returns the first of equals.
    best = max(success, key=lambda rate: success[rate])
    write_json(
        settings.paths.choice(settings.env, settings.policy, settings.method), {"learning_rate": best}
    )

    shown = ", ".join(f"{rate:g}: {value:.1%}" for rate, value in success.items())
    print(
        f"tune {settings.env}/{settings.policy}/{settings.method}: {best:g} of {shown}", file=sys.stderr
    )


def trial_success(run: Run, paths: Paths) -> float:
    """Return the share of the calibration split's games that a trial's final policy won, in 0 to 1."""
    return float(read_table(paths.run(run).evaluation)["success"].mean())
