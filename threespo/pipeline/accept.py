"""Accept a change of code or settings that changes no result: proven by running jobs again, never by reading the change.

Of the jobs whose code or settings differ from those of their records, those are of one kind that agree in the old code, and
in the old and the new settings but for the seed. The cheapest job of each kind runs again, in a folder of its own, by the
present code and settings. If all of them write the bytes that they wrote before, the records of all these jobs get the
present digests, with a note. If one does not, it is named and nothing is written.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.pipeline import integrity
from threespo.pipeline.perform import reserve_devices
from threespo.pipeline.stages import (
    DRAWING_STAGES,
    STAGES,
    Job,
    ResultContext,
    code_digest,
    combine_code_digests,
    list_jobs,
)
from threespo.pipeline.workflow_run import lock_study, write_study
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.provenance.records import Dependencies, Record
from threespo.study.config import Study
from threespo.study.configuration import CONFIGURATION_DIGEST, read_call
from threespo.study.load import dump_study, load_study
from threespo.study.marks import configuration_digest, json_digest
from threespo.study.resolve import current_study

FOLDER = ".accept"
"""In the results: where jobs run again. Hidden, so that it is no result."""

RUN_STAGES = ("train", "evaluate")
"""Stages that show whether a method's runs are as they were."""

DERIVED_FIELDS = ("mark", "accepted")
"""Settings of tables and report that say what became of the code, and so change with it."""

SEED = "run.seed"
"""The setting in which jobs of one kind may differ."""


@dataclass(frozen=True, slots=True)
class OutdatedJob:
    """A job whose code or settings differ from those of its record."""

    job: Job
    record: Record
    now: Dependencies

    @property
    def kind(self) -> tuple[str, str]:
        """The jobs that one proof is valid for: the stage, and a digest of code and settings but for the seed."""
        old_settings = _without(self.record.field, SEED)
        new_settings = _without(self.now.field, SEED)
        made_from = [dict(self.record.code), dict(self.now.code), old_settings, new_settings]
        return self.job.stage, json_digest(made_from)

    @property
    def seconds(self) -> float:
        """What the job took when its results were made."""
        return float(self.record.cost.get("seconds", 0))

    @property
    def changed_settings(self) -> list[str]:
        """Names of the settings that were added, removed or changed."""
        return _changed_settings(self.record, self.now)

    @property
    def row(self) -> str:
        """The method or agent whose run the job trains or evaluates; "" for other jobs."""
        return _row(self.job) if self.job.stage in RUN_STAGES else ""


class Proof(NamedTuple):
    """What came of running a job again."""

    job: Job
    differences: Sequence[str]
    """A line for every result that differs; empty where all bytes are equal."""
    written: str
    """Digest of all that it has written."""


class Outcome(NamedTuple):
    """What came of an attempt to accept a change."""

    accepted: Sequence[Job]
    """Jobs whose records have the present digests now."""
    rerun: Sequence[Job]
    """Jobs that were run again as a proof."""
    differences: Sequence[str]
    """Results that differ; then nothing was accepted."""


def accept(paths: Paths) -> Outcome:
    """Prove that a study's results are those of the present code and settings, and write that into their records.

    Raises:
        InputError: if the workflow is at work on the study, results are damaged, inputs are others than those that were
            read, or a record is of another machine or version.
    """
    with lock_study(paths):
        study = current_study(paths)
        outdated = list(_find_outdated(study, paths))
        chosen = _choose_cheapest(outdated)
        scratch = Paths(paths.root / FOLDER)
        try:
            proofs = list(_run_again(study, paths, scratch, chosen))
        finally:
            shutil.rmtree(scratch.root, ignore_errors=True)

        rerun = [proof.job for proof in proofs]
        differences = [line for proof in proofs for line in proof.differences]
        if differences:
            return Outcome((), rerun, differences)
        if outdated:
            note = _describe_acceptance(study, paths, proofs, outdated)
            configuration = _describe_configuration(study, paths)
            for outdated_job in outdated:
                _update_record(paths, outdated_job, note, configuration)
            # The file that jobs read has the present settings from here on, as after a call of the workflow.
            call = read_call(paths)
            if call is not None:
                write_study(study, paths, call)
        return Outcome([outdated_job.job for outdated_job in outdated], rerun, ())


