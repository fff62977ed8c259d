"""Where results come from: commit, machine, versions, settings and time. Never part of the results themselves."""

import json
import os
import platform
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from threespo.policy.cassette import read_replies
from threespo.study.configuration import read_call
from threespo.study.freeze import mark_in_words
from threespo.study.load import dump_study
from threespo.study.matrix import prompted_runs
from threespo.study.records import commit, read, version_of
from threespo.study.stages import jobs

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.paths import Paths

LIBRARIES = ("torch", "transformers", "deepspeed", "numpy", "pandas", "snakemake", "papermill", "vllm", "alfworld")


def provenance(study: "Study", paths: "Paths", timing: pd.DataFrame) -> pd.DataFrame:
    """Return rows ``section``, ``name``, ``value``, all of them text.

    Args:
        study: the study.
        paths: where its results lie.
        timing: as ``collect.timing`` returns it; ``seconds`` are summed by ``stage``.
    """
    hours = timing.groupby("stage")["seconds"].sum() / 3600
    sections = {
        "code": {"commit": commit(), "package": version_of("threespo")},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cores": str(os.cpu_count()),
            "memory": _memory(),
            "GPUs": _gpus(),
        },
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in LIBRARIES}},
        "time": {
            "gathered": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "training (sum over runs)": f"{hours.get('train', 0.0):.2f} h",
            "evaluation (sum over runs)": f"{hours.get('evaluate', 0.0):.2f} h",
        },
        "made by": _made(study, paths),
        "closed models": _served(study, paths),
        "confirmatory": _mark(study),
        "study": {"folder": paths.root.as_posix(), **_asked(paths), "settings": dump_study(study)},
    }

    rows = [(section, name, value) for section, values in sections.items() for name, value in values.items()]
    return pd.DataFrame(rows, columns=["section", "name", "value"])


def _mark(study: "Study") -> dict[str, str]:
    if study.confirmatory is None:
        return {}
    return {"mark": mark_in_words(study) or "", **study.confirmatory.model_dump()}


def _asked(paths: "Paths") -> dict[str, str]:
    """Return what of the study was changed when the workflow was called, as it was written."""
    # Of a command that was called by hand nothing but the study's own file says what was meant.
    config = (read_call(paths) or {}).get("config", {})
    return {"changed with set=": json.dumps(config["set"])} if config.get("set") else {}


def _made(study: "Study", paths: "Paths") -> dict[str, str]:
    """Return the commits, systems and versions that the jobs ran with, as far as there are several, each with its jobs.

    Results of several commits stand side by side where the code that made them means the same; the reader is told.
    """
    made = [record.made for job in jobs(study) if (record := read(paths, job))]
    names = dict.fromkeys(name for one in made for name in one)
    values = {name: Counter(one.get(name, "unknown") for one in made) for name in names}
    return {
        name: "; ".join(f"{value} ({count} jobs)" for value, count in counts.most_common())
        for name, counts in values.items()
        if len(counts) > 1
    }


def _served(study: "Study", paths: "Paths") -> dict[str, str]:
    """Return the models that the services reported with their replies, by row: a name may stand for changing versions."""
    runs = [run for run in prompted_runs(study) if study.policies[run.policy].kind == "endpoint"]
    served = {run.run_id: {reply.served for reply in read_replies(paths.cassette(run))[0]} for run in runs}
    return {name: ", ".join(sorted(models)) for name, models in served.items() if models}


def processor() -> str:
    """Return the name of the machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> str:
    """Return the machine's GPUs, each kind with its number and memory."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "none"
    kinds = Counter(line.strip() for line in lines if line.strip())
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "none"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError):
        return "unknown"
