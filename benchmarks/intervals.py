"""How often the intervals and tests that decide verdicts are wrong, by simulation.

    python -m benchmarks.intervals [--seed 0] [--trials 12000] [--old-trials 400] [--only NAME …] [--out FILE]

The functions are those in use. A trial is a study: each arm has training seeds whose true success spreads by so many points
(standard deviation), all are judged on one panel of 200 games of unequal difficulty, twice per game. Rates are in percent.
``equal``: both arms have the same true mean and spread, so each verdict is false; ``unequal`` has other spreads or numbers
of seeds, ``collapse`` seeds of which one in six loses 40 points. ``other games``: methods are better in some games than in
others, and the true difference is that over all games, not those of the panel. ``bootstrap`` is the percentile bootstrap
over seeds and games that was used before. ``power`` is the share of trials that see a true difference of 10 points.
``equivalence``: verdicts of equality within 5 points where the truth is 5 points apart. ``ratio``: seeds with lognormal
counts. ``one policy``: how often the interval over clusters of games misses the true success; ``bootstrap`` there resamples
games as if independent. ``against a policy``: the same of the difference of a trained method to one policy. ``one mean``: a
mean against a bound that it is at; ``near``: that it is within 5 points of a number 5 points away; ``over bases``: a
difference that bases have in both directions, each with four seeds an arm; ``sooner``: which of two equal methods reaches a
success first, where a share of runs ends before it does.

``one arm fails``: the true means are equal, failed runs included, and one arm alone has such runs, a share of which ends
at 0 or at the base's 30; ``above`` and ``below`` are false verdicts that it is better and worse. ``one arm fails, Student``:
the same by Welch's t alone. ``power, failed runs``: the share of trials that see so many points above 20 or 50 % where no
run fails. ``tasks``: how often the interval of a mean misses the true success on all games there could be, of seeds that are
equally good. ``pairs``: two methods that are equal on average, whose seeds share bases that differ; runs of one may fail.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.machine import machine
from threespo.files import write_json
from threespo.results.analysis.statistics import (
    FAILED_RUN,
    cluster_interval,
    difference_interval,
    difference_to_policy,
    equivalence_interval,
    interval_over_policies,
    mean_interval,
    ratio_interval,
    task_error,
)
from threespo.results.claims.finding import verdict_vs_bound, verdict_within
from threespo.results.claims.learning import AXES, test_arrival
from threespo.results.claims.seeds import test_mean, test_within

GAMES, EVALUATIONS = 200, 2
DIFFICULTY = 1.5
"""Standard deviation of games' log-odds of success."""
SPREADS = (0, 3, 6, 10, 13)
SEEDS = range(2, 13)
UNEQUAL = [(n, n, 13, small) for n in (3, 4, 5, 6, 8, 12) for small in (0, 3, 6)] + [
    (few, many, *spreads)
    for few, many in ((3, 4), (3, 6), (3, 12), (4, 8), (6, 12))
    for spreads in ((6, 6), (13, 13), (13, 0), (0, 13), (13, 6), (6, 13))
]
RESAMPLES = 1000
PANELS = 16
"""Games are drawn anew so often in the trials of a cell."""
OWN = 0.5
"""Standard deviation of what a method is better in single games, or layouts, in log-odds."""
QUANTILES = norm.ppf((np.arange(400) + 0.5) / 400)

Array = np.ndarray[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--trials", type=int, default=12000, help="of each cell of ``equal``, half of it elsewhere"
    )
    parser.add_argument("--old-trials", type=int, default=400, help="of the bootstrap, which is slow")
    parser.add_argument(
        "--only", nargs="+", choices=list(CELLS), default=list(CELLS), help="the rest of FILE stays"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "intervals.json")
    options = parser.parse_args()
    result: dict[str, Any] = (
        json.loads(options.out.read_text()) if len(options.only) < len(CELLS) else {}
    )
    result |= {"machine": machine("numpy", "scipy"), "seed": options.seed}

    for name in options.only:
        rows = []
        trials = (
            options.old_trials
            if "bootstrap" in name
            else options.trials // (1 if name == "equal" else 2)
        )
        for place, (labels, trial) in enumerate(CELLS[name]()):
            random = np.random.default_rng([options.seed, list(CELLS).index(name), place])
            verdicts = np.array(list(_played(trial, trials, random)), dtype=int)
            row = {**labels, "percent": _percent(verdicts != 0)}
            if name in WITH_SIDES:
                row |= {"above": _percent(verdicts > 0), "below": _percent(verdicts < 0)}
            rows.append(row)
        result[name] = {
            "largest": max(row["percent"] for row in rows),
            "smallest": min(row["percent"] for row in rows),
        }
        result[name] |= {"cells": rows, "trials": trials}
        print(f"{name}: {result[name]['smallest']} to {result[name]['largest']} %", flush=True)
    write_json(options.out, result)


