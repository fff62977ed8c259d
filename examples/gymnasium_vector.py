"""256 games in one process, played at random until all are over.

python examples/gymnasium_vector.py
"""

import random
import time

from threespo.gym import ALFWorldVectorEnv

env = ALFWorldVectorEnv(256, split="train", autoreset=False)
texts, info = env.reset(seed=0)
source = random.Random(0)
steps, begun, over = 0, time.perf_counter(), [False] * 256
while not all(over):
    actions = [source.choice(commands or ["look"]) for commands in info["admissible_commands"]]
    texts, rewards, ended, cut, info = env.step(actions)
    steps += 256 - sum(over)
    over = list(ended | cut)
print(
    f"{steps} steps, {steps / (time.perf_counter() - begun):.0f} a second, won {sum(info['won'])} of 256"
)
