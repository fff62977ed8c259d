"""Speed and memory of the ALFWorld engine beside the stock one, in one run, on the same games and the same commands.

    python -m benchmarks.environments [--games DIR] [--count 100] [--steps 100] [--seed 0] [--out FILE]

Without ``--games`` it runs on embedded games. The result is JSON. A step is a step and its list of admissible commands.

- ``ours``, ``stock``: an episode on each of ``count`` games with caches that begin empty: getting the game ready
  (compiling, or loading), the reset, and ``steps`` steps. ``again``: the same commands once more (of ours in all games, of
  the stock engine in a tenth of them): caches are full, and the stock engine need not load.
- ``speedup``: ratios of medians, of means, and of whole episodes with everything that comes before their first step.
- ``memory``: of one more episode. The stock engine has one process for each, as its own batches have.
- ``processes``: steps a second of wall time of as many processes as there are cores. The machine should be idle.
- ``parallel``: 256 episodes of as many games in one process, through ``threespo.gym``; ``fork_us`` and the like there.

Times are processor times unless said: a busy machine slows a long step down more than a short one.
"""

import argparse
import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import in_child, machine, resident, summary
from threespo import rng
from threespo.envs.alfworld import Alfworld, Game, GameRecord, compile_game
from threespo.envs.alfworld.sources import find_splits, load_games
from threespo.files import write_json

