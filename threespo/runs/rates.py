"""Which learning rate a run trains with."""

import json
from typing import TYPE_CHECKING

from threespo.errors import InputError
from threespo.study.matrix import Run

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.matrix import Paths


def learning_rate(study: "Study", run: Run, paths: "Paths") -> float:
    """Return the rate that ``run`` trains with, before its policy's scale: tried, given, or chosen.

    Raises:
        InputError: if the choice has not been made.
    """
    given = study.methods[run.method].learning_rate if run.rate is None else run.rate
    if given is not None:
        return given
    file = paths.choice(run.env, run.policy, run.method)
    try:
        return float(json.loads(file.read_text())["learning_rate"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: no chosen learning rate ({error}); run the trials of the study's tuning first") from error
