"""The paper's table of compute, and what a study's runs took."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.results.labels import label
from threespo.results.paper.reader_table import MISSING, Column, PaperTable, Row, text_cell

FILE = "compute.yaml"
"""The paper's numbers, in ``config/paper``."""

JOULES_PER_KWH = 3.6e6

_RUN = ["env", "policy", "method", "training_seed"]


def read_compute(folder: Path = PAPER_FOLDER) -> dict[str, Any]:
    """Return the paper's numbers.

    Raises:
        InputError: if ``compute.yaml`` is missing or does not have the expected form.
    """
    path = folder / FILE
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        facts = {
            name: str(values[name])
            for name in ("gpu", "gpu_memory", "processor", "memory", "base_model")
        }
        runs = {
            str(env): {name: float(run[name]) for name in ("epochs", "days")}
            for env, run in values["runs"].items()
        }
        total = {name: float(values["total"][name]) for name in ("runs", "days")}
        return {
            **facts,
            "runs": runs,
            "total": total,
            "preliminary": float(values["preliminary"]["days"]),
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: not readable as the paper's table ({error!r}); restore it from the repository"
        ) from error


def compute_table(
    metrics: pd.DataFrame,
    timing: pd.DataFrame,
    stages: pd.DataFrame,
    provenance: pd.DataFrame,
    paper: Mapping[str, Any],
) -> PaperTable:
    """Return what the study's runs took, beside the paper's numbers.

    Args:
        metrics: the table ``metrics``; ``epoch_tokens`` are there if the runs counted them.
        timing: the table ``timing``, of which rows of ``stage`` ``train`` are read.
        stages: the table ``stages``; ``energy_joules`` are there if the machines told.
        provenance: the table ``provenance``, for the machine and the study's settings.
        paper: as ``read_compute`` returns it.
    """
    at = provenance.set_index(["section", "name"])["value"]
    study = json.loads(at["study", "settings"])
    machine = {
        name: str(at.get(("machine", name), "unknown")) for name in ("processor", "cores", "memory")
    }
    rows = [
        _line("server", "GPU", paper["gpu"], str(at.get(("machine", "GPUs"), "not recorded"))),
        _line("server", "GPU memory at its peak", paper["gpu_memory"], "not recorded"),
        _line(
            "server",
            "processor",
            paper["processor"],
            f"{machine['processor']}, {machine['cores']} cores",
        ),
        _line("server", "memory", paper["memory"], machine["memory"]),
    ]
    runs = _runs(metrics, timing, stages)
    for (env, policy), group in runs.groupby(["env", "policy"], sort=False):
        stands_for = study["policies"][policy]["stands_for"]
        printed = paper["runs"].get(env, {}) if stands_for == paper["base_model"] else {}
        rows += _of_runs(f"{label(env)}, {policy}", group, printed)

    spent = [_amount(float(hours)) for hours in (runs["hours"].sum(), stages["seconds"].sum() / 3600)]
    hours = f"{spent[0]} h of {len(runs)} training runs; all jobs {spent[1]} h"
    total = f"about {paper['total']['days']:g} days, {paper['total']['runs']:g} runs (it calls them GPU-days)"
    rows.append(_line("total", "runs", total, hours))
    rows.append(
        _line(
            "total",
            "preliminary runs",
            f"about {paper['preliminary']:g} days",
            "not counted: docs/LOG.md",
        )
    )
    return PaperTable(_columns(), tuple(rows), _notes(runs), "of")


def _columns() -> tuple[Column, ...]:
    return Column("what"), Column("paper", source="paper"), Column("this study", source="ours")


def _runs(metrics: pd.DataFrame, timing: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each training run with what it took; ``memory`` in MB, ``energy`` in kWh."""
    measured = metrics.groupby(_RUN, sort=False).agg(
        epochs=("epoch", "max"), generations=("generations", "last")
    )
    # Without a single count the sum is unknown, and not 0.
    counted = metrics if "epoch_tokens" in metrics else metrics.assign(epoch_tokens=math.nan)
    measured["tokens"] = counted.groupby(_RUN, sort=False)["epoch_tokens"].agg(
        lambda one: one.sum(skipna=False)
    )
    of_runs = timing[timing["stage"] == "train"].groupby(_RUN)
    measured["hours"] = of_runs["seconds"].sum() / 3600
    measured["memory"] = of_runs["peak_memory_mb"].max()

    names = [f"{env}/{policy}/{method}/seed-{seed}" for env, policy, method, seed in measured.index]
    told = stages[stages["stage"] == "train"].set_index("name")
    joules = told["energy_joules"] if "energy_joules" in told else pd.Series(dtype=float)
    measured["energy"] = [float(joules.get(name, math.nan)) / JOULES_PER_KWH for name in names]
    return measured.reset_index()


def _of_runs(section: str, runs: pd.DataFrame, printed: Mapping[str, float]) -> list[Row]:
    """Return the lines of the runs of one environment and policy: the least and the most of the methods' means."""
    days = printed.get("days")
    hours = f"about {24 * days:g} ({days:g} days)" if days is not None else MISSING
    epochs = f"{printed['epochs']:g}" if printed else MISSING
    return [
        _line(section, "epochs of a run", epochs, _by_method(runs, "epochs", _amount)),
        _line(section, "hours of a run", hours, _by_method(runs, "hours", _amount)),
        _line(section, "generations of a run", MISSING, _by_method(runs, "generations", _whole)),
        _line(section, "generated tokens of a run", MISSING, _by_method(runs, "tokens", _whole)),
        _line(section, "memory of a run at its peak, MB", MISSING, _by_method(runs, "memory", _whole)),
        _line(section, "energy of a run, kWh", MISSING, _by_method(runs, "energy", _amount)),
    ]


def _by_method(runs: pd.DataFrame, name: str, write: Callable[[float], str]) -> str:
    means = runs.groupby("method", sort=False)[name].mean().dropna()
    if means.empty:
        return "not recorded"
    least, most = str(means.idxmin()), str(means.idxmax())
    if write(means[least]) == write(means[most]):
        return write(means[least])
    return f"{write(means[least])} ({label(least)}) to {write(means[most])} ({label(most)})"


def _notes(runs: pd.DataFrame) -> tuple[str, ...]:
    lines = [
        "Means over training seeds, from the method that takes least to the one that takes most. Hours are of training, on "
        "a machine that may have had other work; memory is that of the run's process, without a GPU's."
    ]
    if runs["tokens"].isna().any():
        lines.append(
            "Runs of before tokens were counted have none; without its metrics.parquet a run is made anew."
        )
    if runs["energy"].isna().all():
        lines.append(
            "Energy is recorded of a run's own GPUs, on its first machine (extra `gpu`); not of processors."
        )
    else:
        lines.append(
            "Energy is that of the run's GPUs from its beginning to its end, without processors and memory."
        )
    return tuple(lines)


def _line(section: str, what: str, paper: str, ours: str) -> Row:
    return Row((text_cell(what), text_cell(paper), text_cell(ours)), section)


def _amount(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
