"""Which learning rate a run trains with, and what is known of the trials that it was chosen from."""

from typing import Any

from threespo.errors import InputError
from threespo.files import read_json
from threespo.paths import Paths, Run, trials_file
from threespo.runs.settings import TrainSettings
from threespo.settings import MAX_LEARNING_RATE

_TRIALS_FIRST = "Run the trials of the study's tuning first."


def chosen_rate(paths: Paths, run: Run) -> float:
    """Return the rate that trials have chosen for a run's method.

    Raises:
        InputError: if the choice has not been made.
    """
    file = paths.choice(run.env, run.policy, run.method)
    choice = read_json(file, _TRIALS_FIRST)
    rate = choice.get("learning_rate") if isinstance(choice, dict) else None
    if not isinstance(rate, float) or not 0 < rate <= MAX_LEARNING_RATE:
        raise InputError(f"{file}: no chosen learning rate (found {str(choice)[:80]}). {_TRIALS_FIRST}")
    return rate


def learning_rate(settings: TrainSettings) -> float:
    """Return the rate that a run trains with, before its policy's scale: tried, given, or chosen.

    Raises:
        InputError: if the choice has not been made.
    """
    # Trials and studies without tuning have a rate of their own.
    return settings.learning_rate or chosen_rate(settings.paths, settings.run)


def decay_factor(settings: TrainSettings, spent: int) -> float:
    """Return the factor on a run's rate when ``spent`` of its budget is spent (``MethodSettings.schedule``)."""
    # By the share of the budget, not by steps: how many steps there will be is not known.
    if settings.schedule == "constant":
        return 1.0
    return 1.0 - spent / settings.training.budget


def read_trials(paths: Paths, env: str, policy: str, method: str) -> dict[str, Any]:
    """Return what a choice was made from, as ``threespo.runs.trials`` writes it.

    Raises:
        InputError: if it is missing or is none.
    """
    file = trials_file(paths, env, policy, method)
    found = read_json(file, _TRIALS_FIRST)
    if not isinstance(found, dict) or not {"trials", "at_edge", "learning_rate"} <= found.keys():
        raise InputError(
            f"{file}: no trials of learning rates (found {str(found)[:80]}). {_TRIALS_FIRST}"
        )
    return found
