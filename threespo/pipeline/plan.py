"""Which jobs of a study have to run, and why: decided by the records that lie with the results, and by nothing else.

The workflow runs what :func:`plan_jobs` says, ``threespo why`` shows it, ``threespo check`` lists what is damaged. So the
answer is the same in another clone, at another path, on another day.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import NOTEBOOKS_FOLDER, Paths
from threespo.pipeline import integrity
from threespo.pipeline.reuse import find_reusable
from threespo.pipeline.stages import Job, ResultContext, list_jobs, map_outputs_to_jobs
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study
from threespo.study.configuration import check_study_file
from threespo.study.resolve import current_study

MAX_REASONS = 12
"""Lines of reasons that the workflow prints; ``threespo why`` has all."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a whole SHA-256, which are shortened where a person reads them."""

SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job has to run, and why."""

    job: Job
    damage: Sequence[str] = ()
    """What of its results is not as its record has it; or that there is no record."""
    changes: Sequence[str] = ()
    """Its code, settings and inputs that are different now."""
    waits_for: Sequence[Job] = ()
    """Jobs that run before it, since they write what it reads. It runs too, if their results differ then."""
    source: Paths | None = None
    """Another study whose results are those that the job would make."""
    is_new: bool = False
    """Whether the job has never ended in this folder."""
    acceptance: str = ""
    """At which commit its results were accepted as those of the present code, and through which changes of settings."""

    @property
    def must_run(self) -> bool:
        """Whether the workflow has to start the job."""
        return bool(self.damage or self.changes or self.waits_for) and self.source is None

    @property
    def reasons(self) -> list[str]:
        """What of the job itself makes it run."""
        return [*self.damage, *self.changes]

    def lines(self) -> list[str]:
        """Return ``JOB: STATE`` and an indented line for each reason."""
        state = "unchanged"
        if self.source:
            state = f"taken from {self.source.root}"
        elif self.reasons:
            state = "changed"
        elif self.waits_for:
            state = f"follows {self.waits_for[0]}"
        elif self.acceptance:
            state = f"unchanged, {self.acceptance}"
        return [f"{self.job}: {state}", *(f"  {reason}" for reason in self.reasons)]


@dataclass(slots=True)
class _Planner:
    """Decides on one job after another, and keeps what the jobs after it need to know."""

    study: Study
    paths: Paths
    digests: DigestCache | None
    """Computes digests of results; without it records are compared with each other, and no result is read."""
    context: ResultContext
    output_digests: dict[Path, dict[str, str]] = field(default_factory=dict)
    """Of outputs whose jobs do not run: digests by the names that records have for the files."""
    pending: dict[Path, Job] = field(default_factory=dict)
    """Outputs that will be written again, each with its job."""
    other_studies: dict[Path, DigestCache] = field(default_factory=dict)
    """Digests of the results of other studies in the same folder, by the study's folder."""

    def decide(self, job: Job) -> Verdict:
        """Return the verdict on a job whose upstream jobs have been decided on."""
        read = job.input_paths(self.study, self.paths)
        makers = [self.pending[path] for path in read if path in self.pending]
        waits_for = tuple(dict.fromkeys(makers))

        now = self._collect_dependencies(job, read)
        verdict = self._compare_with_record(job, now, waits_for)
        # What a job that waits will read is unknown, so no other study can be known to have its results.
        if verdict.must_run and not waits_for and self.digests:
            source = find_reusable(self.paths, job, now, self.other_studies)
            if source:
                verdict = replace(verdict, source=source, acceptance="")
        self._note_outputs(job, verdict)
        return verdict

    def _collect_dependencies(self, job: Job, read: Sequence[Path]) -> records.Dependencies:
        """Return what the job depends on now, apart from inputs that are about to be made again."""
        settled = [path for path in read if path not in self.pending]
        from_outside = [path for path in settled if path not in self.output_digests]
        inputs = records.digest_files(self.paths, from_outside, self.digests or DigestCache())
        for path in settled:
            inputs.update(self.output_digests.get(path, {}))
        return integrity.collect_dependencies(self.study, self.paths, job, inputs, self.context)

    def _compare_with_record(
        self, job: Job, now: records.Dependencies, waits_for: Sequence[Job]
    ) -> Verdict:
        """Compare a job's record with its results and with its present code, settings and inputs."""
        paths = self.paths
        try:
            record = records.read_record(paths, job)
        except InputError:
            file = paths.record(job.stage, job.name).relative_to(paths.root)
            reason = f"{file}: the job's record is damaged, or of an older version"
            return Verdict(job, (reason,), waits_for=waits_for)
        if record is None:
            reason = "has not ended yet in this folder"
            return Verdict(job, (reason,), waits_for=waits_for, is_new=True)

        # Inputs that are about to be made again are missing in ``now``, so they are no change yet.
        pending = [path for other in waits_for for path in other.outputs(paths).paths()]
        pending_names = [path.relative_to(paths.root).as_posix() for path in pending]
        recorded_inputs = {
            name: digest
            for name, digest in record.input.items()
            if not any(records.is_inside(name, pending_name) for pending_name in pending_names)
        }
        changes = [
            *_list_changes("field", record.field, now.field),
            *_list_changes("code", record.code, now.code),
            *_list_changes("input", recorded_inputs, now.input),
        ]
        damage = integrity.find_damage(paths, job, record, self.digests) if self.digests else []
        acceptance = describe_acceptance(record)
        return Verdict(job, tuple(damage), tuple(changes), waits_for, acceptance=acceptance)

    def _note_outputs(self, job: Job, verdict: Verdict) -> None:
        """Note for the jobs that read this one's outputs whether these will be written again, or what is in them."""
        outputs = job.outputs(self.paths).paths()
        if verdict.must_run:
            self.pending.update(dict.fromkeys(outputs, job))
            return
        # Outputs that will be linked from another study are those of its record.
        record = records.read_record(verdict.source or self.paths, job)
        assert record is not None, "a job that does not run has a record"
        for path in outputs:
            name = path.relative_to(self.paths.root).as_posix()
            self.output_digests[path] = records.select_inside(name, record.output)


