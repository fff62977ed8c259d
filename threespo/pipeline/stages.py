"""The stages of a study and their jobs. Each stage is a file beside this one, and an entry of ``STAGES``.

The workflow's rules, the command line, the records of what a job was made of, and ``threespo why`` are all derived from this
table. A job is a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError, listed
from threespo.job_settings import JobSettings
from threespo.paths import PAPER, JobId, Paths
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
from threespo.provenance.code import code_of, reference
from threespo.provenance.digests import meaning_digest
from threespo.provenance.records import read_if_whole
from threespo.results.settings import ResultSettings
from threespo.study.config import Study
from threespo.study.marks import Step, digest, mark_in_words
from threespo.study.matrix import learning_runs, runs_of, trial_runs
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
"""The stages by name, each after those that it needs (except for trials: see ``jobs``)."""

DRAWN = ("notebook", "report")
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
            everything = tuple(jobs(study))
            notes = accepted_notes(everything, paths)
            mark = (
                mark_in_words(study, code_digest(study), steps_of(notes, study))
                if study.confirmatory
                else ""
            )
            steps = tuple(sorted({f"{note['from']} -> {note['to']}" for note in notes}))
            return settings.model_copy(update={"jobs": everything, "mark": mark, "accepted": steps})
        return settings

    def inputs(self, study: Study, paths: Paths) -> Files:
        """Return the files that the job reads."""
        return STAGES[self.stage].inputs(study, paths, self.name)

    def reads(self, study: Study, paths: Paths) -> list[Path]:
        """Return the same files without their names."""
        return [path for group in self.inputs(study, paths).values() for path in group]

    def outputs(self, paths: Paths) -> Outputs:
        """Return what the job writes."""
        return STAGES[self.stage].outputs(paths, self.name)

    def code(self, study: Study) -> dict[str, str]:
        """Return the digest of every part of the package, and of every data file, that the job may run or read."""
        stage = STAGES[self.stage]
        return code_of(reference(stage.run), tuple(stage.looked_up(study, self.name)))


def jobs(study: Study) -> list[Job]:
    """Return all jobs of a study; each comes after those that it needs."""
    everything = [Job(name, job) for name, stage in STAGES.items() for job in stage.jobs(study)]
    # Trials are trained and evaluated before the runs whose learning rates they decide.
    trials = {run.run_id for run in trial_runs(study)}
    return sorted(
        everything,
        key=lambda job: job.stage not in ("data", "policy", "tune") and job.name not in trials,
    )


def jobs_of(study: Study, part: Part) -> list[Job]:
    """Return the last jobs of one part of a study, those that tables read: what they need is made before them.

    Raises:
        InputError: if no entry stands in the part.
    """
    runs = runs_of(study, part)
    if not any(run.method in study.methods for run in runs):
        there = [name for name in PARTS if any(name in entry.parts for entry in study.methods.values())]
        raise InputError(
            f"study {study.name!r} has no rows in the part {part!r}; it has: {listed(there)}"
        )
    curves = set(learning_runs(study)) if part == "figures" else set()
    return [Job("evaluate", run.run_id) for run in runs] + [
        Job("learning", run.run_id) for run in runs if run in curves
    ]


def makers(study: Study, paths: Paths) -> dict[Path, Job]:
    """Return the jobs of a study by what they write."""
    return {path: job for job in jobs(study) for path in job.outputs(paths).paths()}


def check_job(study: Study, job: Job) -> None:
    """Check that a study has a job.

    Raises:
        InputError: if it has not; names those that it has.
    """
    names = STAGES[job.stage].jobs(study)
    if job.name not in names:
        raise InputError(
            f"study {study.name!r} has nothing to do for {str(job)!r}; it has: {listed(names)}"
        )


def code_digest(study: Study) -> str:
    """Return the digest of the code of all jobs up to the tables, and of the rules that decide claims."""
    return digest_of_codes(job.code(study) for job in jobs(study) if job.stage not in DRAWN)


def digest_of_codes(codes: Iterable[Mapping[str, str]]) -> str:
    """Return the digest of the code of several jobs together, and of the rules that decide claims."""
    found = {name: meaning_digest(PAPER / name) for name in _ANALYSIS}
    for code in codes:
        found |= code
    # The policies that come with the repository: those of other sizes do not matter, and a run's record has its own.
    return digest({name: value for name, value in found.items() if "/shipped/" not in name})


def accepted_notes(among: Iterable[Job], paths: Paths) -> list[Mapping[str, Any]]:
    """Return what the records of jobs say of changes of the code that were proven to change no result."""
    found = [read_if_whole(paths, job) for job in among]
    return [note for record in found if record for note in record.accepted]


def steps_of(notes: Iterable[Mapping[str, Any]], study: Study) -> set[Step]:
    """Return the digests of the code before and after each change that every method of this very study was run again for."""
    return {
        (note["from"], note["to"])
        for note in notes
        if note["every_method"] and note["study"] == study.name
    }
