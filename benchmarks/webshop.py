"""Speed and size of the shop: compiling, opening, searching, and a step with its list of admissible actions.

    python -m benchmarks.webshop [--catalogue DIR | --products 100000] [--goals 800] [--steps 15] [--seed 0] [--out FILE]
                                 [--peer CHECKOUT --peer-python PYTHON [--peer-products 1000]]

``--catalogue`` is a folder of the original's JSON files; otherwise the embedded shop is built. Each goal is played once
by a random walk that searches with the goal's own words. The result is JSON. Steps are measured in three ways:

- ``step``: one open shop; before every episode it forgets all search results, products and pages.
- ``reopened``: every episode in a shop that was just opened, so that its files are not mapped yet either.
- ``group``: one open shop that forgets nothing, and eight episodes of each goal, as in training.

``reset`` is the begin of an episode with its list; ``memory`` is that of a process which has opened the shop and plays 256
episodes at once, by itself and with the file pages that it shares with others.

With ``--peer`` the original program is timed in the same run: CHECKOUT is WebShop's repository with its data and index,
PYTHON an interpreter with its requirements (Python 3.8, Java). Both then play random episodes that search for whole
instructions, and ``peer`` has both and their ratios; --catalogue is CHECKOUT/data unless given. Without it the ratios are to
``original_step_ms``, the median step of the original on 1,000 products on another machine (22 to 25 ms; Lucene in a JVM).
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import in_child, machine, resident, summary
from threespo import rng
from threespo.envs.webshop import Catalogue, WebShop, compile_catalogue
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.goals import ShopGoal, make_repaired_goals
from threespo.envs.webshop.sources import read_products
from threespo.files import write_json

RESULTS = Path(__file__).parent / "results"
ORIGINAL_STEP_MS = 22.0
GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalogue", type=Path, help="folder of the original's JSON files")
    parser.add_argument("--products", type=int, default=100_000, help="size of the embedded shop")
    parser.add_argument("--goals", type=int, default=800)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer", type=Path, help="checkout of WebShop, to be timed as well")
    parser.add_argument("--peer-python", type=Path, help="interpreter with WebShop's requirements")
    parser.add_argument(
        "--peer-products",
        type=int,
        default=1000,
        choices=(1000, 100_000, 0),
        help="of its index; 0: all",
    )
    options = parser.parse_args()
    if (options.peer is None) != (options.peer_python is None):
        parser.error("--peer and --peer-python go together")
    if options.peer and not (options.peer / "web_agent_site").is_dir():
        parser.error(f"--peer: {options.peer} has no folder web_agent_site; give a checkout of WebShop")
    if options.peer and shutil.which(options.peer_python) is None:
        parser.error(
            f"--peer-python: {options.peer_python} is no program; give the interpreter with WebShop's requirements"
        )
    if options.peer and options.catalogue is None:
        options.catalogue = options.peer / "data"
    folder = Path(tempfile.mkdtemp(prefix="webshop-benchmark-"))
    try:
        result = {**build(options, folder / "catalogue"), **play(options, folder / "catalogue")}
    finally:
        shutil.rmtree(folder)
    result["machine"] = machine("numpy", "rapidfuzz", "nltk", "textblob", "regex")
    name = "real" if options.catalogue else f"embedded-{options.products}"
    out = options.out or RESULTS / f"webshop-{name}.json"
    write_json(out, result)
    step, mean, search = result["step_ms_median"], result["step_ms_mean"], result["search_ms_p95"]
    print(f"{out}: step {step:.3f} (mean {mean:.3f}) ms, search p95 {search:.1f} ms")


def build(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    products = (
        read_products(options.catalogue)
        if options.catalogue
        else generate(options.products, options.seed)
    )
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
    goals = source.sample(
        found := make_repaired_goals(catalogue, options.seed, human=False),
        min(options.goals, len(found)),
    )
    del found  # Many objects slow the collection of garbage.
    result |= searches(catalogue, goals)
    result["reset_ms"] = summary(resets(env, goals))

    def forgetful() -> WebShop:
        for cache in (catalogue.product, catalogue.head, catalogue.index.search):
            cache.cache_clear()
        return WebShop(catalogue)

    result |= episodes("step", forgetful, goals, options)
    result |= episodes("reopened", lambda: WebShop(Catalogue(folder)), goals, options)
    result |= episodes("group", lambda: env, [goal for goal in goals for _ in range(GROUP)], options)
    result["original_step_ms"] = ORIGINAL_STEP_MS
    result["memory"] = in_child(memory, folder, goals[:256], options.steps)
    if options.peer:
        result["peer"] = compare(env, forgetful, goals, options)
    return result


def memory(folder: Path, goals: list[ShopGoal], steps: int) -> dict[str, float]:
    """Play all goals side by side and keep their last states."""
    env = WebShop(Catalogue(folder))
    opened, opened_private = resident()
    states, source = [env.initial(goal) for goal in goals], random.Random(0)
    for _ in range(steps):
        for place, state in enumerate(states):
            if not state.done:
                action = source.choice(env.admissible(state)).replace("<your query>", goals[place].goal)
                states[place] = env.step(state, action).state
    resident_mib, private = resident()
    return {
        "opened_mib": opened,
        "playing_mib": resident_mib,
        "private_mib": private,
        "private_mib_an_episode": (private - opened_private) / len(states),
    }


def compare(
    env: WebShop, forgetful: Callable[[], WebShop], goals: list[ShopGoal], options: argparse.Namespace
) -> dict[str, Any]:
    """Time the original program, and ours with the same kind of episodes."""
    script = Path(__file__).parent / "peer_webshop.py"
    numbers = (options.peer_products, len(goals), options.steps, options.seed)
    command = [options.peer_python, script, options.peer, *map(str, numbers)]
    print(f"timing {options.peer} (its log follows)", file=sys.stderr)
    answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if answer["products"] != (count := env.catalogue.facts["products"]):
        sys.exit(
            f"{options.peer} has {answer['products']} products and {options.catalogue} {count}: a comparison would be void. "
            "Name with --catalogue a folder of the files that it loads, and with --peer-products their number"
        )
    theirs = {
        "step_ms": summary(answer.pop("steps_s")),
        "reset_ms": summary(answer.pop("resets_s")),
        **answer,
    }
    steps = [
        time_
        for number, goal in enumerate(goals)
        for time_ in walk(forgetful(), goal, number, options, whole=True)
    ]
    ours = {"step_ms": summary(steps), "reset_ms": summary(resets(env, goals))}
    ratios = {
        f"{what}_{kind}": theirs[f"{what}_ms"][kind] / ours[f"{what}_ms"][kind]
        for what in ("step", "reset")
        for kind in ("median", "mean")
    }
    return {"original": theirs, "ours": ours, "speedup": ratios}


def resets(env: WebShop, goals: list[ShopGoal]) -> list[float]:
    times = []
    for goal in goals:
        start = time.process_time()
        env.admissible(env.initial(goal))
        times.append(time.process_time() - start)
    return times


def searches(catalogue: Catalogue, goals: list[ShopGoal]) -> dict[str, Any]:
    times = []
    for goal in goals:
        start = time.process_time()
        catalogue.index.search(goal.goal.lower())
        times.append(time.process_time() - start)
    found = summary(times)
    return {
        "searches": len(times),
        **{f"search_ms_{kind}": found[kind] for kind in ("median", "mean", "p95")},
    }


def episodes(
    name: str, shop: Callable[[], WebShop], goals: list[ShopGoal], options: argparse.Namespace
) -> dict[str, Any]:
    times = [time_ for number, goal in enumerate(goals) for time_ in walk(shop(), goal, number, options)]
    found = summary(times)
    return {
        **{f"{name}_ms_{kind}": found[kind] for kind in ("median", "mean", "p95")},
        f"{name}_count": len(times),
        f"{name}_speedup": ORIGINAL_STEP_MS / found["median"],
        f"{name}_speedup_of_means": ORIGINAL_STEP_MS / found["mean"],
    }


def walk(
    env: WebShop, goal: ShopGoal, number: int, options: argparse.Namespace, whole: bool = False
) -> list[float]:
    """Return the processor time of every step of one random episode; ``whole``: searches are for the whole instruction."""
    source, times = rng.generator(options.seed, "webshop benchmark", goal.task_id, number), []
    state = env.initial(goal)
    while not state.done and len(times) < options.steps:
        action = source.choice(env.admissible(state))
        if action.startswith("search["):
            action = f"search[{goal.name if not whole and source.random() < 0.5 else goal.goal}]"
        start = time.process_time()
        state = env.step(state, action).state
        env.admissible(state)
        times.append(time.process_time() - start)
    return times


if __name__ == "__main__":
    main()
