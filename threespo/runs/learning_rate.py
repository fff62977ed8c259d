"""Which learning rate a run trains with. (Apart from ``tuning``, so that another way to choose retrains no trial.)"""

from threespo.errors import InputError
from threespo.files import read_json
from threespo.paths import Paths, Run
from threespo.runs.settings import TrainSettings
from threespo.settings import MAX_LEARNING_RATE


def chosen_rate(paths: Paths, run: Run) -> float:
    """Return the rate that trials have chosen for a run's method.

    Raises:
        InputError: if the choice has not been made.
    """
    file = paths.choice(run.env, run.policy, run.method)
    remedy = "Run the trials of the study's tuning first."
    choice = read_json(file, remedy)
    rate = choice.get("learning_rate") if isinstance(choice, dict) else None
    if not isinstance(rate, float) or not 0 < rate <= MAX_LEARNING_RATE:
        raise InputError(f"{file}: no chosen learning rate (found {str(choice)[:80]}). {remedy}")
    return rate


def learning_rate(settings: TrainSettings) -> float:
    """Return the rate that a run trains with, before its policy's scale: tried, given, or chosen.

    Raises:
        InputError: if the choice has not been made.
    """
    return settings.learning_rate or chosen_rate(settings.paths, settings.run)


def decay(settings: TrainSettings, spent: int) -> float:
    """Return the factor on a run's rate when ``spent`` of its budget is spent (``MethodSettings.schedule``)."""
    return 1.0 - spent / settings.training.budget if settings.schedule == "linear" else 1.0
