"""What every stage was made of, and why it would run again.

When a stage ends, its command writes a record to ``stages/`` of the study's folder: the digest of every module that it
depends on, every field of the study that matters to it, the digest of every input, and what it took. The workflow
decides by the same ingredients (``stages``); ``threespo why`` shows them apart, old and new.
"""

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import atomic_json
from threespo.study import stages
from threespo.study.config import Study, load_study
from threespo.study.contents import contents_path, file_digest, write_contents
from threespo.study.fingerprint import describe, stage_modules
from threespo.study.matrix import (
    Paths,
    Run,
    choices,
    environments,
    evaluated_runs,
    laboratory_rows,
    local_policies,
    plays_weights_of,
    probed_runs,
    searching_runs,
    trained_runs,
    trial_runs,
    trials_of,
)

Ingredients = dict[str, dict[str, str]]
"""``code``, ``field`` and ``input``, each by name."""

_CONFIG = Path(__file__).resolve().parents[2] / "config"
PAPER = [_CONFIG / "paper" / name for name in ("results.yaml", "efficiency.csv")]


@dataclass(frozen=True, slots=True)
class Job:
    """One job of the workflow that is a ``threespo`` command."""

    stage: str
    env: str = ""
    policy: str = ""
    run: Run | None = None
    method: str = ""

    @property
    def name(self) -> str:
        """What tells the stage's jobs apart, for example the run's id."""
        return self.run.run_id if self.run else "/".join(filter(None, (self.env, self.policy, self.method)))

    def __str__(self) -> str:
        return f"{self.stage} {self.name}".strip()

    def outputs(self, paths: Paths) -> tuple[Path, ...]:
        """Return where the job's results lie."""
        if self.run:
            folder = paths.run(self.run)
            if self.stage == "evaluate":
                return (folder / "evaluation.parquet", folder / "evaluation_timing.parquet")
            if self.stage == "probe":
                return (folder / "probe.parquet",)
            tables = (folder / f"{name}.parquet" for name in ("metrics", "timing", "task_types", "trees"))
            return (*tables, *_with_contents(folder / "snapshots"), *_with_contents(folder / "weights"))
        if self.stage == "laboratory":
            return (paths.laboratory(self.env, self.method),)
        if self.method:
            return (paths.choice(self.env, self.policy, self.method),)
        if self.policy:
            return _with_contents(paths.policy(self.env, self.policy))
        if self.env:
            return _with_contents(paths.data(self.env))
        return (paths.tables, paths.tables / "provenance.parquet") if self.stage == "tables" else (paths.report,)


def _with_contents(folder: Path) -> tuple[Path, Path]:
    return folder, contents_path(folder)


def jobs(study: Study) -> list[Job]:
    """Return all jobs of a study in the order of work."""
    trained, trials = trained_runs(study), trial_runs(study)
    return [
        *[Job("data", env) for env in environments(study)],
        *[Job("policy", env, policy) for env in environments(study) for policy in local_policies(study)],
        *[Job("train", run=run) for run in trials],
        *[Job("evaluate", run=run) for run in trials],
        *[Job("choose", env, policy, method=method) for env, policy, method in choices(study)],
        *[Job("train", run=run) for run in trained],
        *[Job("evaluate", run=run) for run in evaluated_runs(study)],
        *[Job("probe", run=run) for run in probed_runs(study)],
        *[Job("laboratory", family, method=method) for family, method in laboratory_rows(study)],
        Job("tables"),
        Job("report"),
    ]


@contextlib.contextmanager
def recorded(study: Study, paths: Paths, job: Job) -> Iterator[None]:
    """When the block has succeeded, write the job's record and then the content lists of the folders that it has filled.

    Raises:
        InputError: if the study has no such job.
    """
    there = jobs(study)
    if job not in there:
        of_stage = ", ".join(one.name for one in there if one.stage == job.stage)
        raise InputError(f"study {study.name!r} has nothing to do for {str(job)!r}; it has: {of_stage}")
    made_of, start = ingredients(study, paths, job), time.perf_counter()
    yield
    took = {
        "seconds": time.perf_counter() - start,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "processor_seconds": time.process_time(),
    }
    atomic_json(_file(paths, job), {"stage": job.stage, "name": job.name, **made_of, "took": took})
    made = job.outputs(paths)
    for folder in made:
        if contents_path(folder) in made:
            write_contents(folder)


