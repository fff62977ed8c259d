"""skyrl-gym's text environment (needs threespo[skyrl]); in SkyRL: env_class: threespo, and a column extra_info with the
task.

    python examples/skyrl_environment.py
"""

import skyrl_gym

from threespo.adapters import skyrl

skyrl.register()
config = {"environment": "alfworld", "split": "valid_unseen"}
env = skyrl_gym.make("threespo", env_config=config, extras={"extra_info": {"task": 0}})
messages, info = env.init([{"role": "system", "content": "You play text games."}])
print(info, messages[-1]["content"][:120])
for action in ("look", "inventory"):
    out = env.step(f"<think>Let me see.</think><action>{action}</action>")
    print(action, out["reward"], out["done"], out["metadata"])
print(env.get_metrics())
