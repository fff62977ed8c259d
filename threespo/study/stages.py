"""The stages of a study: what each one calls, reads, writes and depends on. Defined here once.

The workflow's rules, the command line, the records of what a job was made of, and ``threespo why`` are all derived from this
table. A job is a stage and a name, for example ``train`` and ``alfworld/tiny-s/grpo/seed-0``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from threespo.envs.registry import ENVIRONMENTS, environment
from threespo.errors import InputError
from threespo.study import run_settings
from threespo.study.catalogue import FIGURE_KINDS, NOTEBOOKS, PAPER_NUMBERS, TABLES, figures, notebooks
from threespo.study.checksums import checksums_path
from threespo.study.config import Study
from threespo.study.fingerprint import describe, fingerprint
from threespo.study.matrix import (
    choices,
    decision_tree_rows,
    evaluated_runs,
    find_run,
    local_policies,
    plays_weights_of,
    probed_runs,
    searching_runs,
    trained_runs,
    trial_runs,
    trials_of,
)
from threespo.study.paths import NOTEBOOKS as NOTEBOOK_SOURCES
from threespo.study.paths import Paths, Run
from threespo.study.run_settings import JobSettings

Files = dict[str, list[Path]]
"""Paths by the names that rules have for them."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a job writes. Where a job fails, earlier results stay, but not its ``last`` files: so that it must rerun."""

    kept: Files
    last: Files
    """Written after all others. Of every folder of ``folders`` its checksums are among them."""
    folders: tuple[Path, ...] = ()
    """Those of ``kept`` that are folders."""

    def paths(self) -> list[Path]:
        """Return all files and folders."""
        return [path for files in (self.kept, self.last) for paths in files.values() for path in paths]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; functions take the study, its paths and a job's name."""

    calls: str
    """``module:function``, called with the job's settings. Its module and all that this imports are the stage's code."""
    arguments: tuple[str, ...]
    """Parts of a job's name, as the command line asks for them."""
    pattern: str
    """A job's name with the workflow's wildcards."""
    jobs: Callable[[Study], Sequence[str]]
    settings: Callable[[Study, Paths, str], JobSettings]
    inputs: Callable[[Study, Paths, str], Files]
    """Files that the job reads. A folder is stood for by its checksums; its files are read, too."""
    outputs: Callable[[Paths, str], Outputs]
    extensions: Callable[[Study, str], Sequence[str]] = lambda *_: ()
    """Modules that the job takes from registries, by name and not by import."""


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

    def inputs(self, study: Study, paths: Paths) -> Files:
        """Return the files that the job reads."""
        return STAGES[self.stage].inputs(study, paths, self.name)

    def outputs(self, paths: Paths) -> Outputs:
        """Return what the job writes."""
        return STAGES[self.stage].outputs(paths, self.name)

    def code(self, study: Study) -> dict[str, str]:
        """Return the digest of every module and data file that the job's code is made of."""
        return describe(self._modules(study))

    def fingerprint(self, study: Study) -> str:
        """Return the fingerprint of the job's code."""
        return fingerprint(self._modules(study))

    def _modules(self, study: Study) -> tuple[str, ...]:
        stage = STAGES[self.stage]
        return (stage.calls.partition(":")[0], *stage.extensions(study, self.name))


def jobs(study: Study) -> list[Job]:
    """Return all jobs of a study; each stands behind those that it needs."""
    everything = [Job(name, job) for name, stage in STAGES.items() for job in stage.jobs(study)]
    # Trials are trained and evaluated before the runs whose learning rates they decide.
    trials = {run.run_id for run in trial_runs(study)}
    return sorted(everything, key=lambda job: job.stage not in ("data", "policy", "tune") and job.name not in trials)


def check_job(study: Study, job: Job) -> None:
    """Check that a study has a job.

    Raises:
        InputError: if it has not; names those that it has.
    """
    names = STAGES[job.stage].jobs(study)
    if job.name not in names:
        raise InputError(f"study {study.name!r} has nothing to do for {str(job)!r}; it has: {', '.join(names)}")


# --- modules that come from registries


def _method(method: str) -> str:
    return f"threespo.methods.{method}"


def _of_environment(_: Study, name: str) -> Sequence[str]:
    return (ENVIRONMENTS[name.split("/")[0]],)


def _of_policy(study: Study, name: str) -> Sequence[str]:
    curriculum = environment(name.split("/")[0]).curriculum
    return (*_of_environment(study, name), *([curriculum.partition(":")[0]] if curriculum else []))


def _of_training(study: Study, name: str) -> Sequence[str]:
    return (*_of_environment(study, name), _method(study.methods[find_run(study, name).method].method))