Trial = Callable[[np.random.Generator, "Panel"], int]
"""(random numbers, games) -> whether the trial counts; of ``WITH_SIDES`` 1 for above, -1 for below, 0 for undecided."""


def _percent(is_counted: Array) -> float:
    return round(100 * float(np.mean(is_counted)), 2)


def _played(trial: Trial, trials: int, random: np.random.Generator) -> Iterator[int]:
    for _ in range(PANELS):
        panel = Panel(random.normal(0, DIFFICULTY, GAMES))
        for _ in range(trials // PANELS):
            yield trial(random, panel)


class Panel:
    """Games by their log-odds of success, and the shifts of all of them that give a mean success."""

    SHIFTS = np.linspace(-9, 9, 181)

    def __init__(self, games: Array) -> None:
        self.games = games
        self.means = 100 * _odds(self.SHIFTS[:, None] + games).mean(axis=1)

    def shifts(self, success: Array) -> Array:
        """Return the shift of the log-odds at which mean success is so many percent."""
        return np.asarray(np.interp(np.clip(success, 1, 99), self.means, self.SHIFTS))


def arm(
    random: np.random.Generator,
    panel: Panel,
    seeds: int,
    spread: float,
    mean: float = 50,
    collapse: bool = False,
    games: Array | None = None,
) -> Array:
    """Return success in percent, (seeds, games), of runs whose true success on a panel spreads about ``mean``.

    They play the panel's games, or others with log-odds ``games``.
    """
    true = mean + spread * random.standard_normal(seeds)
    if collapse:
        true += 40 * (1 / 6 - (random.random(seeds) < 1 / 6))
    odds = _odds(panel.shifts(true)[:, None] + (panel.games if games is None else games))
    return _played_games(random, odds)


def _played_games(random: np.random.Generator, odds: Array) -> Array:
    """Return success in percent, the mean of the evaluations, for these probabilities of winning."""
    return 100 * (random.random((EVALUATIONS, *odds.shape)) < odds).mean(axis=0)


def _odds(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def _verdict(low: float, high: float) -> bool:
    return verdict_vs_bound(low, high, 0.0) != "undecided"


def _two(first: tuple[Any, ...], second: tuple[Any, ...]) -> Trial:
    def trial(random: np.random.Generator, panel: Panel) -> bool:
        found = difference_interval(*(arm(random, panel, *one).mean(axis=1) for one in (first, second)))
        return _verdict(found.low, found.high)

    return trial


def _equal() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in SEEDS:
        for spread in SPREADS:
            yield {"seeds": seeds, "spread": spread}, _two((seeds, spread), (seeds, spread))


def _unequal() -> Iterator[tuple[dict[str, Any], Trial]]:
    for first, second, one, other in UNEQUAL:
        yield {"seeds": [first, second], "spread": [one, other]}, _two((first, one), (second, other))


def _collapse() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in ((3, 3), (4, 4), (6, 6), (8, 8), (12, 12), (3, 6), (4, 12)):
        for spread in (0, 6):
            arms = [(count, spread, 50, True) for count in seeds]
            yield {"seeds": list(seeds), "spread": spread}, _two(*arms)


FAILING = [
    (seeds, own, other, share, end)
    for seeds in (3, 4, 5, 6, 8, 11, 12)
    for own, other in ((3, 3), (6, 3), (13, 3), (3, 13), (13, 13))
    for share in (1 / 6, 1 / 3)
    for end in (0, 30)
]


def _one_fails(floor: float | None) -> Callable[[], Iterator[tuple[dict[str, Any], Trial]]]:
    def cells() -> Iterator[tuple[dict[str, Any], Trial]]:
        for seeds, own, other, share, end in FAILING:

            def trial(
                random: np.random.Generator,
                panel: Panel,
                seeds: int = seeds,
                own: float = own,
                other: float = other,
                share: float = share,
                end: float = end,
            ) -> int:
                first = failing_arm(random, panel, seeds, own, share, end)
                return _side(first, arm(random, panel, seeds, other), floor)

            labels = {"seeds": seeds, "spread": own, "other": other, "share": share, "end": end}
            yield labels, trial

    return cells


def failing_arm(
    random: np.random.Generator,
    panel: Panel,
    seeds: int,
    spread: float,
    share: float,
    end: float,
    mean: float = 50,
) -> Array:
    """Return an arm of which a share of runs ends at ``end``, and whose mean success is still ``mean``."""
    runs = arm(random, panel, seeds, spread, (mean - share * end) / (1 - share))
    failed = arm(random, panel, seeds, 0, end) if end else np.zeros_like(runs)
    return np.where(random.random((seeds, 1)) < share, failed, runs)


def _side(first: Array, second: Array, floor: float | None, units: Any = None) -> int:
    """Return 1 where the first is said to be above, -1 where below, by the package's difference of two methods."""
    error = task_error(first.mean(axis=0) - second.mean(axis=0), range(GAMES))
    found = difference_interval(
        first.mean(axis=1).tolist(),
        second.mean(axis=1).tolist(),
        floor=floor,
        least_error=0.0 if floor is None else error,
        units=units,
    )
    return int(found.low > 0) - int(found.high < 0)


def _power_with_failures() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 5, 8, 12):
        for spread in (3, 6, 13):
            for low, points in ((20, 15), (20, 30), (20, 50), (50, 15), (50, 30)):

                def trial(
                    random: np.random.Generator,
                    panel: Panel,
                    seeds: int = seeds,
                    spread: float = spread,
                    low: float = low,
                    points: float = points,
                ) -> int:
                    first = arm(random, panel, seeds, spread, low + points)
                    return _side(first, arm(random, panel, seeds, spread, low), FAILED_RUN)

                yield {"seeds": seeds, "spread": spread, "low": low, "points": points}, trial


def _tasks() -> Iterator[tuple[dict[str, Any], Trial]]:
    population = Panel(all_games())
    for seeds in (3, 6, 12):
        for success in (5, 50, 72, 98):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, success: float = success
            ) -> int:
                games = random.normal(0, DIFFICULTY, GAMES)
                odds = _odds(population.shifts(np.array([success]))[:, None] + games)
                played = _played_games(random, np.repeat(odds, seeds, axis=0))
                found = mean_interval(
                    played.mean(axis=1).tolist(),
                    least_error=task_error(played.mean(axis=0), range(GAMES)),
                )
                return int(not found.low <= success <= found.high)

            yield {"seeds": seeds, "success": success}, trial


