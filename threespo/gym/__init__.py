"""ALFWorld and WebShop for everybody: Gymnasium environments, one process, no server, episodes that fork (docs/gym.md).

Importing this module registers ``threespo/ALFWorld-v0`` and ``threespo/WebShop-v0``.
"""

import gymnasium

from threespo.gym.environment import ALFWorldEnv, TextEnv, WebShopEnv
from threespo.gym.snapshots import Snapshot
from threespo.gym.tasks import Tasks, open_tasks
from threespo.gym.vector import ALFWorldVectorEnv, TextVectorEnv, WebShopVectorEnv

__all__ = [
    "ALFWorldEnv",
    "ALFWorldVectorEnv",
    "Snapshot",
    "Tasks",
    "TextEnv",
    "TextVectorEnv",
    "WebShopEnv",
    "WebShopVectorEnv",
    "open_tasks",
]

for _name, _environment, _vector in (
    ("ALFWorld", ALFWorldEnv, ALFWorldVectorEnv),
    ("WebShop", WebShopEnv, WebShopVectorEnv),
):
    gymnasium.register(f"threespo/{_name}-v0", entry_point=_environment, vector_entry_point=_vector)
