"""Accept a change of the code that changes no result: proven by running jobs again, and never by looking at the change.

Of jobs whose code differs from that of their records, those that were made by the same code with the same settings, seeds
apart, are of one kind: that of each kind which took the shortest runs again, in a folder of its own. If all write the bytes
that they wrote before, the records of all these jobs get the present digests, with a note. If one does not, nothing is
written.
"""

import contextlib
import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import try_lock, write_text
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.stages import (
    DRAWING_STAGES,
    STAGES,
    Job,
    code_digest,
    combine_code_digests,
    list_jobs,
)
from threespo.pipeline.workflow_run import lock_study
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.provenance.records import Record
from threespo.study.config import Study
from threespo.study.load import dump_study, load_study
from threespo.study.marks import json_digest
from threespo.study.resolve import current_study

FOLDER = ".accept"
"""In the results: where jobs run again. Hidden, so that it is no result."""

RUN_STAGES = ("train", "evaluate")
"""Stages that show whether a method's runs are as they were."""

DERIVED_FIELDS = ("mark", "accepted")
"""Settings of results that say what became of the code, and so change with it."""


@dataclass(frozen=True, slots=True)
class OutdatedJob:
    """A job whose code or settings have other digests than its record."""

    job: Job
    record: Record
    code: dict[str, str]
    field: dict[str, str]

    def kind(self) -> tuple[str, str]:
        """Return what one proof stands for: the stage, and the code and settings of the record but for its seed."""
        settings = {name: value for name, value in self.record.field.items() if name != "run.seed"}
        return (self.job.stage, json_digest([dict(self.record.code), settings]))

    @property
    def row(self) -> str:
        """Return the method or agent whose run the job trains or evaluates; "" for other jobs."""
        return self.job.name.split("/")[2] if self.job.stage in RUN_STAGES else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    accepted: Sequence[Job]
    """Jobs whose records have the present digests now."""
    run: Sequence[Job]
    """Jobs that were run again."""
    differences: Sequence[str]
    """What came out differently; then nothing was accepted."""


