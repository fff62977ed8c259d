"""The stages of a study and their jobs. Each stage is a file beside this one, and an entry of ``STAGES``.

The workflow's rules, the command line, the records of what a job was made of, and ``threespo why`` are all derived from this
table. A job is a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError, format_names
from threespo.job_settings import JobSettings
from threespo.paths import PAPER_FOLDER, JobId, Paths
from threespo.pipeline import (
    data,
    decision_trees,
    evaluate,
    learning,
    notebook,
    policy,
    probe,
    report,
    tables,
    train,
    tune,
)
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.provenance.code import code_of, function_reference
from threespo.provenance.digests import semantic_digest
from threespo.provenance.records import try_read_record
from threespo.results.settings import ResultSettings
from threespo.study.config import Study
from threespo.study.marks import AcceptedStep, describe_mark, json_digest
from threespo.study.matrix import learning_runs, runs_of_part, trial_runs
from threespo.study.parts import PARTS, Part

STAGES: dict[str, Stage] = {
    "data": data.STAGE,
    "policy": policy.STAGE,
    "train": train.STAGE,
    "evaluate": evaluate.STAGE,
    "learning": learning.STAGE,
    "tune": tune.STAGE,
    "probe": probe.STAGE,
    "decision_trees": decision_trees.STAGE,
    "tables": tables.STAGE,
    "notebook": notebook.STAGE,
    "report": report.STAGE,
}
"""The stages by name, each after those that it needs (except for trials: see ``list_jobs``)."""

DRAWING_STAGES = ("notebook", "report")
"""Stages that only draw what the tables hold; verdicts and intervals are computed for the tables."""

_ANALYSIS = ("claims.yaml", "results.yaml", "efficiency.csv")
"""Files of the paper's numbers and claims, with the rules and bounds that decide them."""


@dataclass(frozen=True, slots=True)
class Job(JobId):
    """A job, with what its stage says of it."""

    def settings(self, study: Study, paths: Paths) -> JobSettings:
        """Return all that the job reads of the study."""
        settings = STAGES[self.stage].settings(study, paths, self.name)
        if isinstance(settings, ResultSettings):
            # What results show of the study's other jobs, and of its mark, which depends on the code of all of them.
            everything = tuple(list_jobs(study))
            notes = read_acceptances(everything, paths)
            mark = (
                describe_mark(study, code_digest(study), accepted_steps(notes, study))
                if study.confirmatory
                else ""
            )
            steps = tuple(sorted({f"{note['from']} -> {note['to']}" for note in notes}))
            return settings.model_copy(update={"jobs": everything, "mark": mark, "accepted": steps})
        return settings

    def inputs(self, study: Study, paths: Paths) -> Files:
        """Return the files that the job reads."""
        return STAGES[self.stage].inputs(study, paths, self.name)

    def input_paths(self, study: Study, paths: Paths) -> list[Path]:
        """Return the same files without their names."""
        return [path for group in self.inputs(study, paths).values() for path in group]

    def outputs(self, paths: Paths) -> Outputs:
        """Return what the job writes."""
        return STAGES[self.stage].outputs(paths, self.name)

    def code(self, study: Study) -> dict[str, str]:
        """Return the digest of every part of the package, and of every data file, that the job may run or read."""
        stage = STAGES[self.stage]
        return code_of(function_reference(stage.run), tuple(stage.extra_modules(study, self.name)))


def list_jobs(study: Study) -> list[Job]:
    """Return all jobs of a study; each comes after those that it needs."""
    everything = [Job(name, job) for name, stage in STAGES.items() for job in stage.jobs(study)]
    # Trials are trained and evaluated before the runs whose learning rates they decide.
    trials = {run.run_id for run in trial_runs(study)}
    return sorted(
        everything,
        key=lambda job: job.stage not in ("data", "policy", "tune") and job.name not in trials,
    )


def list_jobs_of_part(study: Study, part: Part) -> list[Job]:
    """Return the last jobs of one part of a study, those that tables read: what they need is made before them.

    Raises:
        InputError: if no entry stands in the part.
    """
    runs = runs_of_part(study, part)
    if not any(run.method in study.methods for run in runs):
        there = [name for name in PARTS if any(name in entry.parts for entry in study.methods.values())]
        raise InputError(
            f"study {study.name!r} has no rows in the part {part!r}; it has: {format_names(there)}"
        )
    curves = set(learning_runs(study)) if part == "figures" else set()
    return [Job("evaluate", run.run_id) for run in runs] + [
        Job("learning", run.run_id) for run in runs if run in curves
    ]


def map_outputs_to_jobs(study: Study, paths: Paths) -> dict[Path, Job]:
    """Return the jobs of a study by what they write."""
    return {path: job for job in list_jobs(study) for path in job.outputs(paths).paths()}


def check_job(study: Study, job: Job) -> None:
    """Check that a study has a job.

    Raises:
        InputError: if it has not; names those that it has.
    """
    names = STAGES[job.stage].jobs(study)
    if job.name not in names:
        raise InputError(
            f"study {study.name!r} has nothing to do for {str(job)!r}; it has: {format_names(names)}"
        )


def code_digest(study: Study) -> str:
    """Return the digest of the code of all jobs up to the tables, and of the rules that decide claims."""
    return combine_code_digests(
        job.code(study) for job in list_jobs(study) if job.stage not in DRAWING_STAGES
    )


def combine_code_digests(codes: Iterable[Mapping[str, str]]) -> str:
    """Return the digest of the code of several jobs together, and of the rules that decide claims."""
    found = {name: semantic_digest(PAPER_FOLDER / name) for name in _ANALYSIS}
    for code in codes:
        found |= code
    # The policies that come with the repository: those of other sizes do not matter, and a run's record has its own.
    return json_digest({name: value for name, value in found.items() if "/shipped/" not in name})


def read_acceptances(among: Iterable[Job], paths: Paths) -> list[Mapping[str, Any]]:
    """Return what the records of jobs say of changes of the code that were proven to change no result."""
    found = [try_read_record(paths, job) for job in among]
    return [note for record in found if record for note in record.accepted]


def accepted_steps(notes: Iterable[Mapping[str, Any]], study: Study) -> set[AcceptedStep]:
    """Return the digests of the code before and after each change that every method of this very study was run again for."""
    return {
        (note["from"], note["to"])
        for note in notes
        if note["every_method"] and note["study"] == study.name
    }