def _pairs() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds, bases in ((6, 6), (6, 3), (12, 4), (12, 12)):
        for effect in (0, 10):
            for share in (0.0, 1 / 3):

                def trial(
                    random: np.random.Generator,
                    panel: Panel,
                    seeds: int = seeds,
                    bases: int = bases,
                    effect: float = effect,
                    share: float = share,
                ) -> int:
                    units = np.arange(seeds) % bases
                    levels = 50 + effect * random.standard_normal(bases)[units]
                    # What a method gains differs from base to base as well.
                    own = levels + effect / 2 * random.standard_normal(bases)[units]
                    first = np.concatenate(
                        [
                            failing_arm(random, panel, 1, 6, share, 0, mean)
                            for mean in np.clip(own, 5, 65)
                        ]
                    )
                    second = np.concatenate(
                        [arm(random, panel, 1, 6, mean) for mean in np.clip(levels, 5, 65)]
                    )
                    return _side(first, second, FAILED_RUN, units.tolist())

                yield {"seeds": seeds, "bases": bases, "effect": effect, "share": share}, trial


def _other_games() -> Iterator[tuple[dict[str, Any], Trial]]:
    population = Panel(all_games(OWN))
    for seeds in (3, 4, 12):
        for spread in (0, 3, 6):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                means = []
                for _ in range(2):
                    own = panel.games + random.normal(0, OWN, GAMES)
                    means.append(arm(random, population, seeds, spread, games=own).mean(axis=1))
                found = difference_interval(*means)
                return _verdict(found.low, found.high)

            yield {"seeds": seeds, "spread": spread}, trial


