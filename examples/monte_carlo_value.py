"""The value of every admissible command: the mean score of random play after it, from forks, with its standard error.

python examples/monte_carlo_value.py [SEED]
"""

import random
import re
import statistics
import sys

import gymnasium

import threespo.gym  # noqa: F401  (registers the environments)

ROLLOUTS = 200
# Task and commands that lead to the point whose commands are valued: a laptop is in the hand; a product's page is open.
POINTS = {
    "ALFWorld": ("valid_seen", 3, ("go to sidetable 1", "take laptop 1 from sidetable 1")),
    "WebShop": ("test", 0, ("search[ginger salad dressing]", "click[e0000000km]")),
}


def listed(episode):
    """The admissible commands; a search is one for the words of the goal."""
    query = " ".join(re.findall(r"\w+", episode.task.goal))
    commands = episode.setup.env.admissible(episode.state)
    return [command.replace("<your query>", query) for command in commands]


def values(many, seed):
    """Return mean and standard error for each command of place 0; every place plays one rollout of each."""
    many.fork(0, onto=range(1, many.num_envs))
    start, found = many.snapshot(), {}
    for command in listed(many.episodes[0]):
        source = random.Random(f"{seed} {command}")
        many.restore(start)
        many.step([command] * many.num_envs)
        while not all(episode.done for episode in many.episodes):
            # A place that is over ignores its action.
            many.step([source.choice(listed(episode) or [""]) for episode in many.episodes])
        scores = [episode.score for episode in many.episodes]
        found[command] = statistics.fmean(scores), statistics.stdev(scores) / len(scores) ** 0.5
    return found


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for name, (split, task, commands) in POINTS.items():
        options = {"vectorization_mode": "vector_entry_point", "autoreset": False}
        options |= {"split": split, "max_steps": 15}
        many = gymnasium.make_vec(f"threespo/{name}-v0", ROLLOUTS, **options)
        many.reset(options={"tasks": [task] * ROLLOUTS})
        for command in commands:
            many.step([command] * ROLLOUTS)
        found = values(many, seed)
        print(f"{name}: {many.episodes[0].task.goal}")
        for command, (mean, error) in sorted(found.items(), key=lambda one: one[1], reverse=True)[:4]:
            print(f"  {mean:.2f} ± {error:.2f} {command}")
