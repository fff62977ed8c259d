"""One call of the workflow: what its main process does before the first job, and says after the last."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from threespo.errors import InputError
from threespo.files import (
    copy_folder,
    read_lock_holder,
    replace_folder,
    try_lock,
    write_json,
    write_lock_holder,
    write_text,
)
from threespo.paths import Paths
from threespo.pipeline import journal
from threespo.pipeline.plan import Verdict, plan_jobs, summarize
from threespo.pipeline.reuse import link_results
from threespo.pipeline.snakemake_adapter import find_locks
from threespo.pipeline.stages import Job
from threespo.provenance.code import clear_caches
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study
from threespo.study.configuration import CONFIGURATION_DIGEST, STUDY_FILE_DIGEST, read_call
from threespo.study.load import dump_study
from threespo.study.marks import configuration_digest
from threespo.study.resolve import ResolvedStudy


class WorkflowRun:
    """Decides what runs in one call of the workflow, and locks the study meanwhile."""

    def __init__(self, resolved: ResolvedStudy) -> None:
        """Prepare for a call; nothing is read or written yet."""
        self._resolved = resolved
        self._study = resolved.study
        self._paths = resolved.paths
        self._lock: IO[str] | None = None
        self._verdicts: Sequence[Verdict] = ()
        self._record_times: dict[Job, int | None] = {}
        """When each record was written, at the beginning of the call."""
        self.reasons: Sequence[str] = ()
        """What runs and why, a line for each reason."""
        self.outputs: Collection[str] = ()
        """Outputs of all jobs that have to run."""
        self.complete = False
        """Whether nothing is left to be done; known at the end."""

    def begin(self, *, execute: bool) -> None:
        """Decide which jobs have to run.

        Args:
            execute: jobs will run, so the study is locked and written, and results are taken from other studies. Otherwise
                nothing is written.

        Raises:
            InputError: if another call works on the study, or the results cannot be written.
        """
        if execute:
            self._lock = lock_study(self._paths)
            _refuse_snakemake_locks(self._paths)
            self._refuse_other_study()
            write_study(self._study, self._paths, self._resolved.call)
            self._copy_cassettes()

        self._verdicts = self._plan(save=execute)
        self.reasons = summarize(self._verdicts)
        if execute:
            self._link_from_other_studies()
            self._record_times = {
                verdict.job: self._record_time(verdict.job) for verdict in self._verdicts
            }
        # In a dry run what would be taken is not there, so Snakemake lists its jobs.
        runs = [verdict.job for verdict in self._verdicts if verdict.must_run or verdict.source]
        self.outputs = {str(path) for job in runs for path in job.outputs(self._paths).paths()}

    @property
    def to_run(self) -> list[Job]:
        """The jobs that have to run, or whose inputs are made again."""
        return [verdict.job for verdict in self._verdicts if verdict.must_run]

    def start(self, outputs: Collection[str]) -> tuple[list[Job], list[Job]]:
        """Write down that the work begins, and return its jobs, and those that wait for another call.

        Args:
            outputs: those of all jobs that were asked for and have to run.
        """
        asked: list[Job] = []
        waiting: list[Job] = []
        for job in self.to_run:
            is_asked = any(str(path) in outputs for path in job.outputs(self._paths).paths())
            (asked if is_asked else waiting).append(job)
        journal.start_journal(self._paths, asked, waiting)
        return asked, waiting

    def end(self) -> str:
        """Return one line on what has been done, and what is left: not asked for, failed, or edited meanwhile."""
        done = sum(self._record_time(job) != before for job, before in self._record_times.items())
        clear_caches()
        left = {verdict.job for verdict in self._plan(save=True) if verdict.must_run or verdict.source}
        finished = sum(verdict.must_run and verdict.job not in left for verdict in self._verdicts)
        unchanged = finished - done
        self.complete = not left

        parts = [f"{done} of {len(self._verdicts)} jobs done"]
        if unchanged > 0:
            parts.append(f"{unchanged} found up to date")
        if left:
            parts.append(f"{len(left)} still to be done (threespo why {self._paths.root})")
        return ", ".join(parts)

    def _plan(self, *, save: bool) -> list[Verdict]:
        digests = DigestCache(self._paths.digests)
        verdicts = plan_jobs(self._study, self._paths, digests)
        if save:
            digests.save()
        return verdicts

    def _link_from_other_studies(self) -> None:
        """Link the results that other studies have, and decide again: they may have been changed meanwhile."""
        reusable = [verdict for verdict in self._verdicts if verdict.source]
        for verdict in reusable:
            link_results(cast(Paths, verdict.source), self._paths, verdict.job)
        if reusable:
            self._verdicts = self._plan(save=True)

    def _refuse_other_study(self) -> None:
        """Refuse to overwrite the results of another study that has the same name."""
        root = self._paths.root
        call = self._resolved.call
        before = read_call(self._paths)
        if before is None:
            return
        # A study may also be called by its own file in its results.
        own_file = self._paths.study.name
        if before["file"] != call["file"] and own_file not in (before["file"], call["file"]):
            raise InputError(
                f"{root}: holds the results of the study in {before['file']}; give {call['file']} another 'name'"
            )
        changes = before["config"].get("set")
        if call["config"].get("name") is not None and changes != call["config"].get("set"):
            raise InputError(
                f"{root}: holds the study with set={json.dumps(changes)}; choose another name= (equal results are "
                "taken from there)"
            )

    def _copy_cassettes(self) -> None:
        """Copy the recorded replies of the unchanged study: they cost money. No links, since cassettes grow in place."""
        theirs = self._resolved.unchanged_paths.cassettes
        ours = self._paths.cassettes
        if theirs.is_dir() and not ours.exists():
            with replace_folder(ours) as temporary:
                copy_folder(theirs, temporary)

    def _record_time(self, job: Job) -> int | None:
        try:
            return self._paths.record(job.stage, job.name).stat().st_mtime_ns
        except FileNotFoundError:
            return None


def write_study(study: Study, paths: Paths, call: Mapping[str, Any]) -> None:
    """Write the study's file, from which jobs read it, and what the workflow was asked for, with digests of the study."""
    text = dump_study(study)
    digests = {
        STUDY_FILE_DIGEST: hashlib.sha256(text.encode()).hexdigest(),
        CONFIGURATION_DIGEST: configuration_digest(study),
    }
    write_text(paths.study, text)
    write_json(paths.call, {**call, **digests})


