"""Measures where a run's time goes, and gives free memory back."""

import contextlib
import cProfile
import ctypes
import io
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threespo.envs.base import Environment, Task, Transition
from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.runs.settings import TrainSettings


class TimedEnvironment:
    """An environment that adds up the time spent in it; it costs about a hundredth of a step."""

    def __init__(self, env: Environment[Any, Any]) -> None:
        self.name = env.name
        self.text = env.text
        self.seconds = 0.0
        self._env = env

    def initial(self, task: Task) -> Any:
        return self._timed(self._env.initial, task)

    def step(self, state: Any, action: str) -> Transition[Any]:
        transition: Transition[Any] = self._timed(self._env.step, state, action)
        return transition

    def admissible(self, state: Any) -> tuple[str, ...]:
        actions: tuple[str, ...] = self._timed(self._env.admissible, state)
        return actions

    def won(self, state: Any) -> bool:
        return bool(self._timed(self._env.won, state))

    def _timed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Two reads of the clock and no context manager: this runs in every step.
        start = time.perf_counter()
        result = function(*arguments)
        self.seconds += time.perf_counter() - start
        return result


def profile_training(
    settings: TrainSettings, work: Callable[[TrainSettings], None], functions: int = 60
) -> None:
    """Do ``work`` under Python's profiler and write the functions that took longest, by their own time, to ``profiles/``.

    It works in a folder of its own, with the study's games and policies, so that slowed-down times never become results.

    Args:
        settings: those of the training run.
        work: the stage's function, which receives ``settings`` with the paths of that folder.
        functions: how many functions are listed.

    Raises:
        InputError: if the run has several ranks.
    """
    if settings.ranks > 1:
        raise InputError(
            f"--profile looks into one process, and ranks_per_run is {settings.ranks}; set it to 1."
        )

    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        temporary = Paths(Path(folder))
        # What training reads; what it writes goes into the temporary folder.
        for name in ("data", "policy", "tuning"):
            (temporary.root / name).symlink_to((settings.paths.root / name).absolute())
        profiler.runcall(work, settings.model_copy(update={"paths": temporary}))

    listing = io.StringIO()
    statistics = pstats.Stats(profiler, stream=listing).strip_dirs()
    # By own time: cumulative times would list the loop itself first.
    statistics.sort_stats("tottime").print_stats(functions)
    file = settings.paths.profile(settings.run)
    write_text(file, listing.getvalue())
    print(f"profile: {file}", file=sys.stderr)


def return_free_memory() -> None:
    """Return free memory to the system, where the C library can.

    Tensors of ever different sizes fragment glibc's heap: without this a run grows by 400 MB an epoch.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
