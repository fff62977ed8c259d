"""What ``threespo status`` prints, and the progress bar that the workflow shows."""

import contextlib
import shutil
import sys
import threading
import time
from collections import Counter
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
from threespo.watch.progress import JobProgress, JobState, Progress, count_states

MAX_LISTED_JOBS = 20
"""Jobs of one state that are listed."""

BAR_INTERVAL_SECONDS = 30.0


def describe_study(paths: Paths) -> tuple[list[str], bool]:
    """Return the lines of ``threespo status``, and whether no job has failed."""
    call, _ = journal.read_journal(paths)
    running_call = call if call is not None and call.is_alive is not False else None
    study = current_study(paths)
    not_asked_for: set[Job] = set()
    outdated = 0
    if running_call:
        # As decided when the call began: files may have been edited since.
        unfinished = {Job(stage, name) for stage, name in running_call.jobs}
        not_asked_for = {Job(stage, name) for stage, name in running_call.left}
    else:
        verdicts = plan_jobs(study, paths, DigestCache(paths.digests))
        unfinished = {verdict.job for verdict in verdicts if verdict.must_run}
        outdated = sum(bool(verdict.changes) and not verdict.damage for verdict in verdicts)

    progress = Progress(study, paths)
    entries = progress.read_jobs(unfinished, not_asked_for)

    lines = [f"{paths.root}: {_describe_call(running_call)}", format_bar(progress, entries)]
    lines += _running_lines(entries)
    lines += _failed_lines(paths, entries)
    lines += _waiting_lines(entries)
    if not_asked_for:
        lines.append(f"  left      {len(not_asked_for)} that were not asked for")
    if outdated:
        lines.append(
            f"  outdated  {outdated} of these have results of other settings or code: "
            f"threespo why {paths.root}"
        )
    lines.append(_disk_line(paths))
    return lines, not any(entry.state == "failed" for entry in entries)


def _describe_call(call: journal.Event | None) -> str:
    if call is None:
        return "no workflow is at work"
    since = time.strftime("%H:%M", time.localtime(call.time))
    return f"process {call.process} on {call.host} is at work, since {since}"


def format_bar(progress: Progress, entries: list[JobProgress]) -> str:
    """Return a text bar with the study's jobs, generations and time left."""
    counts = count_states(entries)
    finished = counts["finished"]
    parts = [f"{finished} of {len(entries)} jobs"]
    for unit, (spent, budget) in progress.sum_budgets(entries).items():
        parts.append(f"{spent:,} of {budget:,} {unit}")
    shown_states: tuple[JobState, ...] = ("running", "failed")
    parts += [f"{counts[state]} {state}" for state in shown_states if counts[state]]

    seconds, complete = progress.estimate_time_left(entries)
    if seconds:
        bound = "" if complete else "at least "
        parts.append(f"{bound}{format_duration(seconds)} left")
    text = ", ".join(parts)
    # tqdm formats the bar only: its own estimate of time assumes that all jobs take equally long.
    layout = "[{bar}] " + text
    bar: str = tqdm.format_meter(
        finished, len(entries), 0, ncols=len(text) + 32, bar_format=layout, ascii=" -=#"
    )
    return bar


def format_duration(seconds: float) -> str:
    """Return a duration with one unit: 5 s, 2 min, 2.0 h, 2.3 days."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 2 * 24 * 60:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def _running_lines(entries: list[JobProgress]) -> Iterator[str]:
    for entry in _select(entries, "running"):
        yield f"  running   {entry.job}: {_describe_training(entry)}"


def _describe_training(entry: JobProgress) -> str:
    training = entry.training
    if training is None:
        return f"for {format_duration(entry.seconds)}"
    return (
        f"epoch {training.epoch}, {training.spent:,} of {training.budget:,} {training.unit}, "
        f"{training.rate:.0f} generations/s, {format_duration(training.seconds_left)} left"
    )


def _failed_lines(paths: Paths, entries: list[JobProgress]) -> Iterator[str]:
    for entry in _select(entries, "failed"):
        log = paths.log(entry.job.stage, entry.job.name)
        message = find_last_line(log.read_bytes()) if log.is_file() else "no log"
        killed = "killed; " if entry.killed else ""
        yield f"  failed    {entry.job}: {killed}{message} ({log})"


def _waiting_lines(entries: list[JobProgress]) -> Iterator[str]:
    waiting = [entry for entry in entries if entry.state == "waiting"]
    for entry in waiting:
        if entry.training:
            yield f"  waiting   {entry.job}: goes on after epoch {entry.training.epoch}"
    by_stage = Counter(entry.job.stage for entry in waiting)
    if by_stage:
        counts = ", ".join(f"{count} {stage}" for stage, count in by_stage.items())
        yield f"  waiting   {counts}"


def _select(entries: list[JobProgress], state: JobState) -> list[JobProgress]:
    """Return the first jobs in a state; the bar counts the others."""
    return [entry for entry in entries if entry.state == state][:MAX_LISTED_JOBS]


def find_last_line(log: bytes) -> str:
    """Return the last line of a log that is not empty; of a progress bar that was redrawn, its last state."""
    text = log.decode(errors="replace").replace("\r", "\n")
    for line in reversed(text.splitlines()):
        if line.strip():
            return line.strip()
    return "an empty log"


def _disk_line(paths: Paths) -> str:
    used = 0
    for file in paths.root.rglob("*"):
        # Temporary files of running jobs come and go during the walk.
        with contextlib.suppress(FileNotFoundError):
            if file.is_file() and not file.is_symlink():
                used += file.stat().st_size
    free = shutil.disk_usage(paths.root).free
    return f"  disk      {format_bytes(used)} here, {format_bytes(free)} free"


class StudyBar:
    """A thread that prints the study's bar among Snakemake's lines while the workflow runs.

    It prints lines of its own and never redraws: jobs write to the same terminal, and logs are read later.
    """

    def __init__(self, study: Study, paths: Paths, every: float = BAR_INTERVAL_SECONDS) -> None:
        self._progress = Progress(study, paths)
        self._interval = every
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, to_run: Collection[Job], not_asked_for: Collection[Job] = ()) -> None:
        """Start printing if any job has to run; those that were not asked for do not count."""
        if to_run:
            jobs = (frozenset(to_run), frozenset(not_asked_for))
            self._thread = threading.Thread(target=self._print_bars, args=jobs, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop printing."""
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def _print_bars(self, to_run: frozenset[Job], not_asked_for: frozenset[Job]) -> None:
        last_line = ""
        while not self._stopped.wait(self._interval):
            jobs = self._progress.read_jobs(to_run, not_asked_for)
            line = format_bar(self._progress, jobs)
            # A line that says nothing new is not printed again.
            if line != last_line:
                print(escape_controls(f"threespo: {line}"), file=sys.stderr, flush=True)
            last_line = line
