"""One call of the workflow: what its main process does before the first job, and says after the last."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, cast

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
from threespo.study.configuration import STUDY_DIGEST, read_call
from threespo.study.load import dump_study
from threespo.study.resolve import Resolved


class WorkflowRun:
    """Decides what runs in one call of the workflow, and holds the study meanwhile."""

    def __init__(self, resolved: Resolved) -> None:
        """Prepare for a call; nothing is read or written yet."""
        self._resolved = resolved
        self._study = resolved.study
        self._paths = resolved.paths
        self._lock: IO[str] | None = None
        self._verdicts: Sequence[Verdict] = ()
        self._records: dict[Job, int | None] = {}
        self.reasons: Sequence[str] = ()
        """What runs and why, a line for each reason."""
        self.outputs: Collection[str] = ()
        """Outputs of all jobs that have to run."""
        self.complete = False
        """Known at the end: nothing is left to be done."""

    def begin(self, *, execute: bool) -> None:
        """Decide which jobs have to run.

        Args:
            execute: jobs will run, so the study is held, written, and results are taken from other studies. Otherwise
                nothing is written.

        Raises:
            InputError: if another call works on the study, or the results cannot be written.
        """
        if execute:
            self._lock = lock_study(self._paths)
            _refuse_locked(self._paths)
            self._refuse_other()
            write_text(self._paths.study, dump_study(self._study))
            write_json(self._paths.call, {**self._resolved.call, STUDY_DIGEST: self._resolved.digest})
            self._copy_cassettes()

        self._verdicts = self._plan(save=execute)
        self.reasons = summarize(self._verdicts)
        taken = [verdict for verdict in self._verdicts if verdict.source]
        if execute:
            for verdict in taken:
                link_results(cast(Paths, verdict.source), self._paths, verdict.job)
            # The other study may have gone on meanwhile: what was taken is looked at like everything else.
            self._verdicts = self._plan(save=True) if taken else self._verdicts
            self._records = {verdict.job: self._written(verdict.job) for verdict in self._verdicts}
        # In a dry run what would be taken is not there, so Snakemake lists its jobs.
        runs = [verdict.job for verdict in self._verdicts if verdict.runs or verdict.source]
        self.outputs = {str(path) for job in runs for path in job.outputs(self._paths).paths()}

    @property
    def to_run(self) -> list[Job]:
        """The jobs that have to run, or to be looked at since what they need is made anew."""
        return [verdict.job for verdict in self._verdicts if verdict.runs]

    def start(self, made: Collection[str]) -> tuple[list[Job], list[Job]]:
        """Write down that the work begins, and return its jobs, and those that wait for another call.

        Args:
            made: the outputs of all jobs that were asked for and have to run.
        """
        asked = [
            job
            for job in self.to_run
            if any(str(path) in made for path in job.outputs(self._paths).paths())
        ]
        left = [job for job in self.to_run if job not in asked]
        journal.start_journal(self._paths, asked, left)
        return asked, left

    def _plan(self, *, save: bool) -> list[Verdict]:
        digests = DigestCache(self._paths.digests)
        verdicts = plan_jobs(self._study, self._paths, digests)
        if save:
            digests.save()
        return verdicts

    def _refuse_other(self) -> None:
        """Refuse to put results in the place of another study's that has the same name."""
        root, call = self._paths.root, self._resolved.call
        before = read_call(self._paths)
        if before is None:
            return
        file, config = before["file"], before["config"]
        # A study may also be called by its own file in its results.
        if file != call["file"] and self._paths.study.name not in (file, call["file"]):
            raise InputError(
                f"{root}: holds the results of the study in {file}; give {call['file']} another 'name'"
            )
        if call["config"].get("name") is not None and config.get("set") != call["config"].get("set"):
            raise InputError(
                f"{root}: holds the study with set={json.dumps(config.get('set'))}; choose another name= (equal results are "
                "taken from there)"
            )

    def _copy_cassettes(self) -> None:
        """Copy the recorded replies of the unchanged study: they cost money. No links, since cassettes grow in place."""
        theirs, ours = self._resolved.unchanged.cassettes, self._paths.cassettes
        if theirs.is_dir() and not ours.exists():
            with replace_folder(ours) as temporary:
                copy_folder(theirs, temporary)

    def end(self) -> str:
        """Return one line on what has been done, and what is left: not asked for, failed, or edited meanwhile."""
        done = sum(self._written(job) != before for job, before in self._records.items())
        clear_caches()
        left = {verdict.job for verdict in self._plan(save=True) if verdict.runs or verdict.source}
        stood = sum(verdict.runs and verdict.job not in left for verdict in self._verdicts) - done
        self.complete = not left
        parts = [
            f"{done} of {len(self._verdicts)} jobs done",
            f"{stood} looked at and left as they were" if stood > 0 else "",
            f"{len(left)} still to be done (threespo why {self._paths.root})" if left else "",
        ]
        return ", ".join(filter(None, parts))

    def _written(self, job: Job) -> int | None:
        try:
            return self._paths.record(job.stage, job.name).stat().st_mtime_ns
        except FileNotFoundError:
            return None


def lock_study(paths: Paths) -> IO[str]:
    """Hold a study for this process, until it ends.

    Raises:
        InputError: if another workflow holds it, or jobs of one that was killed are still at work.
    """
    handle = try_lock(paths.lock)
    if handle is None:
        raise InputError(
            f"{paths.root}: another call of the workflow ({read_lock_holder(paths.lock)}) is at work on this study. Wait until it "
            "ends; a study with other settings (--config set=…) can run beside it."
        )
    if (jobs := try_lock(paths.jobs_lock)) is None:
        raise InputError(
            f"{paths.root}: jobs of a workflow that was killed are still at work. Wait until they end, or stop them: "
            f"pkill -f '{paths.study}'"
        )
    jobs.close()

    write_lock_holder(handle)
    return handle


def _refuse_locked(paths: Paths) -> None:
    if find_locks(paths.root):
        raise InputError(
            f"{paths.root}: a Snakemake that was killed has left its lock; nobody is at work on this study any more. "
            f"Clear it with: threespo unlock {paths.root}"
        )


def unlock(paths: Paths) -> list[Path]:
    """Remove the locks that a killed Snakemake has left for a study, and return them.

    Raises:
        InputError: if somebody is at work on the study.
    """
    with lock_study(paths):
        found = find_locks(paths.root)
        for lock in found:
            lock.unlink()
    return found