def lock_study(paths: Paths) -> IO[str]:
    """Lock a study for this process, until it ends.

    Raises:
        InputError: if another workflow has locked it, or jobs of one that was killed are still at work.
    """
    handle = try_lock(paths.lock)
    if handle is None:
        raise InputError(
            f"{paths.root}: another call of the workflow ({read_lock_holder(paths.lock)}) is at work on this study. "
            "Wait until it ends; a study with other settings (--config set=…) can run at the same time."
        )
    jobs_lock = try_lock(paths.jobs_lock)
    if jobs_lock is None:
        raise InputError(
            f"{paths.root}: jobs of a workflow that was killed are still at work. Wait until they end, or stop them: "
            f"pkill -f '{paths.study}'"
        )
    jobs_lock.close()

    write_lock_holder(handle)
    return handle


def _refuse_snakemake_locks(paths: Paths) -> None:
    if find_locks(paths.root):
        raise InputError(
            f"{paths.root}: a Snakemake that was killed has left its lock; no process works on this study any more. "
            f"Clear it with: threespo unlock {paths.root}"
        )


def unlock(paths: Paths) -> list[Path]:
    """Remove the locks that a killed Snakemake has left for a study, and return them.

    Raises:
        InputError: if a process works on the study.
    """
    with lock_study(paths):
        found = find_locks(paths.root)
        for lock in found:
            lock.unlink()
    return found