def _find_outdated(study: Study, paths: Paths) -> Iterator[OutdatedJob]:
    """Yield the jobs whose code or settings have changed, and whose results are whole.

    Raises:
        InputError: as ``accept`` does.
    """
    digests = DigestCache()
    context = ResultContext(study, paths)
    machine = records.describe_environment()
    other_inputs: list[str] = []
    found = 0
    for job in list_jobs(study):
        # Drawings the workflow makes again in less time than a proof takes.
        record = None if job.stage in DRAWING_STAGES else records.read_record(paths, job)
        if record is None:
            continue
        # The code that results came from is unknown where it was edited meanwhile: the workflow runs the job again.
        if records.EDITED_DURING_JOB in (*record.code.values(), *record.input.values()):
            continue
        inputs = records.digest_files(paths, job.input_paths(study, paths), digests)
        now = integrity.collect_dependencies(study, paths, job, inputs, context)
        changed_inputs = records.changed_names(record.input, now.input)
        if changed_inputs:
            other_inputs.append(f"{job}: {changed_inputs[0]} is not what the job has read")
            continue

        # After the inputs: a job that runs again anyway may lack a file that the present code writes in addition.
        damage = integrity.find_damage(paths, job, record, digests)
        if damage:
            raise InputError(
                f"{paths.root}: {damage[0]}: only whole results can be accepted; run the workflow to mend them"
            )
        if record.code == now.code and not _changed_settings(record, now):
            continue
        _check_machine(paths, job, record, machine)
        found += 1
        yield OutdatedJob(job, record, now)

    # Such jobs are left to the workflow, but somebody who has only those is told why nothing can be accepted.
    if other_inputs and not found:
        raise InputError(
            f"{other_inputs[0]}: other inputs give other results, which cannot be accepted; run the workflow"
        )


def _check_machine(paths: Paths, job: Job, record: Record, machine: dict[str, str]) -> None:
    """Refuse results of another machine or library, where the same code writes other bytes."""
    for name in records.MACHINE_FIELDS:
        if record.environment.get(name) != machine[name]:
            raise InputError(
                f"{paths.record(job.stage, job.name)}: made with {name} {record.environment.get(name, 'unknown')}, and this "
                f"is {machine[name]}: equal bytes can be expected on the same machine and versions only; accept it there"
            )


def _choose_cheapest(outdated: Sequence[OutdatedJob]) -> list[OutdatedJob]:
    """Return of every kind the job that took the shortest, in the order of the workflow."""
    cheapest: dict[tuple[str, str], OutdatedJob] = {}
    for candidate in outdated:
        best = cheapest.setdefault(candidate.kind, candidate)
        if candidate.seconds < best.seconds:
            cheapest[candidate.kind] = candidate
    chosen = {candidate.job for candidate in cheapest.values()}
    return [candidate for candidate in outdated if candidate.job in chosen]


def _run_again(
    study: Study, paths: Paths, scratch: Paths, chosen: Sequence[OutdatedJob]
) -> Iterator[Proof]:
    """Run jobs again one after another, and yield what came of each."""
    for number, outdated in enumerate(chosen, 1):
        job = outdated.job
        print(
            f"accept: {number} of {len(chosen)}: {job} ({outdated.seconds:.0f} s when it was made)",
            file=sys.stderr,
            flush=True,
        )
        _prepare_folder(study, paths, scratch, job)
        failure = _run_in_process(study, paths, scratch, job)
        yield failure or _compare_with_record(scratch, outdated)


def _prepare_folder(study: Study, paths: Paths, scratch: Paths, job: Job) -> None:
    """Make the folder in which the job runs again, with links to what it reads."""
    shutil.rmtree(scratch.root, ignore_errors=True)
    scratch.root.mkdir()
    write_text(scratch.study, dump_study(study))

    read = [path for path in job.input_paths(study, paths) if path.is_relative_to(paths.root)]
    # Tables show from the records what jobs took. Replies of closed models are read from their recordings.
    for path in (*read, paths.root / "stages", paths.cassettes, paths.call):
        if path.exists():
            link = scratch.root / path.relative_to(paths.root)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.absolute())


