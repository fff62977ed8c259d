"""Which learning rate a run trains with, and how it is chosen from the trials of the study's grid."""

import sys
from statistics import fmean

from threespo.errors import InputError
from threespo.files import read_json, write_json
from threespo.paths import Paths, Run
from threespo.runs.settings import TrainSettings, TuneSettings
from threespo.settings import MAX_LEARNING_RATE
from threespo.tables import read_table


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
    # Trials and studies without tuning have a rate of their own.
    return settings.learning_rate or chosen_rate(settings.paths, settings.run)


def decay_factor(settings: TrainSettings, spent: int) -> float:
    """Return the factor on a run's rate when ``spent`` of its budget is spent (``MethodSettings.schedule``)."""
    # By the share of the budget, not by steps: how many steps there will be is not known.
    if settings.schedule == "constant":
        return 1.0
    return 1.0 - spent / settings.training.budget


def choose_learning_rate(settings: TuneSettings) -> None:
    """Write the rate whose trials won the most games of the calibration split; the smallest of equal ones.

    Raises:
        InputError: if a trial's evaluation is missing.
    """
    successes: dict[float | None, list[float]] = {}
    for run in settings.trials:
        successes.setdefault(run.rate, []).append(trial_success(run, settings.paths))
    mean_success = {rate: fmean(values) for rate, values in successes.items()}
    # Trials come with rising rates, and ``max`` returns the first of equals: the more cautious rate.
    best = max(mean_success, key=lambda rate: mean_success[rate])
    file = settings.paths.choice(settings.env, settings.policy, settings.method)
    write_json(file, {"learning_rate": best})

    trials = [f"{rate:g}: {success:.1%}" for rate, success in mean_success.items()]
    summary = ", ".join(trials)
    print(
        f"tune {settings.env}/{settings.policy}/{settings.method}: {best:g} of {summary}",
        file=sys.stderr,
    )


def trial_success(run: Run, paths: Paths) -> float:
    """Return the share of the calibration split's games that a trial's final policy won, in 0 to 1."""
    return float(read_table(paths.run(run).evaluation)["success"].mean())
