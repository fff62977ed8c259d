"""What an environment is to the rest of the package: one value of this class, found through ``threespo.envs.registry``.

How tasks are made and how results are named lie in other modules of the environment's folder: so neither is part of the code
that training depends on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.base import Environment, TextInterface
from threespo.envs.optional_splits import OPTIONAL_SPLITS
from threespo.envs.settings import EnvironmentSettings, EpisodeSettings, TaskSettings

Prepare = Callable[[Any, Path], None]
"""(Task settings, folder to fill): writes the tasks of every split and ``manifest.json`` (counts, checksums)."""

Contents = Callable[[Path, str], dict[str, str]]
"""(Data folder, split) -> id -> content of each prepared task, in words, without making it playable."""

TRAINING = "training"
CALIBRATION = "calibration"
REPORTING = "reporting"


def split_purpose(split: str) -> str:
    """Return what the tasks of a split are for.

    ``calibration``: choosing rates and base policies; ``development``: choosing between variants; ``confirmation``: nothing
    is ever chosen on it; ``reporting``: the published test sets, whose results are shown and may have been looked at before.
    """
    if split == "train":
        return TRAINING
    if split == CALIBRATION or split in OPTIONAL_SPLITS:
        return split
    # Every other name is that of a published test set, such as ALFWorld's valid_unseen.
    return REPORTING


class RealData(NamedTuple):
    """A folder of real data that ``snakemake --config ENVIRONMENT=DIR`` can give for embedded tasks."""

    results_suffix: str
    """What the name of the results' folder ends with, after the study's name."""
    holds: str
    """What the folder must hold, for error messages."""
    files: tuple[str, ...]
    """Patterns of the files that decide the tasks; they count by content."""
    explain_missing: Callable[[Path], str | None]
    """What a folder lacks, in words; ``None`` if the data are there. It looks for files and reads none."""
    listed: tuple[str, ...] = ()
    """Names of files at any depth that count by place and size where there is none of ``files``: thousands, too many to
    read at every start of the workflow."""


class Playable(NamedTuple):
    """A task that ``threespo play`` can open."""

    task_id: str
    task_type: str
    goal: str
    open: Callable[[], Any]
    """Returns the task, which may take a moment."""


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """One environment. Functions import what they need when they are called, so that a spec loads in milliseconds."""

    name: str
    """Its name in study files, results and commands."""
    settings: type[EnvironmentSettings]
    """Its section of a study file: ``tasks`` and ``episode`` in one."""
    tasks: type[TaskSettings]
    episode: type[EpisodeSettings]
    splits: tuple[str, ...]
    """All splits that its tasks may have; ``train`` and ``calibration`` are among them. See ``split_purpose``."""
    evaluated: tuple[str, ...]
    """Splits that results are reported on, unless the study's ``evaluation.splits`` names some of the environment's."""
    text: TextInterface
    make: Callable[[Any, Path], Environment[Any, Any]]
    """(episode settings, data folder) -> the environment."""
    load_tasks: Callable[[Path, str], list[Any]]
    """(data folder, split) -> the tasks of one split."""
    recognises: Callable[[Path], bool]
    """Whether ``threespo play PATH`` means this environment."""
    splits_in: Callable[[Path], Sequence[str]]
    """The splits that a path holds, for ``threespo play``, the one for training first; one of any name where it is a
    task."""
    tasks_in: Callable[[Path, str], Sequence[Playable]]
    """(path, split) -> its tasks, for ``threespo play``."""
    playable: str
    """What ``splits_in`` can look into, for error messages."""
    real: RealData | None = None
    """``None``: the environment has embedded tasks only."""
    shown: Callable[[Any, Any], str] = field(default=lambda _, state: str(state.observation))
    """(environment, state) -> what a person is shown; by default what a policy reads."""
    has_curriculum: bool = False
    """Whether ``threespo.imitation`` has a curriculum for its embedded base policies; if not, studies must use other
    policies here."""
    explain_unlearnable: Callable[[Any], str | None] = field(default=lambda _: None)
    """The section of a study -> what in it no embedded base policy could learn from, and why; ``None``: all is well."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How results in an environment are named and explained."""

    label: str
    measures: tuple[str, ...]
    """What episodes are measured by, in the order of the paper's columns: ``success``, and ``score`` where it says more."""
    labels: Mapping[str, str]
    """Display names of splits and measures."""
    task_types: str
    """One sentence: what the task types are that figures show."""
    describe: Callable[[Any], str]
    """The section of a study -> what its tasks are, in words."""
    shown_task_types: Mapping[str, str] = field(default_factory=dict)
    """Task types that figures show, with the names that they have there; empty: all of them, under their own names."""
    caveats: Callable[[Any], list[str]] = field(default=lambda _: [])
    """The section of a study -> what a reader must know before comparing with the paper."""
    cluster: Callable[[str], str] = field(default=lambda task: task)
    """The id of a task -> a name that it shares with the tasks that are not independent of it; by default with none."""
