"""Where results come from: commit, machine, versions, settings and time. Never part of the results themselves."""

import json
import os
import platform
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pandas as pd

from threespo.errors import InputError
from threespo.policy.cassette import read_replies
from threespo.provenance.records import (
    Record,
    current_commit,
    installed_version,
    processor_name,
    read_record,
)
from threespo.results.settings import ResultSettings
from threespo.runs.gpus import run_nvidia_smi
from threespo.study.configuration import read_call
from threespo.study.load import dump_study
from threespo.study.matrix import prompted_runs

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

LIBRARIES = (
    "torch",
    "transformers",
    "deepspeed",
    "numpy",
    "pandas",
    "snakemake",
    "papermill",
    "vllm",
    "alfworld",
)


def provenance_table(settings: ResultSettings, timing: pd.DataFrame) -> pd.DataFrame:
    """Return rows ``section``, ``name``, ``value``, all of them text.

    Args:
        settings: the study, its jobs and its mark.
        timing: as ``collect.read_timing`` returns it; ``seconds`` are summed by ``stage``.
    """
    study = settings.study
    paths = settings.paths
    hours = timing.groupby("stage")["seconds"].sum() / 3600
    sections = {
        "code": {"commit": current_commit(), "package": installed_version("threespo")},
        "machine": {
            "system": platform.platform(),
            "processor": processor_name(),
            "cores": str(os.cpu_count()),
            "memory": _describe_memory(),
            "GPUs": _describe_gpus(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: installed_version(name) for name in LIBRARIES},
        },
        # Sums over runs, which may have run at the same time.
        "time": {
            "gathered": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "training (sum over runs)": f"{hours.get('train', 0.0):.2f} h",
            "evaluation (sum over runs)": f"{hours.get('evaluate', 0.0):.2f} h",
        },
        "made by": _differing_environments(settings),
        "accepted": _accepted_changes(settings),
        "closed models": _served_models(study, paths),
        "confirmatory": _mark_columns(settings),
        "study": {
            "folder": paths.root.as_posix(),
            **_changes_of_call(paths),
            "settings": dump_study(study),
        },
    }

    rows = [
        (section, name, value) for section, values in sections.items() for name, value in values.items()
    ]
    return pd.DataFrame(rows, columns=["section", "name", "value"])


def _mark_columns(settings: ResultSettings) -> dict[str, str]:
    mark = settings.study.confirmatory
    if mark is None:
        return {}
    # What the authors froze before the runs: a reader can compare it with what was run.
    frozen = {name: str(value) for name, value in mark.model_dump().items()}
    return {"mark": settings.mark, **frozen}


def _changes_of_call(paths: "Paths") -> dict[str, str]:
    """Return what of the study was changed when the workflow was called, as it was written."""
    # A command that was called by hand leaves no record of a call: there is nothing but the study's own file.
    call = read_call(paths) or {}
    changes = call.get("config", {}).get("set")
    if not changes:
        return {}
    return {"changed with set=": json.dumps(changes)}


def _read_records(settings: ResultSettings) -> list[Record]:
    records = [read_record(settings.paths, job) for job in settings.jobs]
    return [record for record in records if record is not None]


def _differing_environments(settings: ResultSettings) -> dict[str, str]:
    """Return the commits, systems and versions in which the jobs differ, each with its number of jobs.

    Results of several commits are combined if the code behind them is equivalent; the report names the commits.
    """
    environments = [record.environment for record in _read_records(settings)]
    # Records of earlier versions may lack a name.
    names = dict.fromkeys(name for environment in environments for name in environment)
    differing = {}
    for name in names:
        counts = Counter(environment.get(name, "unknown") for environment in environments)
        if len(counts) > 1:
            shares = [f"{value} ({count} jobs)" for value, count in counts.most_common()]
            differing[name] = "; ".join(shares)
    return differing


def _accepted_changes(settings: ResultSettings) -> dict[str, str]:
    """Return, by accepted change of the code, how many jobs kept their results, and which were run again."""
    # Each accepted change has left a note in the record of each job that it kept.
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for record in _read_records(settings):
        for note in record.accepted:
            commit = str(note.get("commit"))
            repeated_jobs = tuple(note.get("run", ()))
            counts[commit, repeated_jobs] += 1

    changes = {}
    for (commit, repeated_jobs), count in counts.items():
        names = ", ".join(repeated_jobs)
        changes[commit] = (
            f"{count} jobs keep results of earlier code; run again to the same bytes: {names}"
        )
    return changes


def _served_models(study: "Study", paths: "Paths") -> dict[str, str]:
    """Return the models that the services reported with their replies, by row: a name may stand for changing versions."""
    models_by_run = {}
    for run in prompted_runs(study):
        if study.policies[run.policy].kind != "endpoint":
            continue
        replies, *_ = read_replies(paths.cassette(run))
        # A service that refuses a prompt does not name the model, so a refusal without a name is no further model.
        models = {reply.served for reply in replies if reply.served or not reply.refused}
        if models:
            models_by_run[run.run_id] = ", ".join(sorted(models))
    return models_by_run


def _describe_gpus() -> str:
    """Return the machine's GPUs, each kind with its number and memory."""
    try:
        lines = run_nvidia_smi("--query-gpu=name,memory.total", "--format=csv,noheader")
    except InputError as error:
        # A machine without GPUs can run the tiny policies: the reason is worth a line, and no failure.
        return f"none: {error}"
    kinds = Counter(line.strip() for line in lines if line.strip())
    descriptions = [f"{count} × {kind}" for kind, count in kinds.items()]
    return "; ".join(descriptions) or "none"


def _describe_memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        # Not every system has these names.
        return "unknown"
    return f"{total / 2**30:.0f} GiB"
