"""What a stage is, and a job of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.job_settings import JobSettings
from threespo.paths import Paths
from threespo.study.config import Study

Files = dict[str, list[Path]]
"""Paths by the names that rules have for them."""

RUN_PATTERN = "{env}/{policy}/{method}/{which}"
"""The name of a run (``Run.run_id``) with the workflow's wildcards."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a job writes."""

    files: Files
    folders: tuple[Path, ...] = ()
    """Those of ``files`` that are folders."""
    timed: tuple[Path, ...] = ()
    """Those of ``files`` that hold times: two equal jobs write different ones."""

    def paths(self) -> list[Path]:
        """Return all files and folders."""
        return [path for paths in self.files.values() for path in paths]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; functions take the study, its paths and a job's name."""

    summary: str
    """What it does, as the command's help says it."""
    run: Callable[[Any], None]
    """Does a job: called with the job's settings. What it refers to, near or far, is the code of the stage's jobs."""
    arguments: tuple[str, ...]
    """Parts of a job's name, as the command line asks for them."""
    pattern: str
    """A job's name with the workflow's wildcards."""
    jobs: Callable[[Study], Sequence[str]]
    settings: Callable[[Study, Paths, str], JobSettings]
    inputs: Callable[[Study, Paths, str], Files]
    """Files and folders that the job reads."""
    outputs: Callable[[Paths, str], Outputs]
    """Also of a pattern such as ``{env}``, from which the workflow's rules are made."""
    extra_modules: Callable[[Study, str], Sequence[str]] = lambda *_: ()
    """Modules (or ``module:name``) that the job finds by names in its settings, not by import: methods, environments."""
    reusable: bool = True
    """Whether the results of another study may be taken; not where they name the study."""