def plan_jobs(
    study: Study, paths: Paths, digests: DigestCache | None, among: Sequence[Job] | None = None
) -> list[Verdict]:
    """Return a verdict on every job of the study, in an order in which they can run.

    Args:
        study: the study.
        paths: where its results lie.
        digests: computes digests of results; without it records are compared with each other, and no result is read.
        among: the jobs that are asked for, with all that they need; by default all.
    """
    planner = _Planner(study, paths, digests, ResultContext(study, paths))
    jobs = list_jobs(study) if among is None else among
    return [planner.decide(job) for job in jobs]


def check_upstream(study: Study, paths: Paths, job: Job) -> None:
    """Make sure that all that a job depends on was made with the present settings and code, before the job uses it.

    The workflow sees to that; a command that is called by hand, or a part of the workflow, may come too early.

    Raises:
        InputError: if a job that it needs, at any distance, would run again.
    """
    needed = [other for other in _list_upstream(study, paths, [job]) if other != job]
    for verdict in plan_jobs(study, paths, None, needed):
        if verdict.reasons:
            reason = " ".join(verdict.reasons[0].split())
            raise InputError(
                f"{job}: needs '{verdict.job}', which is out of date ({reason}). Run the workflow, which makes it again."
            )


def _list_upstream(study: Study, paths: Paths, wanted: Sequence[Job]) -> list[Job]:
    """Return these jobs and all that they need, at any distance, in the order of the workflow."""
    makers = map_outputs_to_jobs(study, paths)
    found = set(wanted)
    to_visit = list(wanted)
    while to_visit:
        read = to_visit.pop().input_paths(study, paths)
        needed = {makers[path] for path in read if path in makers} - found
        found |= needed
        to_visit += needed
    return [job for job in list_jobs(study) if job in found]


def _list_changes(kind: str, before: records.Values, now: records.Values) -> list[str]:
    """Return a line for each value that differs, with both values."""
    return [
        f"{kind:5}  {name}: {_shorten(before.get(name))} -> {_shorten(now.get(name))}"
        for name in records.changed_names(before, now)
    ]


def _shorten(value: str | None) -> str:
    """Return a digest's first digits, any other value as it is, and ``(none)`` where there is none."""
    if value is None:
        return "(none)"
    return value[:SHOWN_DIGITS] if len(value) == DIGEST_LENGTH else value


def describe_acceptance(record: records.Record) -> str:
    """Return at which commit a record's results were accepted last, and with which settings; "" if they were not."""
    if not record.accepted:
        return ""
    note = record.accepted[-1]
    text = f"accepted at {str(note.get('commit', 'unknown'))[:SHOWN_DIGITS]}"
    settings = note.get("settings")
    return f"{text} with other settings ({', '.join(settings)})" if settings else text


