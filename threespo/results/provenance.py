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
from threespo.provenance.records import current_commit, installed_version, processor_name, read_record
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
        timing: as ``collect.timing`` returns it; ``seconds`` are summed by ``stage``.
    """
    study, paths = settings.study, settings.paths
    hours = timing.groupby("stage")["seconds"].sum() / 3600
    sections = {
        "code": {"commit": current_commit(), "package": installed_version("threespo")},
        "machine": {
            "system": platform.platform(),
            "processor": processor_name(),
            "cores": str(os.cpu_count()),
            "memory": _memory(),
            "GPUs": _gpus(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: installed_version(name) for name in LIBRARIES},
        },
        "time": {
            "gathered": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "training (sum over runs)": f"{hours.get('train', 0.0):.2f} h",
            "evaluation (sum over runs)": f"{hours.get('evaluate', 0.0):.2f} h",
        },
        "made by": _made(settings),
        "accepted": _accepted(settings),
        "closed models": _served(study, paths),
        "confirmatory": _mark(settings),
        "study": {"folder": paths.root.as_posix(), **_asked(paths), "settings": dump_study(study)},
    }

    rows = [
        (section, name, value) for section, values in sections.items() for name, value in values.items()
    ]
    return pd.DataFrame(rows, columns=["section", "name", "value"])


def _mark(settings: ResultSettings) -> dict[str, str]:
    mark = settings.study.confirmatory
    if mark is None:
        return {}
    return {"mark": settings.mark, **{name: str(value) for name, value in mark.model_dump().items()}}


def _asked(paths: "Paths") -> dict[str, str]:
    """Return what of the study was changed when the workflow was called, as it was written."""
    # Of a command that was called by hand nothing but the study's own file says what was meant.
    config = (read_call(paths) or {}).get("config", {})
    return {"changed with set=": json.dumps(config["set"])} if config.get("set") else {}


def _made(settings: ResultSettings) -> dict[str, str]:
    """Return the commits, systems and versions that the jobs ran with, as far as there are several, each with its jobs.

    Results of several commits stand side by side where the code that made them means the same; the reader is told.
    """
    made = [record.environment for job in settings.jobs if (record := read_record(settings.paths, job))]
    names = dict.fromkeys(name for one in made for name in one)
    values = {name: Counter(one.get(name, "unknown") for one in made) for name in names}
    return {
        name: "; ".join(f"{value} ({count} jobs)" for value, count in counts.most_common())
        for name, counts in values.items()
        if len(counts) > 1
    }


def _accepted(settings: ResultSettings) -> dict[str, str]:
    """Return of each accepted change of the code how many jobs have kept their results, and which were run again."""
    records = [record for job in settings.jobs if (record := read_record(settings.paths, job))]
    notes = [
        (str(note.get("commit")), tuple(note.get("run", ())))
        for record in records
        for note in record.accepted
    ]
    return {
        commit: f"{count} jobs keep results of earlier code; run again to the same bytes: {', '.join(run)}"
        for (commit, run), count in Counter(notes).items()
    }


def _served(study: "Study", paths: "Paths") -> dict[str, str]:
    """Return the models that the services reported with their replies, by row: a name may stand for changing versions."""
    runs = [run for run in prompted_runs(study) if study.policies[run.policy].kind == "endpoint"]
    replies = {run.run_id: read_replies(paths.cassette(run))[0] for run in runs}
    # Of a prompt that it refuses no service says which model would have answered.
    served = {
        name: {one.served for one in several if one.served or not one.refused}
        for name, several in replies.items()
    }
    return {name: ", ".join(sorted(models)) for name, models in served.items() if models}


def _gpus() -> str:
    """Return the machine's GPUs, each kind with its number and memory."""
    try:
        lines = run_nvidia_smi("--query-gpu=name,memory.total", "--format=csv,noheader")
    except InputError as error:
        return f"none: {error}"
    kinds = Counter(line.strip() for line in lines if line.strip())
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "none"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError):
        return "unknown"
