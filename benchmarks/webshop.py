"""Speed and size of the shop: compiling, opening, searching, and a step with its list of admissible actions.

    python -m benchmarks.webshop [--catalogue DIR | --products 100000] [--goals 200] [--steps 15] [--seed 0] [--out FILE]

``--catalogue`` is a folder of the original's JSON files; otherwise the embedded shop is built. Each goal is played once
by a random walk that searches with the goal's own words. The result is JSON. Steps are measured in three ways:

- ``step``: one open shop; before every episode it forgets all search results, products and pages.
- ``reopened``: every episode in a shop that was just opened, so that its files are not mapped yet either.
- ``group``: one open shop that forgets nothing, and eight episodes of each goal, as in training.

``original_step_ms`` is the median step of the original program on 1,000 products, as measured on another machine (22 to
25 ms; Lucene in a JVM); it is not measured here.
"""

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from threespo import rng
from threespo.envs.webshop import Catalogue, WebShop, compile_catalogue
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.goals import ShopGoal, repaired_goals
from threespo.envs.webshop.sources import read_products
from threespo.files import atomic_json

RESULTS = Path(__file__).parent / "results"
ORIGINAL_STEP_MS = 22.0
GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogue", type=Path, help="folder of the original's JSON files")
    parser.add_argument("--products", type=int, default=100_000, help="size of the embedded shop")
    parser.add_argument("--goals", type=int, default=200)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="webshop-benchmark-"))
    try:
        result = {**build(options, folder / "catalogue"), **play(options, folder / "catalogue")}
    finally:
        shutil.rmtree(folder)
    result["machine"] = machine("numpy", "rapidfuzz", "nltk", "textblob", "regex")
    name = "real" if options.catalogue else f"embedded-{options.products}"
    out = options.out or RESULTS / f"webshop-{name}.json"
    atomic_json(out, result)
    step, mean, search = result["step_ms_median"], result["step_ms_mean"], result["search_ms_p95"]
    print(f"{out}: step {step:.3f} (mean {mean:.3f}) ms, search p95 {search:.1f} ms")


def build(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    products = read_products(options.catalogue) if options.catalogue else generate(options.products, options.seed)
    start, cpu = time.perf_counter(), time.process_time()
    facts = compile_catalogue(products, folder)
    return {
        "products": facts["products"],
        "terms_per_product": facts["terms"] / facts["products"],
        "compile_s": time.perf_counter() - start,
        "compile_cpu_s": time.process_time() - cpu,
        "compile_peak_rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "size_mib": sum(path.stat().st_size for path in folder.iterdir()) / 2**20,
    }


def play(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    start = time.perf_counter()
    catalogue = Catalogue(folder)
    opened = time.perf_counter() - start
    start = time.perf_counter()
    env = WebShop(catalogue)
    result: dict[str, Any] = {"open_s": opened, "load_words_s": time.perf_counter() - start}
    source = rng.generator(options.seed, "webshop benchmark")
    goals = source.sample(found := repaired_goals(catalogue, options.seed, human=False), min(options.goals, len(found)))
    del found  # Many objects slow the collection of garbage.
    result |= searches(catalogue, goals)

    def forgetful() -> WebShop:
        for cache in (catalogue.product, catalogue.head, catalogue.index.search):
            cache.cache_clear()
        return WebShop(catalogue)

    result |= episodes("step", forgetful, goals, options)
    result |= episodes("reopened", lambda: WebShop(Catalogue(folder)), goals, options)
    result |= episodes("group", lambda: env, [goal for goal in goals for _ in range(GROUP)], options)
    result["original_step_ms"] = ORIGINAL_STEP_MS
    return result


def searches(catalogue: Catalogue, goals: list[ShopGoal]) -> dict[str, Any]:
    times = []
    for goal in goals:
        start = time.process_time()
        catalogue.index.search(goal.goal.lower())
        times.append(time.process_time() - start)
    return {
        "searches": len(times),
        "search_ms_median": 1e3 * statistics.median(times),
        "search_ms_p95": 1e3 * percentile(times, 0.95),
    }


def episodes(
    name: str, shop: Callable[[], WebShop], goals: list[ShopGoal], options: argparse.Namespace
) -> dict[str, Any]:
    times = [time_ for number, goal in enumerate(goals) for time_ in walk(shop(), goal, number, options)]
    median, mean = 1e3 * statistics.median(times), 1e3 * statistics.fmean(times)
    return {
        f"{name}_ms_median": median,
        f"{name}_ms_mean": mean,
        f"{name}_ms_p95": 1e3 * percentile(times, 0.95),
        f"{name}_count": len(times),
        f"{name}_speedup": ORIGINAL_STEP_MS / median,
        f"{name}_speedup_of_means": ORIGINAL_STEP_MS / mean,
    }


def walk(env: WebShop, goal: ShopGoal, number: int, options: argparse.Namespace) -> list[float]:
    """Return the processor time of every step of one random episode."""
    source, times = rng.generator(options.seed, "webshop benchmark", goal.task_id, number), []
    state = env.initial(goal)
    while not state.done and len(times) < options.steps:
        action = source.choice(env.admissible(state))
        if action.startswith("search["):
            action = f"search[{goal.name if source.random() < 0.5 else goal.goal}]"
        start = time.process_time()
        state = env.step(state, action).state
        env.admissible(state)
        times.append(time.process_time() - start)
    return times


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


if __name__ == "__main__":
    main()