def read(paths: Paths, job: Job) -> dict[str, Any] | None:
    """Return the job's record; None if it never ended in this folder.

    Raises:
        InputError: if the record cannot be read.
    """
    file = _file(paths, job)
    try:
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {name: record[name] for name in ("code", "field", "input", "took")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: not a stage's record ({error}); delete it, the next run writes it anew") from error


def ingredients(study: Study, paths: Paths, job: Job) -> Ingredients:
    """Return what the job depends on, as of now."""
    method = stages.method_of(job.stage, study, job.run or job.method)
    env = job.run.env if job.run else job.env
    settings = json.loads(_settings(study, paths, job))
    return {
        "code": describe(stage_modules(job.stage, method), env if env in study.environments else None),
        "field": dict(_flat(settings)),
        "input": {name: digest for file in _inputs(study, paths, job) for name, digest in _digests(paths, file)},
    }


def why(target: Path) -> list[str]:
    """Say for every job behind ``target`` (a file or folder of a study's results) what has changed since it ran.

    Compared are the present code, inputs and ``study.json``, which every ``snakemake`` call writes, ``-n`` included. A job
    behind a changed one runs again if the changed one's results come out differently.

    Raises:
        InputError: if the target does not belong to the results of a study.
    """
    # Not ``resolve``: results may be reached through a link.
    target = Path(os.path.abspath(target))  # noqa: PTH100
    root = next((folder for folder in (target, *target.parents) if (folder / "study.json").is_file()), None)
    if root is None:
        raise InputError(f"{target}: not in a folder of results; name one such as results/smoke/report.html")
    study, paths = load_study(root / "study.json"), Paths(root)
    everything = jobs(study)
    wanted = [job for job in everything if any(_related(target, output) for output in job.outputs(paths))]
    if not wanted:
        raise InputError(
            f"{target}: no threespo command makes this. Ask for {root} or for data/, policy/, runs/, tables/ or report.html "
            "in it; notebooks and figures follow from the tables."
        )
    needed = {job: set(_inputs(study, paths, job)) for job in everything}
    # From the end to the beginning, so that what a job needs is known before it is looked at.
    for job in reversed(everything):
        if job not in wanted and any(needed[one].intersection(job.outputs(paths)) for one in wanted):
            wanted.append(job)
    lines: list[str] = []
    stale: list[Job] = []
    for job in (job for job in everything if job in wanted):
        changes = _changes(study, paths, job)
        follows = [str(other) for other in stale if needed[job].intersection(other.outputs(paths))]
        if changes or follows:
            stale.append(job)
        state = "changed" if changes else f"follows {follows[0]}" if follows else "unchanged"
        lines += [f"{job}: {state}", *changes]
    return lines


def _changes(study: Study, paths: Paths, job: Job) -> list[str]:
    missing = [f"  result {path.relative_to(paths.root)}: missing" for path in job.outputs(paths) if not path.exists()]
    record = read(paths, job)
    if record is None:
        return [*missing, "  has not ended yet in this folder"]
    now = ingredients(study, paths, job)
    return missing + [
        f"  {kind:5}  {name}: {_shown(record[kind].get(name))} -> {_shown(now[kind].get(name))}"
        for kind in ("field", "code", "input")
        for name in sorted(record[kind].keys() | now[kind].keys())
        if record[kind].get(name) != now[kind].get(name)
    ]


def _shown(value: str | None) -> str:
    """Shorten a digest; a value that is absent on one side is ``(none)``."""
    if value is None:
        return "(none)"
    return value[:12] if len(value) == 64 else value


def _related(target: Path, output: Path) -> bool:
    return target == output or target in output.parents or output in target.parents


def _settings(study: Study, paths: Paths, job: Job) -> str:
    match job.stage, job.run:
        case "data", _:
            return stages.data_settings(study, job.env)
        case "policy", _:
            return stages.policy_settings(study, job.env, job.policy)
        case "laboratory", _:
            return stages.laboratory_settings(study, job.env, job.method)
        case "choose", _:
            return stages.choose_settings(study, job.env, job.policy, job.method)
        case "train", Run() as run:
            return stages.train_settings(study, run)
        case "evaluate", Run() as run:
            return stages.evaluate_settings(study, run, paths)
        case "probe", Run() as run:
            return stages.probe_settings(study, run)
    return stages.tables_settings(study)


def _inputs(study: Study, paths: Paths, job: Job) -> list[Path]:
    match job.stage, job.run:
        case "policy", _:
            return [contents_path(paths.data(job.env))]
        case "choose", _:
            return [_evaluation(paths, run) for run in trials_of(study, job.env, job.policy, job.method)]
        case "train", Run() as run:
            chosen = [paths.choice(run.env, run.policy, run.method)] if study.tuning and run.rate is None else []
            return [contents_path(paths.data(run.env)), contents_path(paths.policy(run.env, run.policy)), *chosen]
        case "evaluate", Run() as run:
            of = plays_weights_of(study, run)
            folders = {"run": [paths.run(run) / "weights"], "policy": [paths.policy(run.env, run.policy)]}.get(of, [])
            return [contents_path(paths.data(run.env)), *map(contents_path, folders)]
        case "probe", Run() as run:
            return [contents_path(paths.data(run.env)), contents_path(paths.snapshots(run))]
        case "tables", _:
            episodes = [_evaluation(paths, run) for run in (*evaluated_runs(study), *trial_runs(study))]
            rows = [paths.laboratory(*row) for row in laboratory_rows(study)]
            chosen = [paths.choice(*choice) for choice in choices(study)]
            names = ("metrics", "task_types")
            trained = [paths.run(run) / f"{name}.parquet" for run in trained_runs(study) for name in names]
            probes = [paths.run(run) / "probe.parquet" for run in probed_runs(study)]
            return [*trained, *episodes, *chosen, *rows, *probes, *_trees(study, paths), *PAPER]
        case "report", _:
            tables = {paths.tables / "provenance.parquet", *paths.tables.glob("*.parquet")}
            return [*sorted(tables), *sorted(paths.figures.glob("*.svg")), *_trees(study, paths)]
    return []


def _evaluation(paths: Paths, run: Run) -> Path:
    return paths.run(run) / "evaluation.parquet"


def _trees(study: Study, paths: Paths) -> list[Path]:
    return [paths.run(run) / "trees.parquet" for run in searching_runs(study)]


def _digests(paths: Paths, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of an input; of a folder's content list, of every file in the folder."""
    inside = file.relative_to(paths.root) if file.is_relative_to(paths.root) else Path(file.name)
    if not file.is_file():
        yield inside.as_posix(), "missing"
    elif file.name.endswith(".contents.json"):
        folder = inside.with_name(file.name.removesuffix(".contents.json"))
        for name, digest in json.loads(file.read_text()).items():
            yield (folder / name).as_posix(), digest
    else:
        yield inside.as_posix(), file_digest(file)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", json.dumps(value)


def _file(paths: Paths, job: Job) -> Path:
    return paths.root / "stages" / job.stage / f"{job.name or 'all'}.json"
