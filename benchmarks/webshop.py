"""Speed and size of the shop: compiling, opening, searching, and a step with its list of admissible actions.

    python benchmarks/webshop.py [--catalogue DIR | --products 100000] [--goals 200] [--steps 15] [--seed 0] [--out FILE]

``--catalogue`` is a folder of the original's JSON files; otherwise the embedded shop is built. Each goal is played once
by a random walk that searches with the goal's own words, so pages are mostly met for the first time. The result is JSON.
``original_step_ms`` is the median step of the original program on 1,000 products, as measured on another machine (22 to
25 ms; Lucene in a JVM); it is not measured here.
"""

import argparse
import importlib.metadata
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from threespo import rng
from threespo.envs.webshop import Catalogue, WebShop, compile_catalogue
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.goals import ShopGoal, repaired_goals
from threespo.envs.webshop.sources import read_products
from threespo.files import atomic_json

RESULTS = Path(__file__).parent / "results"
ORIGINAL_STEP_MS = 22.0


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
        result = {"machine": machine(), **build(options, folder / "catalogue"), **play(options, folder / "catalogue")}
    finally:
        shutil.rmtree(folder)
    name = "real" if options.catalogue else f"embedded-{options.products}"
    out = options.out or RESULTS / f"webshop-{name}.json"
    atomic_json(out, result)
    print(f"{out}: step {result['step_ms_median']:.3f} ms, search p95 {result['search_ms_p95']:.1f} ms")


def machine() -> dict[str, Any]:
    packages = ("numpy", "rapidfuzz", "nltk", "textblob", "regex")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


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
    goals = repaired_goals(catalogue, options.seed, human=False)
    source = rng.generator(options.seed, "webshop benchmark")
    chosen = source.sample(goals, min(options.goals, len(goals)))
    catalogue.index.search("load the stemmer before the clock starts")
    result: dict[str, Any] = {"open_s": opened, **searches(catalogue, chosen)}
    steps = [time_ for goal in chosen for time_ in walk(Catalogue(folder), goal, options)]
    result.update(
        step_ms_median=1e3 * statistics.median(steps),
        step_ms_mean=1e3 * statistics.fmean(steps),
        step_ms_p95=1e3 * percentile(steps, 0.95),
        steps=len(steps),
        original_step_ms=ORIGINAL_STEP_MS,
        speedup=ORIGINAL_STEP_MS / (1e3 * statistics.median(steps)),
        speedup_of_means=ORIGINAL_STEP_MS / (1e3 * statistics.fmean(steps)),
    )
    return result


def searches(catalogue: Catalogue, goals: list[ShopGoal]) -> dict[str, Any]:
    times = []
    for goal in goals:
        start = time.perf_counter()
        catalogue.index.search(goal.goal.lower())
        times.append(time.perf_counter() - start)
    return {
        "searches": len(times),
        "search_ms_median": 1e3 * statistics.median(times),
        "search_ms_p95": 1e3 * percentile(times, 0.95),
    }


def walk(catalogue: Catalogue, goal: ShopGoal, options: argparse.Namespace) -> list[float]:
    """Return the processor time of every step of one random episode in a shop that remembers nothing yet."""
    env, source, times = WebShop(catalogue), rng.generator(options.seed, "webshop benchmark", goal.task_id), []
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
