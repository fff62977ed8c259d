"""Speed of the ALFWorld engine beside the stock one, measured in one run on the same games and the same commands.

    python -m benchmarks.environments [--games DIR] [--count 10] [--steps 40] [--seed 0] [--out FILE]

Without ``--games`` it runs on embedded games. The result is JSON; ``speedup`` is the ratio of the median times of one
step together with its list of admissible commands. Every game is played once, so that our caches begin empty.
"""

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from threespo import rng
from threespo.envs.alfworld import Alfworld, Game, GameRecord, compile_game
from threespo.envs.alfworld.sources import load, splits
from threespo.files import atomic_json

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, help="folder of real games")
    parser.add_argument("--count", type=int, default=10, help="games to play on both engines")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"seed": options.seed, "steps": options.steps, "games_played": options.count}
    if options.games:
        result["whole_set"], records = whole_set(options.games)
    else:
        records = embedded(options.count, options.seed)
    result["source"] = "real games" if options.games else "embedded games, difficulty full"
    result["compile_ms_median"] = 1000 * statistics.median(seconds(lambda r=record: compile_game(r)) for record in records)
    order = sorted(records, key=lambda record: rng.derive(options.seed, "benchmark", record.game_id))
    result.update(compare([compile_game(record) for record in order[: options.count]], options.steps, options.seed))
    result["machine"] = machine("textworld", "alfworld", "numpy")
    source = "real" if options.games else "embedded"
    out = options.out or RESULTS / f"environments-{source}.json"
    atomic_json(out, result)
    ours, stock = result["step_us_median"], result["stock_step_ms_median"]
    print(f"{out}: speedup {result['speedup']:.0f} ({ours:.1f} us against {stock:.1f} ms)")


def seconds(function: Any) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def embedded(count: int, seed: int) -> list[GameRecord]:
    from threespo.envs.alfworld.embedded import generate

    return generate("train", max(count, 100), seed, "full")


def whole_set(folder: Path) -> tuple[dict[str, Any], list[GameRecord]]:
    """Load and compile every game, and play every walkthrough."""
    start, cpu = time.perf_counter(), time.process_time()
    records = [record for split in splits(folder) for record in load(folder, split)]
    games = [compile_game(record) for record in records]
    times = {"load_and_compile_s": time.perf_counter() - start, "load_and_compile_cpu_s": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    env, won = Alfworld(), 0
    for game in games:
        state = env.initial(game)
        for command in game.walkthrough:
            state = env.step(state, command).state
        won += env.won(state)
    return {"games": len(games), **times, "peak_rss_gib": peak, "walkthroughs_won": won}, records


def compare(games: list[Game], steps: int, seed: int) -> dict[str, Any]:
    """Play the same random walks on both engines; times are of a step and its list of admissible commands.

    They are processor times, because a busy machine slows a long step down more than a short one.
    """
    from threespo.envs.alfworld.textworld import TextWorldAlfworld

    ours, stock = Alfworld(), TextWorldAlfworld()
    walks = []
    fast: list[float] = []
    for game in games:
        source, state, walk = rng.generator(seed, "walk", game.task_id), ours.initial(game), []
        commands = ours.admissible(state)
        for _ in range(steps):
            command = source.choice(commands)
            walk.append(command)
            start = time.process_time()
            state = ours.step(state, command).state
            commands = ours.admissible(state)
            fast.append(time.process_time() - start)
        walks.append((game, walk, state))
    slow: list[float] = []
    reset: list[float] = []
    for game, walk, last in walks:
        start = time.process_time()
        there = stock.initial(game)
        reset.append(time.process_time() - start)
        for command in walk:
            start = time.process_time()
            there = stock.step(there, command).state
            stock.admissible(there)
            slow.append(time.process_time() - start)
        if (there.observation, stock.admissible(there)) != (last.observation, ours.admissible(last)):
            sys.exit(f"{game.task_id}: the engines disagree; the comparison would be void")
    return {
        "step_us_median": 1e6 * statistics.median(fast),
        "step_us_mean": 1e6 * statistics.fmean(fast),
        "stock_step_ms_median": 1e3 * statistics.median(slow),
        "stock_step_ms_mean": 1e3 * statistics.fmean(slow),
        "stock_load_and_reset_s_median": statistics.median(reset),
        "speedup": statistics.median(slow) / statistics.median(fast),
        "speedup_of_means": statistics.fmean(slow) / statistics.fmean(fast),
    }


if __name__ == "__main__":
    main()
