"""Learning rates: which one a run trains with, and how trials choose it."""

import json
import sys

from threespo.errors import InputError
from threespo.files import atomic_json
from threespo.study.paths import Paths, Run
from threespo.study.run_settings import TrainSettings, TuneSettings
from threespo.tables import read_table


def tune(settings: TuneSettings) -> None:
    """Write the rate whose trial won most calibration games; of equals the smallest.

    Raises:
        InputError: if a trial's evaluation is missing.
    """
    success = {run.rate: trial_success(run, settings.paths) for run in settings.trials}
    best = max(success, key=lambda rate: success[rate])
    atomic_json(settings.paths.choice(settings.env, settings.policy, settings.method), {"learning_rate": best})

    shown = ", ".join(f"{rate:g}: {value:.1%}" for rate, value in success.items())
    print(f"tune {settings.env}/{settings.policy}/{settings.method}: {best:g} of {shown}", file=sys.stderr)


def trial_success(run: Run, paths: Paths) -> float:
    """Return the share of calibration games that a trial's final policy won."""
    return float(read_table(paths.run(run).evaluation)["success"].mean())


def chosen_rate(paths: Paths, run: Run) -> float:
    """Return the rate that trials have chosen for a run's method.

    Raises:
        InputError: if the choice has not been made.
    """
    file = paths.choice(run.env, run.policy, run.method)
    try:
        return float(json.loads(file.read_text())["learning_rate"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: no chosen learning rate ({error}); run the trials of the study's tuning first") from error


def learning_rate(settings: TrainSettings) -> float:
    """Return the rate that a run trains with, before its policy's scale: tried, given, or chosen.

    Raises:
        InputError: if the choice has not been made.
    """
    return settings.learning_rate or chosen_rate(settings.paths, settings.run)
