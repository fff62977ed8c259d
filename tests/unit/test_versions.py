"""pi_old is the policy that drew the sample: every row that a method learns from is compared with that policy itself."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tests.toy import common
from threespo.decision_trees.tabular import TabularCritic, TabularPolicy
from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.envs.tree import TreeEnv, TreeTask
from threespo.methods.registry import METHODS, make_method
from threespo.protocol import UpdateRequest, UpdateStats
from threespo.runs.driver import Driver

SEARCHES: dict[str, tuple[dict[str, Any], bool]] = {
    "after each state": ({"preset": "calibrated"}, False),
    "after each tick": ({"preset": "narrow", "update_unit": "tick"}, False),
    "the authors' own loop": ({"preset": "authors-gui"}, False),
    "after each path": ({"preset": "narrow", "update_unit": "path"}, True),
    "after the search": ({"preset": "improved"}, True),
    "after the epoch": ({"preset": "improved", "update_unit": "epoch"}, False),
}
"""Options -> whether rows wait while other rows are learned from."""


@dataclass
class Witness:
    """Keeps what every version of the table said, and looks at each row that is to be learned from."""

    policy: TabularPolicy
    tables: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    ages: list[int] = field(default_factory=list)
    stats: list[UpdateStats] = field(default_factory=list)

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        present = self.policy.version
        self.tables[present] = dict(self.policy.logits)
        for row in (row for batch in request.batches for row in batch):
            assert row.version is not None
            said = (
                self.tables[row.version]
                .get(row.prompt, self.policy.initial)
                .log_softmax(0)[row.tokens[0]]
            )
            assert row.old_logprobs[0] == pytest.approx(float(said), abs=1e-6)
            self.ages.append(present - row.version)

        # Before its loss the row's ratio is pi / pi_old, with pi_old as the witness knows it.
        first = [(row, self.policy.logprobs(row.prompt)[row.tokens[0]]) for row in request.batches[0]]
        ratios = [2.718281828459045 ** (now - row.old_logprobs[0]) for row, now in first]
        reply = self.policy.update(request)
        assert reply[0].ratio == pytest.approx(sum(ratios) / len(ratios), rel=1e-4)
        # Steps of this request are behind the table of the next one, in case samples are drawn in between.
        self.tables[self.policy.version] = dict(self.policy.logits)
        self.stats += reply
        return reply


def play(method: str, options: dict[str, Any]) -> Witness:
    # Searches of different depths end at different times, and trees of one number share prompts: what is learned from one
    # changes the policy that has drawn the rows of the other.
    tasks = [TreeTask(number, depth, 3, 4, 0.0, 0.5) for number in range(2) for depth in (2, 3, 4)]
    policy = TabularPolicy(3, 1.0, torch.zeros(3))
    witness = Witness(policy)
    made = make_method(method, options, common(seed=1, kl_coef=0.0, minibatch=16))
    for epoch in range(3):
        driver = Driver(policy, witness, TabularCritic(1.0), 7, 1.0)
        driver.run_epoch(
            made, epoch, [start_episode(EpisodeSetup(TreeEnv(), task.depth, 0), task) for task in tasks]
        )
        # An action of a tree is one token, so that both are counted alike; those of skipped groups too.
        assert driver.tokens == driver.generations > 0
    return witness


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_every_method_bring_what_their_own_weights_said(method):
    witness = play(method, {})
    assert witness.ages
    assert set(witness.ages) == {0}, "as it is by default, a method learns from what it has just drawn"


@pytest.mark.parametrize("name", SEARCHES)
def test_rows_that_wait_keep_the_policy_that_drew_them(name):
    options, waits = SEARCHES[name]
    witness = play("threespo", options)
    assert (max(witness.ages) > 0) == waits
    assert max(stats.oldest for stats in witness.stats) >= max(witness.ages)
    if waits:
        assert any(abs(stats.ratio - 1.0) > 0.01 for stats in witness.stats), (
            "taking the present policy, it would be 1"
        )
