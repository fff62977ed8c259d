"""The stages of a study: what each one calls, reads, writes and depends on. Defined here once.

The workflow's rules, the command line, the records of what a job was made of, and ``threespo why`` are all derived from this
table. A job is a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.errors import InputError, listed
from threespo.study import files, resolve_jobs
from threespo.study.catalogue import notebook, notebooks
from threespo.study.config import Study
from threespo.study.fingerprint import describe
from threespo.study.matrix import (
    base_policies,
    choices,
    decision_tree_rows,
    evaluated_runs,
    find_run,
    learning_runs,
    probed_runs,
    runs_of,
    trained_runs,
    trial_runs,
)
from threespo.study.parts import PARTS, Part
from threespo.study.paths import Paths, Run
from threespo.study.run_settings import JobSettings


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; functions take the study, its paths and a job's name."""

    about: str
    """What it does, as the command's help says it."""
    calls: str
    """``module:function``, called with the job's settings. Its module and all that this imports are the stage's code."""
    arguments: tuple[str, ...]
    """Parts of a job's name, as the command line asks for them."""
    pattern: str
    """A job's name with the workflow's wildcards."""
    jobs: Callable[[Study], Sequence[str]]
    settings: Callable[[Study, Paths, str], JobSettings]
    inputs: Callable[[Study, Paths, str], files.Files]
    """Files and folders that the job reads."""
    outputs: Callable[[Paths, str], files.Outputs]
    extensions: Callable[[Study, str], Sequence[str]] = lambda *_: ()
    """Modules that the job takes from registries, by name and not by import."""
    reusable: bool = True
    """Whether the results of another study may be taken; not where they name the study."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of the workflow that is a ``threespo`` command."""

    stage: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.stage} {self.name}".strip()

    def settings(self, study: Study, paths: Paths) -> JobSettings:
        """Return all that the job reads of the study."""
        return STAGES[self.stage].settings(study, paths, self.name)

    def inputs(self, study: Study, paths: Paths) -> files.Files:
        """Return the files that the job reads."""
        return STAGES[self.stage].inputs(study, paths, self.name)

    def reads(self, study: Study, paths: Paths) -> list[Path]:
        """Return the same files without their names."""
        return [path for group in self.inputs(study, paths).values() for path in group]

    def outputs(self, paths: Paths) -> files.Outputs:
        """Return what the job writes."""
        return STAGES[self.stage].outputs(paths, self.name)

    def code(self, study: Study) -> dict[str, str]:
        """Return the digest of every module and data file that the job's code is made of."""
        stage = STAGES[self.stage]
        return describe((stage.calls.partition(":")[0], *stage.extensions(study, self.name)))


def jobs(study: Study) -> list[Job]:
    """Return all jobs of a study; each comes after those that it needs."""
    everything = [Job(name, job) for name, stage in STAGES.items() for job in stage.jobs(study)]
    # Trials are trained and evaluated before the runs whose learning rates they decide.
    trials = {run.run_id for run in trial_runs(study)}
    return sorted(everything, key=lambda job: job.stage not in ("data", "policy", "tune") and job.name not in trials)


def jobs_of(study: Study, part: Part) -> list[Job]:
    """Return the last jobs of one part of a study, those that tables read: what they need is made before them.

    Raises:
        InputError: if no entry stands in the part.
    """
    runs = runs_of(study, part)
    if not any(run.method in study.methods for run in runs):
        there = [name for name in PARTS if any(name in entry.parts for entry in study.methods.values())]
        raise InputError(f"study {study.name!r} has no rows in the part {part!r}; it has: {listed(there)}")
    curves = set(learning_runs(study)) if part == "figures" else set()
    return [Job("evaluate", run.run_id) for run in runs] + [Job("learning", run.run_id) for run in runs if run in curves]


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
        raise InputError(f"study {study.name!r} has nothing to do for {str(job)!r}; it has: {listed(names)}")


def _of_environment(_: Study, name: str) -> Sequence[str]:
    return (ENVIRONMENTS[name.split("/")[0]],)


def _of_policy(study: Study, name: str) -> Sequence[str]:
    curriculum = environment(name.split("/")[0]).curriculum
    return (*_of_environment(study, name), *([curriculum.partition(":")[0]] if curriculum else []))


def _of_training(study: Study, name: str) -> Sequence[str]:
    return (*_of_environment(study, name), f"threespo.methods.{study.methods[find_run(study, name).method].method}")


def _of_decision_trees(study: Study, name: str) -> Sequence[str]:
    assert study.laboratory is not None
    return (f"threespo.methods.{study.laboratory.methods[name.split('/')[1]].method}",)


def _of_results(study: Study, _: str) -> Sequence[str]:
    # Which rows and figures there are is decided in ``study``, which fingerprints otherwise leave out.
    return (*_DECIDED, *_presentations(study))


