"""When the jobs of a study began and how they ended, for those who look on: ``threespo status`` and the workflow's bar.

A file of JSON lines beside the results, begun anew by every call of the workflow. Nothing decides by it what has to run. It
saves no time: without it nobody could tell a running job from one that was killed, or say what time is left.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.pipeline.stages import Job

Kind = Literal["call", "began", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    kind: Kind
    """``call``: the workflow has begun."""
    stage: str
    name: str
    time: float
    """Seconds since 1970."""
    host: str
    process: int
    started: str
    """When the process began, in the system's own units: numbers of processes are used again."""
    jobs: tuple[tuple[str, str], ...] = ()
    """Of a call: stage and name of every job that has to run and was asked for."""
    left: tuple[tuple[str, str], ...] = ()
    """Of a call: the others that have to run; they wait for another call."""

    @property
    def job(self) -> Job:
        return Job(self.stage, self.name)

    @property
    def alive(self) -> bool | None:
        """Whether the process is there; ``None`` if it is another machine's."""
        return None if self.host != socket.gethostname() else self.started == _started(self.process)


def start_journal(paths: Paths, to_run: Iterable[Job], left: Iterable[Job] = ()) -> None:
    """Begin anew: the workflow has been called, these jobs have to run, and those that are left were not asked for."""
    listed, others = (tuple((job.stage, job.name) for job in some) for some in (to_run, left))
    write_text(paths.journal, _line(replace(_now("call", Job("", "")), jobs=listed, left=others)))


@contextlib.contextmanager
def log_job(paths: Paths, job: Job) -> Iterator[None]:
    """Write down that a job begins, and whether it ends or fails; a full disk is no reason to fail."""
    _append(paths, _now("began", job))
    try:
        yield
    except BaseException:
        _append(paths, _now("failed", job))
        raise
    _append(paths, _now("ended", job))


def read_journal(paths: Paths) -> tuple[Event | None, dict[Job, Event]]:
    """Return the last call of the workflow, if it has been called, and the last event of every job since then."""
    call = None
    last: dict[Job, Event] = {}
    try:
        lines = paths.journal.read_bytes().splitlines()
    except OSError:
        return None, {}
    for line in lines:
        # A killed process may have left half a line, and a disk a wrong bit.
        with contextlib.suppress(
            ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError
        ):
            event = _event(json.loads(line))
            if event.kind == "call":
                call = event
            else:
                last[event.job] = event
    return call, last


def _event(values: dict[str, Any]) -> Event:
    """Return an event of a line's values; any of several exceptions where they are none."""
    listed = {
        key: tuple((str(stage), str(name)) for stage, name in values[key]) for key in ("jobs", "left")
    }
    event = Event(**{**values, **listed})
    texts = (event.stage, event.name, event.host, event.started)
    numbers = (event.time, event.process)
    if event.kind not in get_args(Kind) or not all(isinstance(text, str) for text in texts):
        raise ValueError("not an event")
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("not a time, or not a process")
    # Raises for a time out of range, which the status display could not format.
    time.localtime(event.time)
    return event


def _now(kind: Kind, job: Job) -> Event:
    process = os.getpid()
    return Event(
        kind, job.stage, job.name, time.time(), socket.gethostname(), process, _started(process)
    )


def _started(process: int) -> str:
    """Return when a process began, in ticks since the machine did; empty if there is none."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name before it may hold anything; then come state, and the number of this field is 22 (proc(5)).
    after = status.rpartition(")")[2].split()
    # A zombie (state Z) has ended; only its parent has not collected it.
    return "" if after[0] == "Z" else after[19]


def _line(event: Event) -> str:
    return json.dumps(asdict(event)) + "\n"


def _append(paths: Paths, event: Event) -> None:
    with contextlib.suppress(OSError, InputError):
        paths.journal.parent.mkdir(parents=True, exist_ok=True)
        # One write: lines of several processes do not mix.
        handle = os.open(paths.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, _line(event).encode())
        finally:
            os.close(handle)