def _of_decision_trees(study: Study, name: str) -> Sequence[str]:
    assert study.laboratory is not None
    return (_method(study.laboratory.methods[name.split("/")[1]].method),)


def _of_results(study: Study, _: str) -> Sequence[str]:
    return [environment(env).presentation.partition(":")[0] for env in study.environments]


# --- files


def _folder(folder: Path, name: str) -> tuple[Files, Files]:
    return {name: [folder]}, {f"{name}_checksums": [checksums_path(folder)]}


def _data_files(paths: Paths, name: str) -> Outputs:
    return Outputs(*_folder(paths.data(name), "data"), (paths.data(name),))


def _policy_files(paths: Paths, name: str) -> Outputs:
    folder = paths.policy(*name.split("/"))
    return Outputs(*_folder(folder, "policy"), (folder,))


def _policy_inputs(_: Study, paths: Paths, name: str) -> Files:
    return {"data": [checksums_path(paths.data(name.split("/")[0]))]}


def _train_files(paths: Paths, name: str) -> Outputs:
    run = paths.run(name)
    weights, weights_done = _folder(run.weights, "weights")
    snapshots, snapshots_done = _folder(run.snapshots, "snapshots")
    tables = {name: [getattr(run, name)] for name in ("metrics", "timing", "task_types", "trees")}
    kept = {**tables, **weights, **snapshots}
    return Outputs(kept, {**weights_done, **snapshots_done}, (run.weights, run.snapshots))


def _train_inputs(study: Study, paths: Paths, name: str) -> Files:
    run = find_run(study, name)
    data, policy = paths.data(run.env), paths.policy(run.env, run.policy)
    files = {"data": [checksums_path(data)], "policy": [checksums_path(policy)]}
    if study.tuning and run.rate is None:
        files["choice"] = [paths.choice(run.env, run.policy, run.method)]
    return files


def _evaluate_files(paths: Paths, name: str) -> Outputs:
    run = paths.run(name)
    return Outputs({"episodes": [run.evaluation]}, {"timing": [run.evaluation_timing]})


def _evaluate_inputs(study: Study, paths: Paths, name: str) -> Files:
    run = find_run(study, name)
    files = {"data": [checksums_path(paths.data(run.env))]}
    weights = {"run": paths.run(run).weights, "policy": paths.policy(run.env, run.policy)}
    folder = weights.get(plays_weights_of(study, run))
    return {**files, "weights": [checksums_path(folder)]} if folder else files


def _probe_files(paths: Paths, name: str) -> Outputs:
    return Outputs({}, {"probe": [paths.run(name).probe]})


def _probe_inputs(study: Study, paths: Paths, name: str) -> Files:
    run = find_run(study, name)
    return {"data": [checksums_path(paths.data(run.env))], "snapshots": [checksums_path(paths.run(run).snapshots)]}


def _tune_files(paths: Paths, name: str) -> Outputs:
    return Outputs({}, {"choice": [paths.choice(*name.split("/"))]})


def _tune_inputs(study: Study, paths: Paths, name: str) -> Files:
    return {"trials": [paths.run(run).evaluation for run in trials_of(study, *name.split("/"))]}


def _decision_tree_files(paths: Paths, name: str) -> Outputs:
    return Outputs({}, {"row": [paths.decision_trees(*name.split("/"))]})


def _table_files(paths: Paths, _: str) -> Outputs:
    # Provenance is written last, and says so of all.
    return Outputs({name: [paths.table(name)] for name in TABLES[:-1]}, {TABLES[-1]: [paths.table(TABLES[-1])]})


def _table_inputs(study: Study, paths: Paths, _: str) -> Files:
    trained = [paths.run(run) for run in trained_runs(study)]
    # Trials, too: what each rate won is a table.
    played = [paths.run(run) for run in _unique([*evaluated_runs(study), *trial_runs(study)])]
    return {
        "metrics": [run.metrics for run in trained],
        "training_time": [run.timing for run in trained],
        "task_types": [run.task_types for run in trained],
        "episodes": [run.evaluation for run in played],
        "evaluation_time": [run.evaluation_timing for run in played],
        "probes": [paths.run(run).probe for run in probed_runs(study)],
        "trees": _trees(study, paths),
        "decision_trees": [paths.decision_trees(*row) for row in decision_tree_rows(study)],
        "choices": [paths.choice(*choice) for choice in choices(study)],
        "paper": [*PAPER_NUMBERS],
    }


def _notebook_files(paths: Paths, name: str) -> Outputs:
    drawn = [paths.figure(figure, kind) for figure in NOTEBOOKS[name].figures for kind in FIGURE_KINDS]
    return Outputs({"figures": drawn}, {"notebook": [paths.notebook(name)]})


