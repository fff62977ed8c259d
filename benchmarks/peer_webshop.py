"""WebShop's own program, timed by its own interpreter; a script by itself, for Python 3.8 and later.

    PYTHON peer_webshop.py CHECKOUT PRODUCTS EPISODES STEPS SEED

PYTHON has WebShop's requirements, CHECKOUT is its repository with data and search index made (its ``setup.sh``), PRODUCTS
is 1000, 100000 or 0 for all. Prints one JSON object. Plays random episodes: any of the available actions, a search for the
whole instruction. Times are processor times of a step with its list of available actions, with all threads of the process.
"""

import json
import os
import random
import resource
import sys
import time
from pathlib import Path


def main():
    checkout, products, episodes, steps, seed = sys.argv[1], *map(int, sys.argv[2:6])
    # The checkout's modules open data by paths relative to it, and what they print must not mix with the result.
    os.chdir(checkout)
    sys.path.insert(0, str(Path.cwd()))
    printed, sys.stdout = sys.stdout, sys.stderr

    start, wall = time.process_time(), time.perf_counter()
    from web_agent_site.envs import WebAgentTextEnv

    env = WebAgentTextEnv(observation_mode="text", num_products=products or None, human_goals=0)
    load, load_wall = time.process_time() - start, time.perf_counter() - wall

    source, times, resets = random.Random(seed), [], []
    for episode in range(episodes):
        start = time.process_time()
        env.reset(session=episode)
        resets.append(time.process_time() - start)
        available, done, played = env.get_available_actions(), False, 0
        while not done and played < steps:
            actions = ["search"] * available["has_search_bar"] + available["clickables"]
            if not actions:
                break
            action = source.choice(actions)
            is_search = available["has_search_bar"] and action == "search"
            text = "search[" + env.instruction_text + "]" if is_search else "click[" + action + "]"
            start = time.process_time()
            done = env.step(text)[2]
            available = env.get_available_actions()
            times.append(time.process_time() - start)
            played += 1

    result = {
        "products": len(env.server.all_products),
        "load_cpu_s": load,
        "load_s": load_wall,
        "steps_s": times,
        "resets_s": resets,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "python": sys.version.split()[0],
    }
    print(json.dumps(result), file=printed)


if __name__ == "__main__":
    main()
