"""Monte-Carlo value of every first command of a game: fork, play at random to the end, average.

python examples/gymnasium_forks.py
"""

import random

import gymnasium

import threespo.gym  # noqa: F401  (registers the environments)

env = gymnasium.make("threespo/ALFWorld-v0", split="valid_seen", max_steps=30).unwrapped
text, info = env.reset(seed=0)
print(info["goal"], "|", len(info["admissible_commands"]), "commands")

source = random.Random(0)
values = {}
for command in info["admissible_commands"]:
    gained = 0.0
    for _ in range(5):
        fork = env.fork()
        _, reward, ended, cut, seen = fork.step(command)
        gained += reward
        while not (ended or cut):
            _, reward, ended, cut, seen = fork.step(source.choice(seen["admissible_commands"]))
            gained += reward
    values[command] = gained / 5

best = sorted(values, key=values.get, reverse=True)[:3]
print({command: values[command] for command in best})

# Going back, and going on in another process: bytes without pickle.
point = env.dump()
env.step(best[0])
env.restore(point)
print(len(point), "bytes;", env.episode.steps, "steps taken")