def _notebook_inputs(_: Study, paths: Paths, name: str) -> Files:
    return {
        "notebook": [NOTEBOOK_SOURCES / f"{name}.ipynb"],
        "tables": [paths.table(table) for table in NOTEBOOKS[name].tables],
        "paper": [*NOTEBOOKS[name].paper],
    }


def _report_files(paths: Paths, _: str) -> Outputs:
    return Outputs({"report": [paths.report]}, {"done": [paths.report_done]})


def _report_inputs(study: Study, paths: Paths, _: str) -> Files:
    return {
        "tables": [paths.table(name) for name in TABLES],
        "trees": _trees(study, paths),
        "notebooks": [paths.notebook(name) for name in notebooks(study)],
        "figures": [paths.figure(figure, "svg") for figure in figures(study)],
    }


def _trees(study: Study, paths: Paths) -> list[Path]:
    return [paths.run(run).trees for run in searching_runs(study)]


def _unique(runs: Sequence[Run]) -> list[Run]:
    return list(dict.fromkeys(runs))


def _ids(runs: Sequence[Run]) -> list[str]:
    return [run.run_id for run in runs]


_RUN = "{env}/{policy}/{method}/{which}"

STAGES: dict[str, Stage] = {
    "data": Stage(
        calls="threespo.runs.data:prepare",
        arguments=("env",),
        pattern="{env}",
        jobs=lambda study: list(study.environments),
        settings=run_settings.data_settings,
        inputs=lambda *_: {},
        outputs=_data_files,
        extensions=_of_environment,
    ),
    "policy": Stage(
        calls="threespo.imitation.base_policy:provide",
        arguments=("env", "policy"),
        pattern="{env}/{policy}",
        jobs=lambda study: [f"{env}/{policy}" for env in study.environments for policy in local_policies(study)],
        settings=run_settings.base_policy_settings,
        inputs=_policy_inputs,
        outputs=_policy_files,
        extensions=_of_policy,
    ),
    "train": Stage(
        calls="threespo.runs.train:train",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids([*trial_runs(study), *trained_runs(study)]),
        settings=run_settings.train_settings,
        inputs=_train_inputs,
        outputs=_train_files,
        extensions=_of_training,
    ),
    "evaluate": Stage(
        calls="threespo.runs.evaluate:evaluate",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids([*trial_runs(study), *evaluated_runs(study)]),
        settings=run_settings.evaluate_settings,
        inputs=_evaluate_inputs,
        outputs=_evaluate_files,
        extensions=_of_environment,
    ),
    "tune": Stage(
        calls="threespo.runs.tuning:tune",
        arguments=("env", "policy", "method"),
        pattern="{env}/{policy}/{method}",
        jobs=lambda study: ["/".join(choice) for choice in choices(study)],
        settings=run_settings.tune_settings,
        inputs=_tune_inputs,
        outputs=_tune_files,
    ),
    "probe": Stage(
        calls="threespo.runs.probe:probe",
        arguments=("run",),
        pattern=_RUN,
        jobs=lambda study: _ids(probed_runs(study)),
        settings=run_settings.probe_settings,
        inputs=_probe_inputs,
        outputs=_probe_files,
        extensions=_of_environment,
    ),
    "decision_trees": Stage(
        calls="threespo.decision_trees.train:train_on_family",
        arguments=("family", "method"),
        pattern="{family}/{method}",
        jobs=lambda study: ["/".join(row) for row in decision_tree_rows(study)],
        settings=run_settings.decision_tree_settings,
        inputs=lambda *_: {},
        outputs=_decision_tree_files,
        extensions=_of_decision_trees,
    ),
    "tables": Stage(
        calls="threespo.results.tables:make_tables",
        arguments=(),
        pattern="",
        jobs=lambda _: [""],
        settings=run_settings.result_settings,
        inputs=_table_inputs,
        outputs=_table_files,
        extensions=_of_results,
    ),
    "notebook": Stage(
        calls="threespo.results.notebooks:execute",
        arguments=("name",),
        pattern="{name}",
        jobs=notebooks,
        settings=run_settings.notebook_settings,
        inputs=_notebook_inputs,
        outputs=_notebook_files,
        # What notebooks import.
        extensions=lambda study, _: ("threespo.results.figures", *_of_results(study, "")),
    ),
    "report": Stage(
        calls="threespo.results.report:make_report",
        arguments=(),
        pattern="",
        jobs=lambda _: [""],
        settings=run_settings.result_settings,
        inputs=_report_inputs,
        outputs=_report_files,
        extensions=_of_results,
    ),
}
"""The stages by name, each behind those that it needs (but for trials: see ``jobs``)."""