def summarize(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what will run and why, a line for each reason, however many jobs share it."""
    sources = Counter(str(verdict.source.root) for verdict in verdicts if verdict.source)
    lines = [f"{_count_jobs(count)} taken from {root}" for root, count in sorted(sources.items())]
    new_jobs = sum(verdict.must_run and verdict.is_new for verdict in verdicts)
    if new_jobs:
        lines.append(f"{_count_jobs(new_jobs)} not done yet")

    # Jobs of one stage with the same reason share a line.
    jobs_by_reason: dict[tuple[str, str], list[Job]] = {}
    for verdict in verdicts:
        reasons = verdict.reasons
        if verdict.must_run and not verdict.is_new and reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            key = (verdict.job.stage, reasons[0] + more)
            jobs_by_reason.setdefault(key, []).append(verdict.job)
    for (_, reason), jobs in jobs_by_reason.items():
        others = f" and {_count_jobs(len(jobs) - 1)} like it" if len(jobs) > 1 else ""
        one_line_reason = " ".join(reason.split())
        lines.append(f"{jobs[0]}{others}: {one_line_reason}")

    # A line that says that one line is hidden would take its place.
    hidden = len(lines) - MAX_REASONS
    if hidden > 1:
        lines = [*lines[:MAX_REASONS], f"and {hidden} reasons more; `threespo why` has all"]
    following = sum(verdict.must_run and not verdict.reasons for verdict in verdicts)
    if following:
        lines.append(
            f"{_count_jobs(following)} after these, each only if what it reads comes out differently"
        )
    return lines


def _count_jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def explain_changes(target: Path) -> list[str]:
    """Say for every job that ``target`` (a file or folder of a study's results) depends on what has changed since it ran.

    Returns:
        The lines of each verdict, in the order of the workflow.

    Raises:
        InputError: if the target does not belong to the results of a study.
    """
    # Not ``resolve``: results may be reached through a link, and outputs are compared by path.
    target = Path(os.path.abspath(target))  # noqa: PTH100
    root = next((folder for folder in (target, *target.parents) if Paths(folder).study.is_file()), None)
    if root is None:
        raise InputError(
            f"{target}: not in a folder of results; name one such as results/smoke/report.html"
        )
    _check_working_folder()
    paths = Paths(root)
    study = current_study(paths)

    # A target may also be a folder that holds results of many jobs, or a file inside a folder that is one result.
    wanted = [
        job
        for job in list_jobs(study)
        if any(_overlaps(target, output) for output in job.outputs(paths).paths())
    ]
    if not wanted:
        raise InputError(
            f"{target}: no threespo command makes this. Ask for {root} or for data/, policy/, runs/, tables/, figures/, "
            "notebooks/ or report.html in it."
        )

    upstream = _list_upstream(study, paths, wanted)
    verdicts = plan_jobs(study, paths, DigestCache(paths.digests), upstream)
    return [line for verdict in verdicts for line in verdict.lines()]


def _overlaps(target: Path, output: Path) -> bool:
    """Return whether one path is the other or lies in it."""
    return target == output or target in output.parents or output in target.parents


def check_study(study: Study, paths: Paths, *, deep: bool) -> tuple[list[str], bool]:
    """Compare all results of a study with their records.

    Args:
        study: the study.
        paths: where its results lie.
        deep: read every byte, also of files whose size and times are as they were.

    Returns:
        A line for everything that is missing, damaged or edited, one if anything is out of date, one that sums up; and
        whether all is well.
    """
    _check_working_folder()
    digests = DigestCache(None if deep else paths.digests)
    verdicts = plan_jobs(study, paths, digests)
    digests.save()

    damaged = [verdict for verdict in verdicts if verdict.damage]
    whole = [verdict for verdict in verdicts if not verdict.damage]
    lines = [f"{verdict.job}: {line}" for verdict in damaged for line in verdict.damage]
    outdated = sum(bool(verdict.changes) for verdict in whole)
    if outdated:
        lines.append(
            f"{_count_jobs(outdated)} would run again, since what they were made of has changed: threespo why {paths.root}"
        )

    is_well = not any(verdict.must_run for verdict in verdicts)
    # The study's file is no job's output: the workflow writes it.
    try:
        check_study_file(paths)
    except InputError as error:
        lines.insert(0, str(error))
        is_well = False

    whole_records = [records.read_record(paths, verdict.job) for verdict in whole]
    files = sum(len(record.output) for record in whole_records if record)
    lines.append(
        f"{paths.root}: {len(whole)} of {_count_jobs(len(verdicts))} have their results as recorded ({files} files)"
    )
    return lines, is_well


def _check_working_folder() -> None:
    """Refuse to compare where the files of the repository that jobs read are not to be found."""
    if not NOTEBOOKS_FOLDER.is_dir():
        raise InputError(
            f"{Path.cwd()}: call this in the folder of the repository: jobs read its notebooks/ and config/"
        )
