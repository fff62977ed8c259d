"""Beam search by forks, in both environments, with a budget of steps for each task.

python examples/beam_search.py
"""

import re

import gymnasium

import threespo.gym  # noqa: F401  (registers the environments)


def words(text):
    """Words of three letters or more, numbers and marks left out."""
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def rank(env, path):
    """Score first; then how many words of the goal the commands have named (but for searches), and the text shows."""
    goal = words(env.episode.task.goal)
    named = words(" ".join(command for command in path if not command.startswith("search[")))
    return env.episode.score, len(goal & named), len(goal & words(env.episode.observation))


def situation(env):
    """What has been reached: in ALFWorld the facts without the text, so that looking around leads to nothing new."""
    return getattr(env.episode.state, "world", env.episode.state)


def beam_search(root, width, budget):
    """Return the best score found, the commands that lead to it, and the steps taken."""
    beam, seen, taken = [(root, ())], {situation(root)}, 0
    best, query = (root.episode.score, ()), " ".join(re.findall(r"\w+", root.episode.task.goal))
    while beam:
        found = []
        for env, path in beam:
            for listed in env.tasks.setup.env.admissible(env.episode.state):
                if taken == budget or best[0] == 1:
                    return *best, taken
                fork, command = env.fork(), listed.replace("<your query>", query)
                _, _, ended, cut, info = fork.step(command)
                taken += 1
                best = max(best, (info["score"], (*path, command)), key=lambda one: one[0])
                if not (ended or cut) and situation(fork) not in seen:
                    seen.add(situation(fork))
                    found.append((fork, (*path, command)))
        beam = sorted(found, key=lambda one: rank(*one), reverse=True)[:width]
    return *best, taken


if __name__ == "__main__":
    for name, split in (("ALFWorld", "valid_unseen"), ("WebShop", "test")):
        env, won = gymnasium.make(f"threespo/{name}-v0", split=split).unwrapped, 0
        for place in range(10):
            env.reset(options={"task": place})
            score, path, taken = beam_search(env, width=30, budget=10_000)
            won += score == 1
            print(f"{score:.2f} {taken:5} | {env.episode.task.goal[:50]} | {' > '.join(path[-3:])}")
        print(f"{name}: {won} of 10 won")
