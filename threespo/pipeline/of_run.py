"""What the stages that train or play a run have in common: the fields of their settings, and whose weights they read."""

from collections.abc import Sequence
from typing import Any

from threespo.envs.registry import environment, environment_module
from threespo.methods.registry import job_options, searches
from threespo.paths import Paths, Run, RunFolder
from threespo.pipeline.stage import Files
from threespo.study.config import PolicySettings, Study


def run_ids(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs' jobs."""
    return [run.run_id for run in runs]


def environment_modules(_: Study, name: str) -> Sequence[str]:
    """Return the module that the environment of a job's name is found in."""
    return (environment_module(name.split("/")[0], "spec"),)


def run_fields(
    study: Study, paths: Paths, run: Run, policy: PolicySettings, gpus: int
) -> dict[str, Any]:
    """Return the fields of ``RunSettings``."""
    return {
        "paths": paths,
        "gpus": gpus,
        "runs_per_gpu": study.runs_per_gpu,
        "run": run,
        "episode": environment(run.env).episode.part_of(study.environments[run.env]),
        "sampling": policy.sampling(gpus),
        "threads": study.training.threads,
    }


def training_fields(study: Study, paths: Paths, run: Run) -> dict[str, Any]:
    """Return the fields of ``TrainSettings``."""
    here = study.at(run.env)
    policy = study.policies[run.policy]
    entry = here.methods[run.method]
    training = here.training
    if run.rate is not None and study.tuning:
        training = training.model_copy(
            update={"generations": study.tuning.generations, "epochs": None, "snapshots": 0}
        )
    if not searches(entry.method):
        # Only searches have trees to record: for other methods the number must not cause a rerun.
        training = training.model_copy(update={"recorded_tasks": 0})
    return {
        **run_fields(study, paths, run, policy, study.gpus_per_rank),
        "method": entry.method,
        "options": job_options(entry.method, entry.options),
        "learning_rate": entry.learning_rate if run.rate is None else run.rate,
        "learning_rate_scale": policy.learning_rate_scale,
        "schedule": entry.schedule,
        "minibatch": entry.minibatch or training.minibatch,
        "training": policy.scaled(training),
    }


def snapshot_files(run: RunFolder) -> Files:
    """Return the files of a run's snapshots."""
    # The last snapshot has no weights beside the run's own.
    return {"snapshots": [run.snapshots], "weights": [run.weights]}
