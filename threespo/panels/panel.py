"""A panel: the tasks of an environment by use, each with a hash of its content, in the order in which they are played.

Panels are files of this package (``NAME.json``); they hold ids and hashes and no text of any task.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.optional_splits import strip_price_clause
from threespo.errors import InputError
from threespo.panels.openings import Opening

FORMAT = 1
GENERATED_SEED = 7
"""Seed of the games and of the shop of the generated panels."""
PRODUCTS = 1000
"""Size of the generated panels' shop."""
HELD_OUT = ("train", "calibration")
"""Splits that no result is reported on."""

# 64 bits: among some ten thousand tasks, two equal hashes by chance have a probability of less than 1e-10.
_DIGITS = 16


class PanelTask(NamedTuple):
    """A task of a panel."""

    task_id: str
    content: str
    """Of :func:`content_hash`."""


@dataclass(frozen=True)
class Panel:
    """Which tasks are for what."""

    name: str
    environment: str
    """Its name in ``threespo.envs.registry``."""
    about: str
    """Which data the tasks are from."""
    max_steps: int
    """Steps per episode."""
    failure_ends: bool
    """Whether an episode can end without success before that: by a purchase in a shop."""
    splits: Mapping[str, tuple[PanelTask, ...]]
    """The tasks of each split, in the order in which they are played: each once per seed."""
    openings: Mapping[str, Opening] = field(default_factory=dict)
    """Task id -> what an episode begins with in words; empty for shops, whose instructions are their contents."""
    wording: str | None = None
    """How the commands of the data put things down (``GameRecord.wording``); ``None`` for shops."""

    @functools.cached_property
    def split_of(self) -> Mapping[str, str]:
        """Task id -> split."""
        return {task.task_id: split for split, tasks in self.splits.items() for task in tasks}

    @functools.cached_property
    def content_of(self) -> Mapping[str, str]:
        """Task id -> content hash."""
        return {task.task_id: task.content for tasks in self.splits.values() for task in tasks}

    @functools.cached_property
    def with_content(self) -> Mapping[str, tuple[str, ...]]:
        """Content hash -> the ids of the tasks that have it; a few wishes are made of two products."""
        found: dict[str, tuple[str, ...]] = {}
        for tasks in self.splits.values():
            for task in tasks:
                found[task.content] = (*found.get(task.content, ()), task.task_id)
        return found

    @functools.cached_property
    def with_opening(self) -> Mapping[Opening, tuple[str, ...]]:
        """Opening -> the ids of the tasks that begin so; some games have things elsewhere, and nothing else."""
        found: dict[Opening, tuple[str, ...]] = {}
        for task_id, opening in self.openings.items():
            found[opening] = (*found.get(opening, ()), task_id)
        return found

    @functools.cached_property
    def with_name(self) -> Mapping[str, tuple[str, ...]]:
        """Folder name, TASK or TRIAL -> the ids of the games that it is a part of."""
        found: dict[str, tuple[str, ...]] = {}
        for task_id in self.openings:
            for part in task_id.split("/"):
                found[part] = (*found.get(part, ()), task_id)
        return found

    @property
    def tested(self) -> tuple[str, ...]:
        """The splits that results are reported on."""
        return tuple(split for split in self.splits if split not in HELD_OUT)

    @property
    def sha256(self) -> str:
        """What identifies the panel in a publication: of the lines ``SPLIT ID HASH``, in order."""
        lines = (
            f"{split} {task.task_id} {task.content}\n"
            for split, tasks in self.splits.items()
            for task in tasks
        )
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def panel_names() -> list[str]:
    """Return the names of the panels of this package."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


@functools.cache
def load_panel(name: str) -> Panel:
    """Return a panel of this package.

    Raises:
        InputError: if there is none of this name.
    """
    if name not in panel_names():
        raise InputError(f"no panel {name!r}; there are: {', '.join(panel_names())}")
    values: dict[str, Any] = json.loads(
        (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    )
    if values["format"] != FORMAT:
        raise InputError(
            f"panel {name!r}: format {values['format']}, expected {FORMAT}; install the package again"
        )
    splits = {
        split: tuple(PanelTask(*line.rsplit(" ", 1)) for line in lines)
        for split, lines in values["splits"].items()
    }
    listed = values.get("openings", {})
    openings = {
        task.task_id: Opening(*line.split(" "))
        for split, lines in listed.items()
        for task, line in zip(splits[split], lines, strict=True)
    }
    limits = {"max_steps": values["max_steps"], "failure_ends": values["failure_ends"]}
    return Panel(
        name,
        values["environment"],
        values["about"],
        **limits,
        splits=splits,
        openings=openings,
        wording=values.get("wording"),
    )


def content_hash(task: Any) -> str:
    """Return the hash of what a task is about (its ``content``), 16 hexadecimal digits of a SHA-256.

    Of an ALFWorld game, compiled or not: its goal sentence and the lines of its problem in alphabetical order, without the
    problem's name. Domain and grammar are left out, so it is the same game in the wordings of all versions. Of a shopping
    task: :func:`wish_hash`.

    Raises:
        InputError: if tasks of this environment do not say what they are about.
    """
    content = getattr(task, "content", None)
    if not isinstance(content, str):
        raise InputError(f"task {task.task_id!r}: its environment has no panel")
    return text_hash(content)


def instruction_hash(text: str) -> str:
    """Return the hash of a shopping instruction without its price clause, which the original draws anew in each process."""
    return text_hash(strip_price_clause(text))


def text_hash(content: str) -> str:
    """Return the hash of what a task is about, given in words."""
    # Real texts may hold halves of surrogate pairs, which strict UTF-8 refuses.
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