def _of_notebook(study: Study, name: str) -> Sequence[str]:
    entry = notebook(name)
    # What others draw is in their tables: a new figure or row elsewhere is no reason to draw theirs again.
    decided = _DECIDED if "threespo.results.curves" in entry.modules else ()
    return (*entry.modules, *decided, *(_presentations(study) if entry.environments else ()))


_DECIDED = ("threespo.study.matrix", "threespo.study.parts", "threespo.study.catalogue")


def _presentations(study: Study) -> list[str]:
    return [environment(env).presentation.partition(":")[0] for env in study.environments]


def _of_data(_: Study, name: str) -> Sequence[str]:
    return (ENVIRONMENTS[name], environment(name).prepare.partition(":")[0])


def _ids(runs: Sequence[Run]) -> list[str]:
    return [run.run_id for run in runs]


_RUN = "{env}/{policy}/{method}/{which}"

STAGES: dict[str, Stage] = {
    "data": Stage(
        about="prepare the tasks of an environment",
        calls="threespo.runs.data:prepare",
        arguments=("env",),
        pattern="{env}",
        jobs=lambda study: list(study.environments),
        settings=resolve_jobs.data_settings,
        inputs=lambda *_: {},
        outputs=files.data_outputs,
        extensions=_of_data,
    ),
    "policy": Stage(
        about="provide the base policy (and its strong clone) of an environment",
        calls="threespo.imitation.base_policy:provide",
        arguments=("env", "policy"),
        pattern="{env}/{policy}",
        jobs=lambda study: ["/".join(base) for base in base_policies(study)],
        settings=resolve_jobs.base_policy_settings,
        inputs=files.policy_inputs,
        outputs=files.policy_outputs,
        extensions=_of_policy,
    ),
    "train": Stage(
        about="train one run; an interrupted one goes on from its last checkpoint",
        calls="threespo.runs.train:train",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids([*trial_runs(study), *trained_runs(study)]),
        settings=resolve_jobs.train_settings,
        inputs=files.train_inputs,
        outputs=files.train_outputs,
        extensions=_of_training,
    ),
    "evaluate": Stage(
        about="evaluate one run's final policy",
        calls="threespo.runs.evaluate:evaluate",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids([*trial_runs(study), *evaluated_runs(study)]),
        settings=resolve_jobs.evaluate_settings,
        inputs=files.evaluate_inputs,
        outputs=files.evaluate_outputs,
        extensions=_of_environment,
    ),
    "learning": Stage(
        about="evaluate one run's snapshots on unseen games",
        calls="threespo.runs.learning:evaluate_snapshots",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids(learning_runs(study)),
        settings=resolve_jobs.learning_settings,
        inputs=files.learning_inputs,
        outputs=files.learning_outputs,
        extensions=_of_environment,
    ),
    "tune": Stage(
        about="choose a method's learning rate from its trials",
        calls="threespo.runs.tuning:tune",
        arguments=("env", "policy", "method"),
        pattern="{env}/{policy}/{method}",
        jobs=lambda study: ["/".join(choice) for choice in choices(study)],
        settings=resolve_jobs.tune_settings,
        inputs=files.tune_inputs,
        outputs=files.tune_outputs,
    ),
    "probe": Stage(
        about="set a run's state scores beside true success probabilities",
        calls="threespo.runs.probe:probe",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids(probed_runs(study)),
        settings=resolve_jobs.probe_settings,
        inputs=files.probe_inputs,
        outputs=files.probe_outputs,
        extensions=_of_training,
    ),
    "decision_trees": Stage(
        about="try a method on decision trees, many seeds",
        calls="threespo.decision_trees.train:train_on_family",
        arguments=("family", "method"),
        pattern="{family}/{method}",
        jobs=lambda study: ["/".join(row) for row in decision_tree_rows(study)],
        settings=resolve_jobs.decision_tree_settings,
        inputs=lambda *_: {},
        outputs=files.decision_tree_outputs,
        extensions=_of_decision_trees,
    ),
    "tables": Stage(
        about="gather all runs into tables",
        calls="threespo.results.tables:make_tables",
        arguments=(),
        pattern="",
        jobs=lambda _: [""],
        settings=resolve_jobs.result_settings,
        inputs=files.table_inputs,
        outputs=files.table_outputs,
        extensions=_of_results,
        reusable=False,
    ),
    "notebook": Stage(
        about="execute a notebook on the tables",
        calls="threespo.results.notebooks:execute",
        arguments=("name",),
        pattern="{name}",
        jobs=notebooks,
        settings=resolve_jobs.notebook_settings,
        inputs=files.notebook_inputs,
        outputs=files.notebook_outputs,
        extensions=_of_notebook,
        reusable=False,
    ),
    "report": Stage(
        about="write the report from tables and notebooks",
        calls="threespo.results.report:make_report",
        arguments=(),
        pattern="",
        jobs=lambda _: [""],
        settings=resolve_jobs.result_settings,
        inputs=files.report_inputs,
        outputs=files.report_outputs,
        extensions=_of_results,
        reusable=False,
    ),
}
"""The stages by name, each after those that it needs (except for trials: see ``jobs``)."""
