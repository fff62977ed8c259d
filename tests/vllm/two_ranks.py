"""Run by torchrun from ``test_ranks.py``: a learner of two ranks with an engine on each; prints a line of JSON a rank."""

import dataclasses
import json
import sys

from torch import distributed

from tests.vllm.checks import LONGEST, NEW, SHIPPED, asked, started
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy.model import load_policy
from threespo.policy.vllm_sampler import VllmSampler
from threespo.protocol import LossSettings, Row, UpdateRequest
from threespo.runs.parts import ShardedSampler

policy = load_policy(SHIPPED / "base")
learner = DeepSpeedLearner(
    policy, None, OptimSettings(lr=1e-3, dtype="float32", zero_stage=int(sys.argv[1]))
)
sampler = ShardedSampler(VllmSampler(policy, started(policy), NEW, LONGEST), learner)
requests, steps = asked(4, 4), []

for _ in range(2):
    replies = sampler.sample(requests, seed=1, temperature=1.0)
    rows = tuple(
        Row(
            request.prompt,
            one.tokens,
            one.logprobs,
            (float(place % 3) - 1.0,) * len(one.tokens),
            version=one.version,
        )
        for request, reply in zip(requests, replies, strict=True)
        for place, one in enumerate(reply)
    )
    (stats,) = learner.update(UpdateRequest((rows,), LossSettings(kl_coef=0.0)))
    steps.append(
        {"drawn": [row.tokens for row in rows], "version": rows[0].version, **dataclasses.asdict(stats)}
    )

# One write, so that the lines of the ranks do not mix.
sys.stdout.write(json.dumps({"rank": distributed.get_rank(), "steps": steps}) + "\n")
