"""The probe on decision trees, where the true success probability is known."""

from pathlib import Path

import pytest
import torch

from tests.toy import common
from threespo.decision_trees.tabular import TabularPolicy
from threespo.envs.episode import EpisodeSetup
from threespo.envs.tree import TreeEnv, TreeTask, success_probabilities, tree_prompt
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.runs.probe import COLUMNS, EpisodePlayer, probe_states
from threespo.runs.settings import ProbeSettings
from threespo.study.load import load_study
from threespo.study.matrix import probed_runs

STUDIES = Path(__file__).resolve().parents[2] / "config" / "studies"
TASKS = [TreeTask(number, depth=3, branching=2, solutions=3) for number in range(4)]
MANY = ProbeSettings(games=4, states=100, continuations=400)


def scorer_with(key="task_obs", **counts):
    method = Threespo(ThreespoOptions(alpha=1.0, state_key=key), common())
    method.table.counts.update(counts)
    return method.scorer_at_epoch(0)


def rows(scorer, settings=MANY):
    policy = TabularPolicy(2, 0.0, torch.tensor([0.4, -0.4]))
    found = probe_states(
        EpisodeSetup(TreeEnv(), 3, 0), TASKS, scorer, EpisodePlayer(policy, 5, 1.0), settings
    )

    def choose(task):
        return lambda look: dict(
            zip("01", policy.probabilities(tree_prompt(task.goal, look)), strict=True)
        )

    return found, {task.task_id: success_probabilities(task, choose(task)) for task in TASKS}


def test_estimates_agree_with_the_exact_probabilities():
    """Every probed state lies on a walk; its estimate is within five standard errors of its node's exact probability."""
    found, truth = rows(scorer_with())
    assert len(found) == 4 * 3, "each walk has three states"
    assert all(tuple(row) == COLUMNS[2:] for row in found)
    for row in found:
        exact = [p for node, p in truth[row["task_id"]].items() if len(node) == row["depth"] - 1]
        share = row["successes"] / row["continuations"]
        error = 5 * (0.25 / row["continuations"]) ** 0.5
        assert min(abs(share - p) for p in exact) < error
    roots = [row for row in found if row["depth"] == 1]
    for row in roots:
        p = truth[row["task_id"]][()]
        assert (
            abs(row["successes"] / row["continuations"] - p)
            < 5 * (p * (1 - p) / row["continuations"]) ** 0.5
        )
        assert row["score"] == 1.0


def test_counts_and_scores_are_the_methods_own():
    task = TASKS[0]
    key = f"{task.goal}\n{task.look(())}"
    found, _ = rows(scorer_with(**{key: (40.0, 1.0)}))
    (root,) = [row for row in found if (row["task_id"], row["depth"]) == (task.task_id, 1)]
    assert (root["visits"], root["counted_successes"], root["gated"], root["score"]) == (
        40.0,
        1.0,
        True,
        0.0,
    )
    assert root["score_without_gate"] == 1.0, "at depth 1 lambda is 0"
    assert all(row["visits"] == 0 for row in found if row is not root)


def test_states_are_chosen_within_the_limit_and_again_the_same():
    few = MANY.model_copy(update={"states": 5, "continuations": 8})
    first, second = rows(scorer_with(), few)[0], rows(scorer_with(), few)[0]
    assert len(first) == 5
    assert first == second


@pytest.mark.parametrize(("seeds", "probed"), [({"seeds": 1}, [310]), ({"seeds": 3}, [310, 311, 312])])
def test_the_first_seeds_of_each_method_are_probed(seeds, probed):
    study = load_study(
        STUDIES / "mini.yaml", {"probe": {"methods": ["threespo-literal", "one-path"], **seeds}}
    )
    found = [
        (run.method, run.seed)
        for run in probed_runs(study)
        if (run.env, run.policy) == ("alfworld", "tiny-s")
    ]
    assert found == [(method, seed) for method in ("threespo-literal", "one-path") for seed in probed]