def _run_in_process(study: Study, paths: Paths, scratch: Paths, job: Job) -> Proof | None:
    """Run the job in a process of its own, and return a proof of its failure; None if it ends well."""
    # Without their keys no closed model is asked.
    keys = {policy.endpoint.key_env for policy in study.policies.values() if policy.endpoint}
    environment = {name: value for name, value in os.environ.items() if name not in keys}
    environment["OMP_NUM_THREADS"] = str(study.training.threads)
    arguments = [str(paths.jobs_lock), str(scratch.study), job.stage, job.name]
    command = [sys.executable, "-m", "threespo.pipeline.accept", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if not done.returncode:
        return None
    messages = done.stderr.strip().splitlines() or ["no message"]
    return Proof(job, [f"{job}: fails now: {messages[-1]}"], "")


def _compare_with_record(scratch: Paths, outdated: OutdatedJob) -> Proof:
    """Compare what the job has written in the scratch folder with its record, apart from files that hold times."""
    job = outdated.job
    timed = [path.relative_to(scratch.root).as_posix() for path in job.outputs(scratch).timed]

    def without_times(digests: records.Values) -> dict[str, str]:
        return {
            name: digest
            for name, digest in digests.items()
            if not any(records.is_inside(name, path) for path in timed)
        }

    now = without_times(integrity.digest_outputs(scratch, job, DigestCache()))
    before = without_times(outdated.record.output)
    changed = ", ".join(outdated.changed_settings)
    cause = f" (settings that differ: {changed})" if changed else ""
    differences = [
        f"{job}: {name} comes out differently now{cause}" for name in records.changed_names(before, now)
    ]
    return Proof(job, differences, json_digest(now))


def _describe_acceptance(
    study: Study, paths: Paths, proofs: Sequence[Proof], outdated: Sequence[OutdatedJob]
) -> dict[str, Any]:
    """Return the note for the records: the study's code before and after, and what was run again."""
    jobs = [job for job in list_jobs(study) if job.stage not in DRAWING_STAGES]
    found = {job: records.try_read_record(paths, job) for job in jobs}
    code_before = [record.code if record else job.code(study) for job, record in found.items()]

    # A method is proven if all its runs have ended, and one of them was run again or none has changed.
    unfinished = {_row(job) for job in jobs if job.stage in RUN_STAGES and found[job] is None}
    rerun = {proof.job for proof in proofs}
    outdated_rows = {outdated_job.row for outdated_job in outdated}
    proven_rows = {outdated_job.row for outdated_job in outdated if outdated_job.job in rerun}
    unproven = outdated_rows - proven_rows
    rows = {*study.methods, *study.agents}
    return {
        "study": study.name,
        "from": combine_code_digests(code_before),
        "to": code_digest(study),
        "commit": records.current_commit(),
        "every_method": not rows & (unfinished | unproven),
        "run": {str(proof.job): proof.written for proof in proofs},
    }


def _describe_configuration(study: Study, paths: Paths) -> dict[str, str]:
    """Return the digests of the study's configuration before and after; "unknown" where no call of the workflow noted it."""
    call = read_call(paths) or {}
    before = call.get(CONFIGURATION_DIGEST, "unknown")
    return {"from": before, "to": configuration_digest(study)}


def _update_record(
    paths: Paths, outdated: OutdatedJob, note: dict[str, Any], configuration: dict[str, str]
) -> None:
    """Write the present digests into a job's record, and the note, with the settings where these have changed."""
    record = outdated.record
    changed = outdated.changed_settings
    if changed:
        note = {**note, "configuration": configuration, "settings": changed}
    # What tables and report took from the records stays as it was when they were made: it differs now, since these records
    # have a note more, so both are made again and show it.
    derived = {name: value for name, value in record.field.items() if name in DERIVED_FIELDS}
    updated = dataclasses.replace(
        record,
        code=dict(outdated.now.code),
        field={**outdated.now.field, **derived},
        accepted=(*record.accepted, note),
    )
    records.write_record(paths, updated)


def _without(values: records.Values, *names: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def _changed_settings(record: Record, now: Dependencies) -> list[str]:
    changed = records.changed_names(record.field, now.field)
    return [name for name in changed if name not in DERIVED_FIELDS]


def _row(job: Job) -> str:
    """Return the method or agent in the name of a run."""
    return job.name.split("/")[2]


def _run_job(lock: Path, file: Path, stage: str, name: str) -> None:
    """Do a job's work in a folder where nothing is recorded.

    The study's lock outlives the process that started this one, which may be killed: the next would use the same folder.
    """
    settings = Job(stage, name).settings(load_study(file), Paths(file.parent))
    with reserve_devices(lock, settings):
        STAGES[stage].run(settings)


if __name__ == "__main__":
    try:
        _run_job(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    except InputError as error:
        sys.exit(str(error))