def all_games(*effects: float) -> Array:
    """Return the log-odds of all games there could be, as quantiles: their difficulty, and effects of such deviations."""
    return np.asarray(np.sqrt(DIFFICULTY**2 + sum(one**2 for one in effects)) * QUANTILES)


def _power() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 8, 12):
        for spread in (3, 6, 10):
            yield {"seeds": seeds, "spread": spread}, _two((seeds, spread, 60), (seeds, spread, 50))


def _bootstrap() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (2, 3, 4, 6, 12):
        for spread in (0, 6, 13):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                arms = [arm(random, panel, seeds, spread) for _ in range(2)]
                return _verdict(*percentiles(resampled(arms[0], arms[1], random)))

            yield {"seeds": seeds, "spread": spread}, trial


def resampled(first: Array, second: Array, random: np.random.Generator) -> Array:
    """Return differences of means by the bootstrap used before: games drawn once for both arms, seeds for each arm."""
    games = random.integers(GAMES, size=(RESAMPLES, GAMES)) + GAMES * np.arange(RESAMPLES)[:, None]
    drawn = np.bincount(games.ravel(), minlength=games.size).reshape(games.shape)
    means = []
    for values in (first, second):
        seeds = random.integers(len(values), size=(RESAMPLES, len(values)))
        means.append(np.take_along_axis(drawn @ values.T / GAMES, seeds, axis=1).mean(axis=1))
    return np.asarray(means[0] - means[1])


def percentiles(values: Array) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _equivalence() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 12):
        for spread in (0, 3, 6):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                first, second = (
                    arm(random, panel, seeds, spread, mean).mean(axis=1).tolist() for mean in (55, 50)
                )
                found = equivalence_interval(first, second, 5.0)
                return verdict_within(found.low, found.high, 5.0) == "holds"

            yield {"seeds": seeds, "spread": spread}, trial


def _ratio() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 12):
        for spread in (0.05, 0.3, 1.0):

            def trial(
                random: np.random.Generator, _: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                first, second = (
                    np.exp(spread * random.standard_normal(seeds)).tolist() for _ in range(2)
                )
                found = ratio_interval(first, second)
                return verdict_vs_bound(found.low, found.high, 1.0) != "undecided"

            yield {"seeds": seeds, "spread": spread}, trial


def _one_policy(interval: Callable[[Array, Array, np.random.Generator], tuple[float, float]]) -> Any:
    def cells() -> Iterator[tuple[dict[str, Any], Trial]]:
        for layouts in (4, 8, 24, 60):
            for effect in (0.0, 0.5, 1.0):

                def trial(
                    random: np.random.Generator, _: Panel, layouts: int = layouts, effect: float = effect
                ) -> bool:
                    clusters = random.permutation(np.arange(GAMES) % layouts)
                    logits = (
                        random.normal(-1, DIFFICULTY, GAMES)
                        + random.normal(0, effect, layouts)[clusters]
                    )
                    played = _played_games(random, _odds(logits))
                    true = 100 * float(_odds(all_games(effect) - 1).mean())
                    low, high = interval(played, clusters, random)
                    return not low <= true <= high

                yield {"layouts": layouts, "effect": effect}, trial

    return cells


def _over_clusters(played: Array, clusters: Array, _: np.random.Generator) -> tuple[float, float]:
    found = cluster_interval(played, clusters.tolist())
    return found.low, found.high


def _over_games(played: Array, _: Array, random: np.random.Generator) -> tuple[float, float]:
    return percentiles(played[random.integers(GAMES, size=(RESAMPLES, GAMES))].mean(axis=1))


def _against_policy() -> Iterator[tuple[dict[str, Any], Trial]]:
    population = Panel(all_games(OWN, OWN))
    for layouts in (4, 24):
        for seeds, spread in ((3, 0), (3, 6), (3, 13), (4, 0), (4, 6), (4, 13), (8, 6)):

            def trial(
                random: np.random.Generator,
                _: Panel,
                seeds: int = seeds,
                spread: float = spread,
                layouts: int = layouts,
            ) -> bool:
                clusters = random.permutation(np.arange(GAMES) % layouts)
                games = random.normal(0, DIFFICULTY, GAMES) + random.normal(0, OWN, layouts)[clusters]
                own = games + random.normal(0, OWN, layouts)[clusters]
                runs = arm(random, population, seeds, spread, games=own)
                policy = _played_games(random, _odds(games))
                found = difference_to_policy(runs, policy, clusters.tolist())
                return _verdict(found.low, found.high)

            yield {"layouts": layouts, "seeds": seeds, "spread": spread}, trial


def _one_mean() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 12):
        for spread in (0, 3, 6, 13):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                found = test_mean(arm(random, panel, seeds, spread).mean(axis=1).tolist(), 50.0)
                return found.verdict != "undecided"

            yield {"seeds": seeds, "spread": spread}, trial


