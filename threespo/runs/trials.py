"""The stage ``tune``: a method's learning rate, chosen from its trials, and the trials beyond an edge of its grid.

Which rates those are is known only when the grid's trials have been played, so they are trained and evaluated here and not
by jobs of their own. They lie in the folders of ordinary trials and have the bytes that those would have.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from threespo.envs.spec import CALIBRATION
from threespo.errors import InputError
from threespo.files import read_json, write_json
from threespo.paths import Paths, Run, made_by_file, trials_file
from threespo.provenance.digests import file_digest
from threespo.runs.evaluate import evaluate
from threespo.runs.rate_grid import Games, TriedRates
from threespo.runs.settings import ExtensionSettings, TuneSettings
from threespo.runs.train import train, training_identity
from threespo.tables import read_table, select_rows

if TYPE_CHECKING:
    import pandas as pd


def choose_learning_rate(settings: TuneSettings) -> None:
    """Write the rate whose trials won the most games of the calibration split, and what it was chosen from.

    Raises:
        InputError: if a trial's evaluation is missing, or has played other games than the base's.
    """
    paths = settings.paths
    runs = list(settings.trials)
    tried = _read_tried(settings, runs)
    added: list[float] = []
    extension = settings.extension
    while extension is not None and len(added) < extension.max_extensions:
        rate = tried.next_rate(extension.factor)
        if rate is None:
            break
        _announce(settings, tried, rate)
        added.append(rate)
        for seed in extension.seeds:
            run = Run(settings.env, settings.policy, settings.method, seed, rate)
            make_trial(extension, run)
            runs.append(run)
        tried = _read_tried(settings, runs)

    names = (settings.env, settings.policy, settings.method)
    write_json(trials_file(paths, *names), _describe(settings, tried, runs, added))
    write_json(paths.choice(*names), {"learning_rate": tried.best})
    _say(settings, f"{tried.best:g} of {_list_means(tried)}{_name_edge(tried)}")


def make_trial(settings: ExtensionSettings, run: Run) -> None:
    """Train and evaluate a trial beyond the grid, unless that is done already by the same settings, code and inputs.

    A training that was stopped goes on from its last checkpoint.
    """
    training = settings.train.model_copy(update={"run": run, "learning_rate": run.rate})
    evaluation = settings.evaluate.model_copy(update={"run": run})
    folder = training.paths.run(run)
    file = made_by_file(folder)
    done = read_json(file, "Delete it.") if file.is_file() else {}
    if not isinstance(done, dict):
        done = {}

    made_by = _digest([training_identity(training), settings.code])
    if done.get("train") != made_by or not folder.weights.is_dir():
        train(training)
        done = {"train": made_by}
        write_json(file, done)

    judged_by = _digest([made_by, evaluation.key()])
    is_there = folder.evaluation.is_file() and done.get("episodes") == file_digest(folder.evaluation)
    if done.get("evaluate") != judged_by or not is_there:
        evaluate(evaluation)
        write_json(
            file,
            {"train": made_by, "evaluate": judged_by, "episodes": file_digest(folder.evaluation)},
        )


def _read_tried(settings: TuneSettings, runs: Sequence[Run]) -> TriedRates:
    """Return what the trials and the base won on the calibration games."""
    bases = [_calibration_games(settings.paths, base) for base in settings.bases]
    by_rate: dict[float, list[Games]] = {}
    base_of_seed: dict[int, Games] = {}
    for run in runs:
        games = _calibration_games(settings.paths, run)
        number = run.seed % len(bases)
        if not games.index.equals(bases[number].index):
            raise InputError(
                f"{settings.paths.run(run).evaluation}: has other calibration games than "
                f"{settings.paths.run(settings.bases[number]).evaluation}; delete both, and the workflow makes them anew"
            )
        assert run.rate is not None, "trials have rates"
        by_rate.setdefault(run.rate, []).append(games.to_numpy())
        base_of_seed[run.seed] = bases[number].to_numpy()
    # All rates have the same seeds in the same order, so one array of bases serves them all.
    base = np.stack([*base_of_seed.values()])
    return TriedRates(base, {rate: np.stack(games) for rate, games in by_rate.items()})


def _calibration_games(paths: Paths, run: Run) -> "pd.Series[float]":
    """Return success in 0 or 1 by game, in the order of the games' names."""
    played = select_rows(read_table(paths.run(run).evaluation), split=CALIBRATION)
    return played.set_index("task_id")["success"].astype(float).sort_index()


def _describe(
    settings: TuneSettings, tried: TriedRates, runs: Sequence[Run], added: Sequence[float]
) -> dict[str, Any]:
    """Return what a choice was made from: shares of the calibration games by rate, and all splits by trial."""
    seeds = [run.seed for run in runs if run.rate == tried.best]
    rates = []
    for rate in sorted(tried.trials):
        by_seed = {str(seed): won for seed, won in zip(seeds, tried.by_trial(rate), strict=True)}
        rates.append(
            {
                "learning_rate": rate,
                "mean": tried.mean(rate),
                "seeds": len(seeds),
                "success": by_seed,
                "equals_base": tried.equals_base(rate),
            }
        )
    return {
        "learning_rate": tried.best,
        "at_edge": tried.edge,
        "equals_base": tried.equals_base(tried.best),
        "base": float(tried.base.mean()),
        "extensions": list(added),
        "rates": rates,
        "trials": [row for run in runs for row in _splits_of_trial(settings.paths, run)],
    }


def _splits_of_trial(paths: Paths, run: Run) -> list[dict[str, Any]]:
    played = read_table(paths.run(run).evaluation)
    return [
        {
            "learning_rate": run.rate,
            "training_seed": run.seed,
            "split": split,
            "games": len(games),
            "success": float(games["success"].mean()),
            "score": float(games["score"].mean()),
        }
        for split, games in played.groupby("split", sort=True)
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _list_means(tried: TriedRates) -> str:
    return ", ".join(f"{rate:g}: {tried.mean(rate):.1%}" for rate in sorted(tried.trials))


def _say(settings: TuneSettings, text: str) -> None:
    name = f"{settings.env}/{settings.policy}/{settings.method}"
    print(f"tune {name}: {text}", file=sys.stderr, flush=True)


def _announce(settings: TuneSettings, tried: TriedRates, rate: float) -> None:
    _say(settings, f"the best of {_list_means(tried)} is at the {tried.edge} edge; trying {rate:g}")


def _name_edge(tried: TriedRates) -> str:
    if tried.edge:
        return f"; at the {tried.edge} edge of what was tried"
    return "; no different from the base" if tried.equals_base(tried.best) else ""