RESULTS = Path(__file__).parent / "results"
PARALLEL = 256
REPEATED = 10
"""One game in so many is played again on the stock engine, and in each of several processes."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=Path, help="folder of real games")
    parser.add_argument("--count", type=int, default=100, help="games to play on both engines")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.count < REPEATED or options.count % REPEATED:
        parser.error(f"--count: expected a multiple of {REPEATED}")

    result: dict[str, Any] = {
        "seed": options.seed,
        "steps": options.steps,
        "games_played": options.count,
    }
    result["source"] = "real games" if options.games else "embedded games, difficulty full"
    # First, while this process is small.
    result["parallel"] = in_child(parallel, options.games, options.steps, options.seed)
    if options.games:
        result["whole_set"], records = whole_set(options.games)
    else:
        records = embedded(max(options.count, PARALLEL), options.seed)
    records.sort(key=lambda record: rng.derive(options.seed, "benchmark", record.game_id))

    walks = [walk(record, options.steps, options.seed) for record in records[: options.count]]
    some = walks[:: options.count // REPEATED]
    result["memory"] = {
        "ours": in_child(memory_of_ours, records[:PARALLEL]),
        "stock": in_child(memory_of_stock, walks[0]),
    }
    result["processes"] = {name: processes(name, walks if name == "ours" else some) for name in ENGINES}
    result |= compare(walks, some)
    result["machine"] = machine("textworld", "alfworld", "numpy")

    out = options.out or RESULTS / f"environments-{'real' if options.games else 'embedded'}.json"
    write_json(out, result)
    print(
        f"{out}: {', '.join(f'{name} {ratio:.0f}' for name, ratio in result['speedup'].items())} times"
    )


def embedded(count: int, seed: int) -> list[GameRecord]:
    from threespo.envs.alfworld.embedded import generate_games

    return generate_games("train", count, seed, "full")


def whole_set(folder: Path) -> tuple[dict[str, Any], list[GameRecord]]:
    """Load and compile every game, and play every walkthrough."""
    start, cpu = time.perf_counter(), time.process_time()
    records = [record for split in find_splits(folder) for record in load_games(folder, split)]
    games = [compile_game(record) for record in records]
    times = {
        "load_and_compile_s": time.perf_counter() - start,
        "load_and_compile_cpu_s": time.process_time() - cpu,
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    env, won = Alfworld(), 0
    for game in games:
        state = env.initial(game)
        for command in game.walkthrough:
            state = env.step(state, command).state
        won += env.won(state)
    return {"games": len(games), **times, "peak_rss_gib": peak, "walkthroughs_won": won}, records


Walk = tuple[GameRecord, list[str], tuple[str, tuple[str, ...]]]
"""A game, the commands to play, and what stands at the end: observation and admissible commands."""


def walk(record: GameRecord, steps: int, seed: int) -> Walk:
    """Return a random walk of admissible commands, found by an engine that is then forgotten."""
    env, source, played = Alfworld(), rng.generator(seed, "walk", record.game_id), []
    state = env.initial(compile_game(record))
    for _ in range(steps):
        played.append(source.choice(env.admissible(state)))
        state = env.step(state, played[-1]).state
    return record, played, (state.observation, env.admissible(state))


class Ours:
    def prepare(self, record: GameRecord) -> Game:
        return compile_game(record)

    def __init__(self) -> None:
        self.env: Any = Alfworld()


class Stock(Ours):
    def prepare(self, record: GameRecord) -> Game:
        # What the stock engine needs of ours is the game's texts, which it takes from the record.
        game = super().prepare(record)
        self.env = self.new()
        return game

    def __init__(self) -> None:
        from threespo.envs.alfworld.textworld import TextWorldAlfworld

        self.new = TextWorldAlfworld
        self.env = self.new()


ENGINES: dict[str, Callable[[], Ours]] = {"ours": Ours, "stock": Stock}


def play(env: Any, game: Game, commands: Sequence[str]) -> tuple[list[float], Any]:
    """Return the times of the reset and of each step with its list, and the last state."""
    times, start = [], time.process_time()
    state = env.initial(game)
    env.admissible(state)
    times.append(time.process_time() - start)
    for command in commands:
        start = time.process_time()
        state = env.step(state, command).state
        env.admissible(state)
        times.append(time.process_time() - start)
    return times, state


def compare(walks: Sequence[Walk], some: Sequence[Walk]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, make in ENGINES.items():
        engine = make()
        ready: list[float] = []
        resets: list[float] = []
        steps: list[float] = []
        again: list[float] = []
        for item in walks:
            record, commands, last = item
            start = time.process_time()
            game = engine.prepare(record)
            ready.append(time.process_time() - start)
            times, state = play(engine.env, game, commands)
            if (state.observation, tuple(engine.env.admissible(state))) != last:
                sys.exit(f"{record.game_id}: the engines disagree; the comparison would be void")
            resets.append(times[0])
            steps += times[1:]
            if name == "ours" or item in some:
                again += play(engine.env, game, commands)[0][1:]
        result[name] = {
            "ready_and_reset_ms": summary([a + b for a, b in zip(ready, resets, strict=True)]),
            "step_ms": summary(steps),
            "step_again_ms": summary(again),
            "episode_ms_mean": 1e3 * (sum(ready) + sum(resets) + sum(steps)) / len(walks),
            "steps": len(steps),
        }
    ours, stock = result["ours"], result["stock"]
    result["speedup"] = {
        "of_medians": stock["step_ms"]["median"] / ours["step_ms"]["median"],
        "of_means": stock["step_ms"]["mean"] / ours["step_ms"]["mean"],
        "of_means_again": stock["step_again_ms"]["mean"] / ours["step_again_ms"]["mean"],
        "of_episodes": stock["episode_ms_mean"] / ours["episode_ms_mean"],
    }
    return result


def memory_of_ours(records: Sequence[GameRecord]) -> dict[str, float]:
    """Play 20 steps on each game, all episodes kept; then start seven more episodes of each, as groups do."""
    before, env, source, kept = resident()[0], Alfworld(), random.Random(0), []
    for record in records:
        state = env.initial(compile_game(record))
        for _ in range(20):
            state = env.step(state, source.choice(env.admissible(state))).state
        kept.append(state)
    alone = resident()[0]
    for state in list(kept):
        for _ in range(7):
            other = env.initial(state.game)
            for _ in range(20):
                other = env.step(other, source.choice(env.admissible(other))).state
            kept.append(other)
    return {
        "process_mib": before,
        "episode_of_a_game_of_its_own_mib": (alone - before) / len(records),
        "episode_of_a_game_that_is_played_mib": (resident()[0] - alone) / (7 * len(records)),
    }


def memory_of_stock(item: Walk) -> dict[str, float]:
    engine = Stock()
    before = resident()[0]
    play(engine.env, engine.prepare(item[0]), item[1][:20])
    return {"process_mib": before, "process_with_an_episode_mib": resident()[0]}


def rounds(name: str, walks: Sequence[Walk]) -> int:
    """Play whole episodes and return the number of their steps."""
    engine = ENGINES[name]()
    for record, commands, _ in walks:
        play(engine.env, engine.prepare(record), commands)
    return sum(len(commands) for _, commands, _ in walks)


def processes(name: str, walks: Sequence[Walk]) -> dict[str, float]:
    """Let one process, then one for each core, play whole episodes, everything before the first step included."""
    result: dict[str, float] = {}
    for count in (1, os.cpu_count() or 1):
        with multiprocessing.get_context("spawn").Pool(count) as pool:
            # Imports are over before the clock starts.
            pool.starmap(rounds, [(name, walks[:1])] * count, chunksize=1)
            start = time.perf_counter()
            played = sum(pool.starmap(rounds, [(name, walks)] * count, chunksize=1))
            result[f"{count}_steps_per_s_wall"] = played / (time.perf_counter() - start)
    return result


def parallel(games: Path | None, steps: int, seed: int) -> dict[str, float]:
    from threespo.gym import ALFWorldVectorEnv

    start = time.process_time()
    env = ALFWorldVectorEnv(
        PARALLEL, split="train", path=str(games) if games else None, autoreset=False, max_steps=steps
    )
    _, info = env.reset(seed=seed)
    begun, source, played = time.process_time(), random.Random(seed), 0
    for _ in range(steps):
        playing = sum(not episode.done for episode in env.episodes)
        *_, info = env.step(
            [source.choice(commands or ["look"]) for commands in info["admissible_commands"]]
        )
        played += playing
    spent = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {
        "episodes": PARALLEL,
        "steps": played,
        "reset_s": begun - start,
        "steps_per_cpu_s": played / spent,
        "steps_per_cpu_s_with_reset": played / (time.process_time() - start),
        "peak_rss_mib": peak,
        **points(games, seed),
    }


def points(games: Path | None, seed: int) -> dict[str, float]:
    """Return the times of copies and snapshots, in the middle of an episode."""
    from threespo.gym import ALFWorldEnv

    env = ALFWorldEnv(split="train", path=str(games) if games else None)
    _, info = env.reset(seed=seed)
    for _ in range(10):
        *_, info = env.step(random.Random(seed).choice(info["admissible_commands"]))
    point, data = env.snapshot(), env.dump()
    calls: dict[str, Callable[[], Any]] = {
        "fork": env.fork,
        "snapshot": env.snapshot,
        "restore": lambda: env.restore(point),
        "dump": env.dump,
        "restore_of_bytes": lambda: env.restore(data),
    }
    result = {}
    for name, call in calls.items():
        start = time.process_time()
        for _ in range(2000):
            call()
        result[f"{name}_us"] = 1e6 * (time.process_time() - start) / 2000
    return result


if __name__ == "__main__":
    main()
