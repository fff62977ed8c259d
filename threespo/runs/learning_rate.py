"""Which learning rate a run trains with. (Apart from ``tuning``, so that another way to choose retrains no trial.)"""

import json

from threespo.errors import InputError
from threespo.study.paths import Paths, Run
from threespo.study.run_settings import TrainSettings


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
