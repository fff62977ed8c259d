"""The stages of a study and their jobs. Each stage is a file of this folder, and an entry of ``STAGES``.

The workflow's rules, the command line, the records of what a job was made of, and ``threespo why`` are all derived from this
table. A job is a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError, format_names
from threespo.job_settings import JobSettings
from threespo.paths import PAPER_FOLDER, JobId, Paths, trials_file
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
from threespo.provenance.code import digest_reachable_code, function_reference
from threespo.provenance.digests import semantic_digest
from threespo.provenance.records import try_read_record
from threespo.results.settings import ResultSettings
from threespo.runs.learning_rate import read_trials
from threespo.study.config import Study
from threespo.study.marks import AcceptedStep, describe_mark, describe_rates_at_edge, json_digest
from threespo.study.matrix import base_trials, learning_runs, runs_of_part, trial_runs, tuned_rows
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

_CLAIM_FILES = ("claims.yaml", "results.yaml", "efficiency.csv")
"""Files of the paper's numbers and claims, with the rules and bounds that decide them."""


@dataclass(frozen=True, slots=True)
class Job(JobId):
    """A job, with what its stage says of it."""

    def settings(
        self, study: Study, paths: Paths, context: "ResultContext | None" = None
    ) -> JobSettings:
        """Return all that the job reads of the study.

        Args:
            study: the study.
            paths: where its results lie.
            context: what results show of the other jobs, where it is there already: it is read from all records.
        """
        settings = STAGES[self.stage].settings(study, paths, self.name)
        if not isinstance(settings, ResultSettings):
            return settings
        shown = (context or ResultContext(study, paths)).fields
        return settings.model_copy(update=shown)

    def inputs(self, study: Study, paths: Paths) -> Files:
        """Return the files that the job reads, by the names that its rule has for them."""
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
        return digest_reachable_code(
            function_reference(stage.run), tuple(stage.extra_modules(study, self.name))
        )


class ResultContext:
    """What tables and report show of a study's other jobs, and of its mark, which depends on the code of all of them."""

    def __init__(self, study: Study, paths: Paths) -> None:
        """Nothing is read before it is asked for."""
        self._study = study
        self._paths = paths

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of ``ResultSettings`` that no stage can fill in by itself."""
        study = self._study
        everything = tuple(list_jobs(study))
        notes = read_acceptances(everything, self._paths)
        mark = ""
        if study.confirmatory:
            mark = describe_mark(study, code_digest(study), accepted_steps(notes, study))
            mark += describe_rates_at_edge(_rows_at_edge(study, self._paths))
        steps = sorted({f"{note['from']} -> {note['to']}" for note in notes})
        return {"jobs": everything, "mark": mark, "accepted": tuple(steps)}


def _rows_at_edge(study: Study, paths: Paths) -> list[str]:
    """Return the rows, ENV/POLICY/METHOD, whose learning rate has been chosen at an edge of what was tried."""
    # Before the trials nothing is known; tables and report come after them.
    chosen = [names for names in tuned_rows(study) if trials_file(paths, *names).is_file()]
    return ["/".join(names) for names in chosen if read_trials(paths, *names)["at_edge"]]


def list_jobs(study: Study) -> list[Job]:
    """Return all jobs of a study; each comes after those that it needs."""
    everything = [Job(name, job) for name, stage in STAGES.items() for job in stage.jobs(study)]
    # Trials are trained and evaluated before the runs whose learning rates they decide.
    trials = {run.run_id for run in (*base_trials(study), *trial_runs(study))}

    def comes_later(job: Job) -> bool:
        return job.stage not in ("data", "policy", "tune") and job.name not in trials

    return sorted(everything, key=comes_later)


def list_jobs_of_part(study: Study, part: Part) -> list[Job]:
    """Return the last jobs of one part of a study, those that tables read: what they need is made before them.

    Raises:
        InputError: if no entry belongs to the part.
    """
    runs = runs_of_part(study, part)
    if not any(run.method in study.methods for run in runs):
        parts = [name for name in PARTS if any(name in entry.parts for entry in study.methods.values())]
        raise InputError(
            f"study {study.name!r} has no rows in the part {part!r}; it has: {format_names(parts)}"
        )

    evaluations = [Job("evaluate", run.run_id) for run in runs]
    if part != "figures":
        return evaluations
    with_curves = set(learning_runs(study))
    return evaluations + [Job("learning", run.run_id) for run in runs if run in with_curves]


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
    found = {name: semantic_digest(PAPER_FOLDER / name) for name in _CLAIM_FILES}
    for code in codes:
        found |= code
    # The policies that come with the repository: those of other sizes do not matter, and a run's record has its own.
    counted = {name: value for name, value in found.items() if "/shipped/" not in name}
    return json_digest(counted)


def read_acceptances(among: Iterable[Job], paths: Paths) -> list[Mapping[str, Any]]:
    """Return what the records of jobs say of changes that were proven to change no result (``pipeline/accept.py``)."""
    found = [try_read_record(paths, job) for job in among]
    return [note for record in found if record for note in record.accepted]


def accepted_steps(notes: Iterable[Mapping[str, Any]], study: Study) -> set[AcceptedStep]:
    """Return the digests before and after each accepted change of code or configuration.

    Only changes count that every method of this very study was run again for.
    """
    steps: set[AcceptedStep] = set()
    for note in notes:
        if note["every_method"] and note["study"] == study.name:
            steps.add((note["from"], note["to"]))
            if "configuration" in note:
                steps.add((note["configuration"]["from"], note["configuration"]["to"]))
    return steps