def _near() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 12):
        for spread in (0, 3, 6):

            def trial(
                random: np.random.Generator, panel: Panel, seeds: int = seeds, spread: float = spread
            ) -> bool:
                return (
                    test_within(
                        arm(random, panel, seeds, spread).mean(axis=1).tolist(), 5.0, around=45.0
                    ).verdict
                    == "holds"
                )

            yield {"seeds": seeds, "spread": spread}, trial


def _over_bases() -> Iterator[tuple[dict[str, Any], Trial]]:
    for bases in (3, 4, 6):
        for effect in (0, 5, 15):

            def trial(
                random: np.random.Generator, panel: Panel, bases: int = bases, effect: float = effect
            ) -> bool:
                gaps = effect * random.standard_normal(bases)
                first, second = (
                    [arm(random, panel, 4, 6, mean).mean(axis=1).tolist() for mean in means]
                    for means in (50 + gaps, np.full(bases, 50))
                )
                found = interval_over_policies(first, second)
                return _verdict(found.low, found.high)

            yield {"bases": bases, "effect": effect}, trial


def _sooner() -> Iterator[tuple[dict[str, Any], Trial]]:
    for seeds in (3, 4, 6, 12):
        for late in (0.0, 0.2, 0.5):

            def trial(
                random: np.random.Generator, _: Panel, seeds: int = seeds, late: float = late
            ) -> bool:
                # Arrivals are lognormal; the budget is where so many of them would be later.
                end = float(np.exp(0.5 * norm.ppf(1 - late))) if late else 1e6
                arrivals = np.exp(0.5 * random.standard_normal((2, seeds)))
                first, second = ([_rising(float(at), end) for at in one] for one in arrivals)
                return test_arrival(first, second, ("one", "other"), success=0.6).verdict != "undecided"

            yield {"seeds": seeds, "late": late}, trial


def _rising(arrival: float, end: float) -> pd.DataFrame:
    """Return the snapshots of a run that has 60 % at ``arrival``, or would have."""
    spent = [0.0, arrival, end] if arrival < end else [0.0, end]
    curve = pd.DataFrame(
        {"generations": spent, "success": [0.6 * min(1.0, at / arrival) for at in spent]}
    )
    return curve.assign(**dict.fromkeys(AXES, curve["generations"]))


CELLS: dict[str, Callable[[], Iterator[tuple[dict[str, Any], Trial]]]] = {
    "equal": _equal,
    "unequal": _unequal,
    "collapse": _collapse,
    "other games": _other_games,
    "bootstrap": _bootstrap,
    "power": _power,
    "equivalence": _equivalence,
    "ratio": _ratio,
    "one policy": _one_policy(_over_clusters),
    "one policy, bootstrap": _one_policy(_over_games),
    "against a policy": _against_policy,
    "one mean": _one_mean,
    "near": _near,
    "over bases": _over_bases,
    "sooner": _sooner,
    "one arm fails": _one_fails(FAILED_RUN),
    "one arm fails, Student": _one_fails(None),
    "power, failed runs": _power_with_failures,
    "tasks": _tasks,
    "pairs": _pairs,
}

WITH_SIDES = ("one arm fails", "one arm fails, Student", "pairs")


if __name__ == "__main__":
    main()
