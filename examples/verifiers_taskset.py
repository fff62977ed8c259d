"""verifiers' taskset: the panel's tasks under the panel's keys (needs threespo[verifiers]).

    python examples/verifiers_taskset.py

To play them with a model: vf-eval threespo-verifiers --env.taskset.split valid_unseen … (docs/frameworks/verifiers.md)
"""

from threespo.adapters.verifiers import ThreespoConfig, ThreespoTaskset

taskset = ThreespoTaskset(
    ThreespoConfig(id="threespo-verifiers", environment="alfworld", split="valid_unseen")
)
for task in taskset.take(3):
    print(task.key, task.data.content, task.data.prompt[:60].strip())
