"""Which jobs of a study have to run, and why: decided by the records that lie beside the results, and by nothing else.

The workflow runs what :func:`plan` says, ``threespo why`` shows it, ``threespo check`` lists what is damaged. So the answer
is the same in another clone, at another path, on another day.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from threespo.errors import InputError
from threespo.paths import NOTEBOOKS_FOLDER, Paths
from threespo.pipeline import integrity
from threespo.pipeline.reuse import find_reusable
from threespo.pipeline.stages import Job, list_jobs, map_outputs_to_jobs
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.study.config import Study
from threespo.study.configuration import check_study_file
from threespo.study.resolve import current_study

MAX_REASONS = 12
"""Most lines of reasons that the workflow prints; ``threespo why`` has all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a job."""

    job: Job
    damage: Sequence[str] = ()
    """What of its results is not as its record has it; or that there is no record."""
    changes: Sequence[str] = ()
    """What it was made of that is different now."""
    follows: Sequence[Job] = ()
    """Jobs that run before it and write what it reads. It runs again if they come out differently."""
    source: Paths | None = None
    """A study beside this one whose results are those that the job would make."""
    new: bool = False
    """The job has not ended yet in this folder."""
    accepted: str = ""
    """The commit at which its results were accepted as those of the present code (``pipeline/accept.py``)."""

    @property
    def runs(self) -> bool:
        """Whether the job has to be looked at by the workflow."""
        return bool(self.damage or self.changes or self.follows) and self.source is None

    def lines(self) -> list[str]:
        """Return ``JOB: STATE`` and an indented line for each reason."""
        state = "unchanged"
        if self.source:
            state = f"taken from {self.source.root}"
        elif self.damage or self.changes:
            state = "changed"
        elif self.follows:
            state = f"follows {self.follows[0]}"
        elif self.accepted:
            state = f"unchanged, accepted at {self.accepted[:12]}"
        return [f"{self.job}: {state}", *(f"  {line}" for line in (*self.damage, *self.changes))]


@dataclass(slots=True)
class _Standing:
    """What is known of results while the jobs are gone through in their order."""

    digests: dict[Path, dict[str, str]] = field(default_factory=dict)
    """Of outputs whose jobs do not run, by the names that records have for them."""
    map_outputs_to_jobs: dict[Path, Job] = field(default_factory=dict)
    """The jobs that run, by output."""
    neighbours: dict[Path, DigestCache] = field(default_factory=dict)
    """Digests of the results of studies beside this one."""


def plan_jobs(
    study: Study, paths: Paths, digests: DigestCache | None, among: Sequence[Job] | None = None
) -> list[Verdict]:
    """Return a verdict on every job of the study, in an order in which they can run.

    Args:
        study: the study.
        paths: where its results lie.
        digests: computes digests of results; without it records are compared with each other, and no result is looked at.
        among: the jobs that are asked for, with all that they need; by default all.
    """
    standing = _Standing()
    return [
        _verdict(study, paths, job, standing, digests)
        for job in (list_jobs(study) if among is None else among)
    ]


def check_upstream(study: Study, paths: Paths, job: Job) -> None:
    """Make sure that everything behind a job was made with the present settings and code, before the job uses it.

    The workflow sees to that; a command that is called by hand, or a part of the workflow, may come too early.

    Raises:
        InputError: if a job that it needs, at any distance, would run again.
    """
    for verdict in plan_jobs(study, paths, None, _behind(study, paths, [job])[:-1]):
        if reasons := (*verdict.damage, *verdict.changes):
            raise InputError(
                f"{job}: needs '{verdict.job}', which would come out otherwise now ({' '.join(reasons[0].split())}). "
                "Run the workflow, which makes it again."
            )


def _behind(study: Study, paths: Paths, wanted: Sequence[Job]) -> list[Job]:
    """Return these jobs and all that they need, in the order of the workflow."""
    everything = list_jobs(study)
    made_by = map_outputs_to_jobs(study, paths)
    found, waiting = set(wanted), list(wanted)
    while waiting:
        needed = {
            made_by[path] for path in waiting.pop().input_paths(study, paths) if path in made_by
        } - found
        found |= needed
        waiting += needed
    return [job for job in everything if job in found]


def _verdict(
    study: Study, paths: Paths, job: Job, standing: _Standing, digests: DigestCache | None
) -> Verdict:
    read = job.input_paths(study, paths)
    follows = tuple(dict.fromkeys(standing.makers[path] for path in read if path in standing.makers))
    # What is about to be made anew cannot be compared yet.
    settled = [path for path in read if path not in standing.makers]
    inputs = records.digest_files(
        paths, [path for path in settled if path not in standing.digests], digests or DigestCache()
    )
    for path in settled:
        inputs.update(standing.digests.get(path, {}))
    now = integrity.collect_dependencies(study, paths, job, inputs)

    verdict = _compared(paths, job, now, follows, digests)
    if (
        verdict.runs
        and not follows
        and digests
        and (source := find_reusable(paths, job, now, standing.neighbours))
    ):
        verdict = Verdict(job, verdict.damage, verdict.changes, source=source, new=verdict.new)

    # The next jobs compare with what is there, with what will be taken, or wait.
    made = job.outputs(paths).paths()
    if verdict.runs:
        standing.makers.update(dict.fromkeys(made, job))
    else:
        record = records.read_record(verdict.source or paths, job)
        assert record is not None, "a job that does not run has a record"
        for path in made:
            standing.digests[path] = records.select_inside(
                path.relative_to(paths.root).as_posix(), record.output
            )
    return verdict


def _compared(
    paths: Paths,
    job: Job,
    now: records.Dependencies,
    follows: Sequence[Job],
    digests: DigestCache | None,
) -> Verdict:
    """Compare a job's record with its results and with its ingredients as they are now."""
    try:
        record = records.read_record(paths, job)
    except InputError:
        file = paths.record(job.stage, job.name).relative_to(paths.root)
        return Verdict(
            job, (f"{file}: the job's record is damaged, or of an older version",), follows=follows
        )
    if record is None:
        return Verdict(job, ("has not ended yet in this folder",), follows=follows, new=True)

    pending = [
        path.relative_to(paths.root).as_posix()
        for other in follows
        for path in other.outputs(paths).paths()
    ]
    awaited = {name for name in record.input if any(records.is_inside(name, path) for path in pending)}
    before = {name: value for name, value in record.input.items() if name not in awaited}
    changes = [
        f"{kind:5}  {name}: {_shown(old.get(name))} -> {_shown(new.get(name))}"
        for kind, old, new in (
            ("field", record.field, now.field),
            ("code", record.code, now.code),
            ("input", before, now.input),
        )
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    damage = integrity.find_damage(paths, job, record, digests) if digests else ()
    accepted = str(record.accepted[-1].get("commit", "unknown")) if record.accepted else ""
    return Verdict(job, tuple(damage), tuple(changes), follows, accepted=accepted)


def _shown(value: str | None) -> str:
    """Shorten a digest; a value that is absent on one side is ``(none)``."""
    if value is None:
        return "(none)"
    return value[:12] if len(value) == 64 else value


def summarize(verdicts: Sequence[Verdict]) -> list[str]:
    """Return what will run and why, a line for each reason, however many jobs share it."""
    taken = [verdict for verdict in verdicts if verdict.source]
    new = [verdict for verdict in verdicts if verdict.runs and verdict.new]
    lines = [
        f"{_jobs(len(list(group)))} taken from {root}"
        for root, group in itertools.groupby(sorted(taken, key=_source), _source)
    ]
    lines += [f"{_jobs(len(new))} not done yet"] if new else []

    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.runs and not verdict.new and (reasons := (*verdict.damage, *verdict.changes)):
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            groups.setdefault((verdict.job.stage, reasons[0] + more), []).append(verdict)
    for (_, reason), group in groups.items():
        others = f" and {_jobs(len(group) - 1)} like it" if len(group) > 1 else ""
        lines.append(f"{group[0].job}{others}: {' '.join(reason.split())}")

    hidden = len(lines) - MAX_REASONS
    if hidden > 1:
        lines = [*lines[:MAX_REASONS], f"and {hidden} reasons more; `threespo why` has all"]
    following = sum(verdict.runs and not (verdict.damage or verdict.changes) for verdict in verdicts)
    if following:
        lines.append(f"{_jobs(following)} after these, each only if what it reads comes out differently")
    return lines


def _source(verdict: Verdict) -> str:
    return str(verdict.source.root) if verdict.source else ""


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def explain_changes(target: Path) -> list[str]:
    """Say for every job behind ``target`` (a file or folder of a study's results) what has changed since it ran.

    The record of each job is compared with the results and with the present code, settings and inputs.

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
    _check_folder()
    paths = Paths(root)
    study = current_study(paths)

    # A target may also be a folder that holds results of many jobs, or a file inside a folder that is one result.
    everything = list_jobs(study)
    wanted = {
        job
        for job in everything
        if any(_related(target, output) for output in job.outputs(paths).paths())
    }
    if not wanted:
        raise InputError(
            f"{target}: no threespo command makes this. Ask for {root} or for data/, policy/, runs/, tables/, figures/, "
            "notebooks/ or report.html in it."
        )

    verdicts = plan_jobs(study, paths, DigestCache(paths.digests), _behind(study, paths, list(wanted)))
    return [line for verdict in verdicts for line in verdict.lines()]


def _related(target: Path, output: Path) -> bool:
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
    _check_folder()
    digests = DigestCache(None if deep else paths.digests)
    verdicts = plan_jobs(study, paths, digests)
    digests.save()
    wrong = [verdict for verdict in verdicts if verdict.damage]
    well = not any(verdict.runs for verdict in verdicts)
    lines = [f"{verdict.job}: {line}" for verdict in wrong for line in verdict.damage]
    known = [records.read_record(paths, verdict.job) for verdict in verdicts if not verdict.damage]
    files = sum(len(record.output) for record in known if record)
    if stale := sum(bool(verdict.changes) and not verdict.damage for verdict in verdicts):
        lines.append(
            f"{_jobs(stale)} would run again, since what they were made of has changed: threespo why {paths.root}"
        )
    # No job's: the workflow writes it.
    try:
        check_study_file(paths)
    except InputError as error:
        lines.insert(0, str(error))
        well = False
    whole = len(verdicts) - len(wrong)
    lines.append(
        f"{paths.root}: {whole} of {_jobs(len(verdicts))} have their results as recorded ({files} files)"
    )
    return lines, well


def _check_folder() -> None:
    """Refuse to compare where the files of the repository that jobs read are not to be found."""
    if not NOTEBOOKS_FOLDER.is_dir():
        raise InputError(
            f"{Path.cwd()}: call this in the folder of the repository: jobs read its notebooks/ and config/"
        )