def accept(paths: Paths) -> Outcome:
    """Prove that a study's results are those of the present code, and write that into their records.

    Raises:
        InputError: if the workflow is at work on the study, results are damaged, a setting or an input has another value, or
            a record is of another machine or version.
    """
    with lock_study(paths):
        study = current_study(paths)
        stale = list(_stale(study, paths))
        chosen = _cheapest(stale)
        folder = paths.root / FOLDER
        try:
            found = _run_again(study, paths, Paths(folder), chosen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        proofs = {one.job: result for one, result in zip(chosen, found, strict=True)}
        differences = [line for lines, _ in found for line in lines]
        if differences:
            return Outcome((), [one.job for one in chosen], differences)
        note = _note(
            study, paths, {str(job): written for job, (_, written) in proofs.items()}, stale, chosen
        )
        for one in stale:
            _write(paths, one, note)
    return Outcome([one.job for one in stale], [one.job for one in chosen], ())


def _stale(study: Study, paths: Paths) -> Iterator[OutdatedJob]:
    """Yield the jobs whose code has changed, once all of their results are known to be whole.

    Raises:
        InputError: as ``accept`` does.
    """
    digests = DigestCache()
    machine = records.describe_environment()
    found, others = 0, list[str]()
    for job in list_jobs(study):
        # What is drawn the workflow makes anew in less time than a proof takes.
        record = None if job.stage in DRAWING_STAGES else records.read_record(paths, job)
        # What was edited while it ran is of no known code: the workflow runs it again.
        if record is None or records.EDITED_DURING_JOB in (
            *record.code.values(),
            *record.input.values(),
        ):
            continue
        if wrong := integrity.find_damage(paths, job, record, digests):
            raise InputError(
                f"{paths.root}: {wrong[0]}: only whole results can be accepted; run the workflow to mend them"
            )

        inputs = records.digest_files(paths, job.input_paths(study, paths), digests)
        now = integrity.collect_dependencies(study, paths, job, inputs)
        if _is_current(record, now):
            continue
        if difference := _other_result(job, record, now):
            others.append(difference)
            continue
        if other := [
            name for name in records.MACHINE_FIELDS if record.environment.get(name) != machine[name]
        ]:
            name = other[0]
            raise InputError(
                f"{paths.record(job.stage, job.name)}: made with {name} {record.environment.get(name, 'unknown')}, and this is "
                f"{machine[name]}: equal bytes can be expected on the same machine and versions only; accept it there"
            )
        found += 1
        yield OutdatedJob(job, record, dict(now.code), dict(now.field))
    if others and not found:
        raise InputError(f"{others[0]}: that is another result and no change of code; run the workflow")


def _is_current(record: Record, now: records.Dependencies) -> bool:
    names = record.field.keys() | now.field.keys()
    changed = {name for name in names if record.field.get(name) != now.field.get(name)}
    return changed <= set(DERIVED_FIELDS) and (record.code, record.input) == (now.code, now.input)


def _other_result(job: Job, record: Record, now: records.Dependencies) -> str:
    """Return what makes another result by intent: another value of a setting, or another input; "" if nothing does.

    Such a job is left to the workflow. Fields that appear or go are a matter of code, unless one takes the place of another.
    """
    for name in sorted((record.field.keys() & now.field.keys()) - set(DERIVED_FIELDS)):
        if record.field[name] != now.field[name]:
            return f"{job}: {name} was {record.field[name]} and is {now.field[name]}"
    gone, new = record.field.keys() - now.field.keys(), now.field.keys() - record.field.keys()
    for one, two in itertools.product(sorted(gone), sorted(new)):
        if f"{two}.".startswith(f"{one}.") or f"{one}.".startswith(f"{two}."):
            return f"{job}: {one} was {record.field[one]}, and now there is {two} = {now.field[two]}"
    for name in sorted(record.input.keys() | now.input.keys()):
        if record.input.get(name) != now.input.get(name):
            return f"{job}: {name} is not what the job has read"
    return ""


def _cheapest(stale: Sequence[OutdatedJob]) -> list[OutdatedJob]:
    """Return of every kind the job that took the shortest, in the order of the workflow."""
    best: dict[tuple[str, str], OutdatedJob] = {}
    for one in stale:
        kind = one.kind()
        if kind not in best or one.record.cost.get("seconds", 0) < best[kind].record.cost.get(
            "seconds", 0
        ):
            best[kind] = one
    chosen = {one.job for one in best.values()}
    return [one for one in stale if one.job in chosen]


def _run_again(
    study: Study, paths: Paths, apart: Paths, chosen: Sequence[OutdatedJob]
) -> list[tuple[list[str], str]]:
    """Run jobs again, and return of each what differs from its results, and a digest of what it has written."""
    found = []
    for number, one in enumerate(chosen, 1):
        took = one.record.cost.get("seconds", 0)
        print(
            f"accept: {number} of {len(chosen)}: {one.job} ({took:.0f} s when it was made)",
            file=sys.stderr,
            flush=True,
        )
        found.append(_run_one(study, paths, apart, one))
    return found


def _run_one(study: Study, paths: Paths, apart: Paths, one: OutdatedJob) -> tuple[list[str], str]:
    shutil.rmtree(apart.root, ignore_errors=True)
    apart.root.mkdir()
    write_text(apart.study, dump_study(study))
    read = [path for path in one.job.input_paths(study, paths) if path.is_relative_to(paths.root)]
    # Records say in tables what jobs took. Replies of closed models are read, and none is asked for.
    for path in (*read, paths.root / "stages", paths.cassettes, paths.call):
        if path.exists():
            link = apart.root / path.relative_to(paths.root)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.absolute())

    keys = {policy.endpoint.key_env for policy in study.policies.values() if policy.endpoint}
    environment = {name: value for name, value in os.environ.items() if name not in keys}
    environment["OMP_NUM_THREADS"] = str(study.training.threads)
    arguments = [str(paths.jobs_lock), str(apart.study), one.job.stage, one.job.name]
    command = [sys.executable, "-m", "threespo.pipeline.accept", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [f"{one.job}: fails now: {said}"], ""

    timed = [path.relative_to(apart.root).as_posix() for path in one.job.outputs(apart).timed]
    now, before = (
        {
            name: value
            for name, value in values.items()
            if not any(records.is_inside(name, path) for path in timed)
        }
        for values in (integrity.digest_outputs(apart, one.job, DigestCache()), one.record.output)
    )
    names = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    return [f"{one.job}: {name} comes out differently now" for name in names], json_digest(now)


def _note(
    study: Study,
    paths: Paths,
    run: dict[str, str],
    stale: Sequence[OutdatedJob],
    chosen: Sequence[OutdatedJob],
) -> dict[str, Any]:
    """Return what records say of the acceptance: the study's code before and after, and what was run again."""
    counted = {
        job: records.try_read_record(paths, job)
        for job in list_jobs(study)
        if job.stage not in DRAWING_STAGES
    }
    # A method is proven if a run of it was run again, or if none of its runs has other code than before; and all have ended.
    waiting = {
        job.name.split("/")[2]
        for job, record in counted.items()
        if job.stage in RUN_STAGES and record is None
    }
    unproven = {one.row for one in stale} - {one.row for one in chosen}
    return {
        "study": study.name,
        "from": combine_code_digests(
            record.code if record else job.code(study) for job, record in counted.items()
        ),
        "to": code_digest(study),
        "commit": records.current_commit(),
        "every_method": not (waiting | unproven) & {*study.methods, *study.agents},
        "run": run,
    }


def _write(paths: Paths, one: OutdatedJob, note: dict[str, Any]) -> None:
    field = one.field | {
        name: one.record.field[name] for name in DERIVED_FIELDS if name in one.record.field
    }
    accepted = (*one.record.accepted, note)
    records.write_record(
        paths, dataclasses.replace(one.record, code=one.code, field=field, accepted=accepted)
    )


def _run_job(lock: Path, file: Path, stage: str, name: str) -> None:
    """Do a job's work in a folder where nothing is recorded.

    While it lives nobody else begins: who started it may be killed, and the folder is the next one's, too.
    """
    from threespo.runs.gpus import claim_gpus
    from threespo.runs.launch import gpus_on_first_machine

    settings = Job(stage, name).settings(load_study(file), Paths(file.parent))
    with (
        try_lock(lock, shared=True) or contextlib.nullcontext(),
        claim_gpus(gpus_on_first_machine(settings), settings.runs_per_gpu),
    ):
        STAGES[stage].run(settings)


if __name__ == "__main__":
    try:
        _run_job(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    except InputError as error:
        sys.exit(str(error))
