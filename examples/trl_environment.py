"""TRL's environment_factory: what a model's tool calls do, without the model.

    python examples/trl_environment.py

With TRL installed: GRPOTrainer(model="Qwen/Qwen3-1.7B", environment_factory=make, train_dataset=Dataset.from_list(dataset)).
"""

import functools
import pickle
import re

from threespo.adapters.trl import WebShopTools, make_dataset_rows

make = functools.partial(WebShopTools, split="test")
dataset = make_dataset_rows("webshop", split="test")

tools = make()
print(tools.reset(**dataset[0]))
page = tools.search("lamp")
tools.click(re.search(r"click\[(\w{10})\]", page)[1])
copy = pickle.loads(pickle.dumps(tools))
print(
    copy.click("buy now").splitlines()[-1],
    "| reward",
    copy.get_reward(),
    "| the other goes on at",
    tools.get_reward(),
)
