"""What ``threespo status`` says of a study, and the bar that the workflow shows while it works."""

import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterator

from tqdm import tqdm

from threespo.errors import format_bytes
from threespo.paths import Paths
from threespo.pipeline import journal
from threespo.pipeline.plan import plan_jobs
from threespo.pipeline.stages import Job
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study
from threespo.study.resolve import current_study
from threespo.terminal import escape_controls
from threespo.watch.progress import JobProgress, Progress, count_states

MAX_LISTED_JOBS = 20
"""Most jobs of one kind that are listed."""

BAR_INTERVAL_SECONDS = 30.0
"""Seconds between two bars, if there is anything new."""


def describe_study(paths: Paths) -> tuple[list[str], bool]:
    """Return what a person wants to know of a study that is worked on, or has been; and whether nothing has failed."""
    call, _ = journal.read_journal(paths)
    working = call is not None and call.alive is not False
    study = current_study(paths)
    left: set[Job] = set()
    outdated = 0
    if call is not None and working:
        # What was decided when the call began: files may have been edited since.
        unfinished, left = (
            {Job(stage, name) for stage, name in listed} for listed in (call.jobs, call.left)
        )
    else:
        verdicts = plan_jobs(study, paths, DigestCache(paths.digests))
        unfinished = {verdict.job for verdict in verdicts if verdict.runs}
        outdated = sum(bool(verdict.changes) and not verdict.damage for verdict in verdicts)
    progress = Progress(study, paths)
    standings = progress.read_jobs(unfinished, left)
    since = f", since {time.strftime('%H:%M', time.localtime(call.time))}" if call else ""
    at_work = (
        f"process {call.process} on {call.host} is at work{since}"
        if call and working
        else "no workflow is at work"
    )
    lines = [
        f"{paths.root}: {at_work}",
        format_bar(progress, standings),
        *_running(standings),
        *_failed(paths, standings),
    ]
    lines += _waiting(standings)
    if left:
        lines.append(f"  left      {len(left)} that were not asked for")
    if outdated:
        lines.append(
            f"  outdated  {outdated} of these have results of other settings or code: threespo why {paths.root}"
        )
    lines.append(_disk(paths))
    return lines, not any(one.state == "failed" for one in standings)


def format_bar(progress: Progress, standings: list[JobProgress]) -> str:
    """Return the study as a bar: jobs, generations, time left."""
    counts = count_states(standings)
    done = counts["finished"]
    spent = [f"{of:,} of {total:,} {unit}" for unit, (of, total) in progress.spent(standings).items()]
    others = [f"{counts[state]} {state}" for state in ("running", "failed") if counts[state]]
    left, whole = progress.left(standings)
    if left:
        others.append(f"{'' if whole else 'at least '}{format_duration(left)} left")
    text = ", ".join([f"{done} of {len(standings)} jobs", *spent, *others])
    return str(
        tqdm.format_meter(
            done, len(standings), 0, ncols=len(text) + 32, bar_format="[{bar}] " + text, ascii=" -=#"
        )
    )


def format_duration(seconds: float) -> str:
    """Return a time as people say it."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{seconds / 3600:.1f} h" if minutes < 2880 else f"{seconds / 86400:.1f} days"


def _running(standings: list[JobProgress]) -> Iterator[str]:
    for one in _some("running", standings):
        yield f"  running   {one.job}: {_how_far(one)}"


def _how_far(one: JobProgress) -> str:
    if one.training is None:
        return f"for {format_duration(one.seconds)}"
    now = one.training
    of = f"epoch {now.epoch}, {now.spent:,} of {now.budget:,} {now.unit}"
    return f"{of}, {now.rate:.0f} generations/s, {format_duration(now.left)} left"


def _failed(paths: Paths, standings: list[JobProgress]) -> Iterator[str]:
    for one in _some("failed", standings):
        log = paths.log(one.job.stage, one.job.name)
        said = find_last_line(log.read_bytes()) if log.is_file() else "no log"
        yield f"  failed    {one.job}: {'killed; ' if one.killed else ''}{said} ({log})"


def _waiting(standings: list[JobProgress]) -> Iterator[str]:
    waiting = [one for one in standings if one.state == "waiting"]
    for one in waiting:
        if one.training:
            yield f"  waiting   {one.job}: goes on after epoch {one.training.epoch}"
    stages: dict[str, int] = {}
    for one in waiting:
        stages[one.job.stage] = stages.get(one.job.stage, 0) + 1
    if stages:
        yield f"  waiting   {', '.join(f'{count} {stage}' for stage, count in stages.items())}"


def _some(state: str, standings: list[JobProgress]) -> list[JobProgress]:
    """Return the first jobs of a kind; the rest is in the bar's numbers."""
    return [one for one in standings if one.state == state][:MAX_LISTED_JOBS]


def find_last_line(log: bytes) -> str:
    """Return the last line of a log that says anything; a bar that was drawn over itself counts as its last state."""
    lines = [line.strip() for line in log.decode(errors="replace").replace("\r", "\n").splitlines()]
    return next((line for line in reversed(lines) if line), "an empty log")


def _disk(paths: Paths) -> str:
    used = 0
    for file in paths.root.rglob("*"):
        # What is written while this looks comes and goes.
        try:
            used += 0 if file.is_symlink() or file.is_dir() else file.stat().st_size
        except FileNotFoundError:
            continue
    return (
        f"  disk      {format_bytes(used)} here, {format_bytes(shutil.disk_usage(paths.root).free)} free"
    )


class StudyBar:
    """A thread that prints the study's bar beside Snakemake's lines, as a line of its own, while the workflow works.

    A line, and nothing that draws over itself: jobs write to the same terminal, and logs are read later.
    """

    def __init__(self, study: Study, paths: Paths, every: float = BAR_INTERVAL_SECONDS) -> None:
        self._progress, self._every, self._end = Progress(study, paths), every, threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, to_run: Collection[Job], left: Collection[Job] = ()) -> None:
        """Begin to show it, if there is anything to do; jobs that are left for another call do not count."""
        if to_run:
            self._thread = threading.Thread(
                target=self._show, args=(frozenset(to_run), frozenset(left)), daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Show it no more."""
        self._end.set()
        if self._thread:
            self._thread.join()

    def _show(self, to_run: frozenset[Job], left: frozenset[Job]) -> None:
        before = ""
        while not self._end.wait(self._every):
            line = format_bar(self._progress, self._progress.read_jobs(to_run, left))
            if line != before:
                print(escape_controls(f"threespo: {line}"), file=sys.stderr, flush=True)
            before = line
