"""The paper's table of compute, and what a study's runs cost."""

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
from threespo.tables import select_rows

FILE = "compute.yaml"
"""The paper's numbers, in ``config/paper``."""

JOULES_PER_KWH = 3.6e6

NOT_RECORDED = "not recorded"

_RUN = ["env", "policy", "method", "training_seed"]


def read_compute(folder: Path = PAPER_FOLDER) -> dict[str, Any]:
    """Return the paper's numbers.

    Raises:
        InputError: if ``compute.yaml`` is missing or does not have the expected form.
    """
    path = folder / FILE
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        texts = ("gpu", "gpu_memory", "processor", "memory", "base_model")
        facts = {name: str(values[name]) for name in texts}
        runs = {}
        for env, run in values["runs"].items():
            runs[str(env)] = {"epochs": float(run["epochs"]), "days": float(run["days"])}
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
    """Return what the study's runs cost, with the paper's numbers.

    Args:
        metrics: the table ``metrics``; ``epoch_tokens`` are there if the runs counted them.
        timing: the table ``timing``, of which rows of ``stage`` ``train`` are read.
        stages: the table ``stages``; ``energy_joules`` are there if a machine measured them.
        provenance: the table ``provenance``, for the machine and the study's settings.
        paper: as ``read_compute`` returns it.
    """
    runs = _costs_of_runs(metrics, timing, stages)
    values = provenance.set_index(["section", "name"])["value"]
    # A notebook has tables only: the study is in one of them, as it was run.
    study = json.loads(values["study", "settings"])

    rows = _server_rows(values, paper)
    for (env, policy), group in runs.groupby(["env", "policy"], sort=False):
        # The paper's days are those of one of its base models.
        is_paper_model = study["policies"][policy]["stands_for"] == paper["base_model"]
        printed = paper["runs"].get(env, {}) if is_paper_model else {}
        rows += _run_rows(f"{label(env)}, {policy}", group, printed)

    training_hours = _format_amount(float(runs["hours"].sum()))
    all_hours = _format_amount(float(stages["seconds"].sum()) / 3600)
    ours = f"{training_hours} h of {len(runs)} training runs; all jobs {all_hours} h"
    total = paper["total"]
    theirs = f"about {total['days']:g} days, {total['runs']:g} runs (it calls them GPU-days)"
    preliminary = f"about {paper['preliminary']:g} days"
    rows.append(_row("total", "runs", theirs, ours))
    rows.append(_row("total", "preliminary runs", preliminary, "not counted: docs/LOG.md"))

    columns = (Column("what"), Column("paper", source="paper"), Column("this study", source="ours"))
    return PaperTable(columns, tuple(rows), _notes(runs), "of")


def _server_rows(values: "pd.Series[str]", paper: Mapping[str, Any]) -> list[Row]:
    def machine(name: str, default: str = "unknown") -> str:
        # Tables of earlier versions may lack a name.
        return str(values.get(("machine", name), default))

    processor = f"{machine('processor')}, {machine('cores')} cores"
    return [
        _row("server", "GPU", paper["gpu"], machine("GPUs", NOT_RECORDED)),
        _row("server", "GPU memory at its peak", paper["gpu_memory"], NOT_RECORDED),
        _row("server", "processor", paper["processor"], processor),
        _row("server", "memory", paper["memory"], machine("memory")),
    ]


def _costs_of_runs(metrics: pd.DataFrame, timing: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each training run with what it cost; ``memory`` in MB, ``energy`` in kWh."""
    # ``generations`` is a running total, so the last epoch has that of the run.
    costs = metrics.groupby(_RUN, sort=False).agg(
        epochs=("epoch", "max"), generations=("generations", "last")
    )
    if "epoch_tokens" not in metrics:
        metrics = metrics.assign(epoch_tokens=math.nan)
    # With an epoch that was not counted the sum is unknown, and not 0.
    tokens = metrics.groupby(_RUN, sort=False)["epoch_tokens"]
    costs["tokens"] = tokens.agg(lambda epoch_tokens: epoch_tokens.sum(skipna=False))
    training = select_rows(timing, stage="train").groupby(_RUN)
    costs["hours"] = training["seconds"].sum() / 3600
    costs["memory"] = training["peak_memory_mb"].max()

    # Energy is measured by job, and a training job has the name of its run.
    jobs = select_rows(stages, stage="train").set_index("name")
    joules = jobs["energy_joules"] if "energy_joules" in jobs else pd.Series(dtype=float)
    energy = []
    for env, policy, method, seed in costs.index:
        run_id = f"{env}/{policy}/{method}/seed-{seed}"
        run_joules = float(joules.get(run_id, math.nan))
        energy.append(run_joules / JOULES_PER_KWH)
    costs["energy"] = energy
    return costs.reset_index()


def _run_rows(section: str, runs: pd.DataFrame, printed: Mapping[str, float]) -> list[Row]:
    """Return the rows of the runs of one environment and policy."""
    epochs = MISSING
    hours = MISSING
    if printed:
        days = printed["days"]
        epochs = f"{printed['epochs']:g}"
        hours = f"about {24 * days:g} ({days:g} days)"

    def ours(cost: str, write: Callable[[float], str]) -> str:
        return _range_over_methods(runs, cost, write)

    return [
        _row(section, "epochs of a run", epochs, ours("epochs", _format_amount)),
        _row(section, "hours of a run", hours, ours("hours", _format_amount)),
        _row(section, "generations of a run", MISSING, ours("generations", _format_count)),
        _row(section, "generated tokens of a run", MISSING, ours("tokens", _format_count)),
        _row(section, "memory of a run at its peak, MB", MISSING, ours("memory", _format_count)),
        _row(section, "energy of a run, kWh", MISSING, ours("energy", _format_amount)),
    ]


def _range_over_methods(runs: pd.DataFrame, cost: str, write: Callable[[float], str]) -> str:
    """Return the least and the most of the methods' means, with the methods."""
    # Runs of earlier versions may lack a cost.
    means = runs.groupby("method", sort=False)[cost].mean().dropna()
    if means.empty:
        return NOT_RECORDED

    cheapest = str(means.idxmin())
    dearest = str(means.idxmax())
    least = write(means[cheapest])
    most = write(means[dearest])
    # Texts are compared: means that differ only in digits that are not shown are one number to a reader.
    if least == most:
        return least
    return f"{least} ({label(cheapest)}) to {most} ({label(dearest)})"


def _notes(runs: pd.DataFrame) -> tuple[str, ...]:
    notes = [
        "Means over training seeds, from the method that takes least to the one that takes most. Hours are of training, on "
        "a machine that may have had other work; memory is that of the run's process, without a GPU's."
    ]
    if runs["tokens"].isna().any():
        notes.append(
            "Runs of before tokens were counted have none; without its metrics.parquet a run is made anew."
        )
    if runs["energy"].isna().all():
        energy = "Energy is recorded of a run's own GPUs, on its first machine (extra `gpu`); not of processors."
    else:
        energy = "Energy is that of the run's GPUs from its beginning to its end, without processors and memory."
    return (*notes, energy)


def _row(section: str, what: str, paper: str, ours: str) -> Row:
    return Row((text_cell(what), text_cell(paper), text_cell(ours)), section)


def _format_amount(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _format_count(value: float) -> str:
    return f"{value:,.0f}"
