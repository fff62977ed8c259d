"""verl-agent's environments in one process; in its env_manager.py only the import changes.

python examples/verl_agent_envs.py [FOLDER OF ALFWORLD'S GAMES]
"""

import random
import sys

from threespo.adapters.verl_agent import alfworld_projection, build_alfworld_envs

path = sys.argv[1] if len(sys.argv) > 1 else None
kwargs = {"eval_dataset": "eval_out_of_distribution", "path": path, "tasks": "panel"}
envs = build_alfworld_envs(
    "config_tw.yaml", 0, 16, 8, {"num_cpus": 0.1}, is_train=True, env_kwargs=kwargs
)

source = random.Random(0)
texts, images, infos = envs.reset()
print(len(texts), "episodes of", len({info["extra.gamefile"] for info in infos}), "games")
for _ in range(10):
    # In the place of a model.
    responses = [
        f"<think>.</think><action>{source.choice(pool)}</action>"
        for pool in envs.get_admissible_commands
    ]
    actions, valids = alfworld_projection(responses, envs.get_admissible_commands)
    texts, images, rewards, dones, infos = envs.step(actions)
print("valid", sum(valids), "won", sum(info["won"] for info in infos), "|", texts[0][:60])
