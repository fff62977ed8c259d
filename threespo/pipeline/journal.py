"""When the jobs of a study began and how they ended, for ``threespo status`` and the workflow's progress bar.

A file of JSON lines beside the results; every call of the workflow replaces it. What has to run is decided by records alone
(``plan``). The journal says what records cannot: which jobs are running or were killed, and for how long.
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
    """A line of the journal; its fields are those of the file."""

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
    def is_alive(self) -> bool | None:
        """Whether the process is still running; ``None`` if it is another machine's."""
        if self.host != socket.gethostname():
            return None
        return self.started == _read_start_time(self.process)


def start_journal(paths: Paths, to_run: Iterable[Job], not_asked_for: Iterable[Job] = ()) -> None:
    """Replace the journal: the workflow has been called, and will run the jobs ``to_run``.

    Jobs that have to run but were ``not_asked_for`` wait for another call.
    """
    call = replace(
        _make_event("call", Job("", "")),
        jobs=tuple((job.stage, job.name) for job in to_run),
        left=tuple((job.stage, job.name) for job in not_asked_for),
    )
    write_text(paths.journal, _format_line(call))


@contextlib.contextmanager
def log_job(paths: Paths, job: Job) -> Iterator[None]:
    """Write down that a job begins, and whether it ends or fails; a full disk is no reason to fail."""
    _append_event(paths, _make_event("began", job))
    try:
        yield
    except BaseException:
        _append_event(paths, _make_event("failed", job))
        raise
    _append_event(paths, _make_event("ended", job))


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
            event = _parse_event(json.loads(line))
            if event.kind == "call":
                call = event
            else:
                last[event.job] = event
    return call, last


def _parse_event(values: dict[str, Any]) -> Event:
    """Return the event of a line; raises any of several exceptions where the values are no event's."""
    jobs = tuple((str(stage), str(name)) for stage, name in values["jobs"])
    left = tuple((str(stage), str(name)) for stage, name in values["left"])
    event = Event(**{**values, "jobs": jobs, "left": left})

    texts = (event.stage, event.name, event.host, event.started)
    numbers = (event.time, event.process)
    if event.kind not in get_args(Kind) or not all(isinstance(text, str) for text in texts):
        raise ValueError("not an event")
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("not a time, or not a process")
    # Raises for a time out of range, which the status display could not format.
    time.localtime(event.time)
    return event


def _make_event(kind: Kind, job: Job) -> Event:
    """Return an event of this process, now."""
    process = os.getpid()
    started = _read_start_time(process)
    return Event(kind, job.stage, job.name, time.time(), socket.gethostname(), process, started)


def _read_start_time(process: int) -> str:
    """Return when a process began, in clock ticks since the machine did; empty if there is none."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Field 2 is the command in brackets, which may hold anything; field 3 is the state, field 22 the start (proc(5)).
    fields_from_third = status.rpartition(")")[2].split()
    state = fields_from_third[0]
    # A zombie has ended; only its parent has not collected it.
    return "" if state == "Z" else fields_from_third[22 - 3]


def _format_line(event: Event) -> str:
    return json.dumps(asdict(event)) + "\n"


def _append_event(paths: Paths, event: Event) -> None:
    with contextlib.suppress(OSError, InputError):
        paths.journal.parent.mkdir(parents=True, exist_ok=True)
        # One write: lines of several processes do not mix.
        handle = os.open(paths.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, _format_line(event).encode())
        finally:
            os.close(handle)
