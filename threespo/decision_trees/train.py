"""Any method on decision trees with a tabular policy, where success is computed and not sampled.

The method's generator, its random draws and the loss are those of the studies; only environment and policy are small
enough for a hundred seeds in minutes.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from threespo.decision_trees.allocation import (
    Allocation,
    Probabilities,
    count_observations,
    measure_allocation,
)
from threespo.decision_trees.settings import DecisionTreeFamily, DecisionTreeSettings
from threespo.decision_trees.tabular import TabularCritic, TabularPolicy
from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.envs.tree import TreeEnv, TreeTask, success_probabilities, tree_prompt
from threespo.methods.base import CommonSettings
from threespo.methods.registry import make_method
from threespo.rng import derive, generator
from threespo.runs.driver import Driver
from threespo.tables import write_table

COLUMNS = (
    "family", "method", "learning_rate", "seed", "epoch", "generations", "optimizer_steps", "success", "coverage",
    "allocation", "regret",
)  # fmt: skip

_FIRST_TUNING_SEED = 10_000
"""First of the seeds that choose learning rates; no result comes from them."""


def train_on_family(settings: DecisionTreeSettings) -> None:
    """Train one row of the study's section ``laboratory`` and write its table: every epoch of every seed.

    The learning rate is the one that did best on other seeds.
    """

    def train(rate: float, seed: int) -> list[dict[str, float]]:
        return run_on_trees(
            settings.method, settings.options, settings.trees, learning_rate=rate, seed=seed
        )

    # Not the seeds of the results: the best of several rates would look better than it is.
    tuning_seeds = range(_FIRST_TUNING_SEED, _FIRST_TUNING_SEED + settings.tuning_seeds)
    success_by_rate = {}
    for rate in settings.learning_rates:
        finals = [train(rate, seed)[-1]["success"] for seed in tuning_seeds]
        success_by_rate[rate] = sum(finals) / settings.tuning_seeds
    # Of rates with equal success the first one of the study.
    best = max(success_by_rate, key=lambda rate: success_by_rate[rate])

    row_name = {"family": settings.family, "method": settings.name, "learning_rate": best}
    rows = [
        {**row_name, "seed": seed, "epoch": epoch, **row}
        for seed in range(settings.seeds)
        for epoch, row in enumerate(train(best, seed))
    ]
    write_table(settings.paths.decision_trees(settings.family, settings.name), rows, COLUMNS)

    tried_rates = [f"{rate:g}: {success:.1%}" for rate, success in success_by_rate.items()]
    print(
        f"decision trees {settings.family}/{settings.name}: learning rate {best:g} of {', '.join(tried_rates)}",
        file=sys.stderr,
    )


def run_on_trees(
    method: str,
    options: dict[str, Any],
    settings: DecisionTreeFamily,
    *,
    learning_rate: float,
    seed: int,
) -> list[dict[str, float]]:
    """Train a method once; return a row per epoch, row 0 being the untrained policy.

    Columns: ``generations`` and ``optimizer_steps`` so far; ``success``, the exact probability with which the present policy
    wins, averaged over the trees; ``coverage``, the share of all observations that the run has met so far; of searches
    ``allocation`` and ``regret`` so far (``threespo.decision_trees.allocation``), else NaN.

    Args:
        method: its name in ``threespo.methods.registry``.
        options: of the method.
        settings: the trees and the budget.
        learning_rate: step size of the tabular policy.
        seed: decides trees and draws.
    """
    tasks = _make_tasks(settings, seed)
    tasks_by_id = {task.task_id: task for task in tasks}
    setup = EpisodeSetup(TreeEnv(), settings.depth, 0)
    common = _make_common_settings(settings, seed, frozenset(tasks_by_id))
    trained = make_method(method, options, common)
    policy = TabularPolicy(settings.branching, learning_rate, torch.zeros(settings.branching))
    # The method's multiple of the learning rate is for weights; a table has its own step size.
    critic = TabularCritic(settings.critic_learning_rate) if trained.critic_rate else None

    epoch = 0
    generations = 0
    optimizer_steps = 0
    epochs_without_samples = 0
    allocation = Allocation()
    truth = compute_success_probabilities(policy, tasks)
    all_observations = count_observations(tasks, truth)
    rows = [
        {
            "generations": 0,
            "optimizer_steps": 0,
            "success": mean_success(truth),
            "coverage": 0.0,
            "allocation": math.nan,
            "regret": math.nan,
        }
    ]

    # Where all roots are gated no epoch samples anything, so the budget would never be spent.
    while generations < settings.generations and epochs_without_samples < settings.trees:
        # The key has no method in it: all methods of a seed meet the same trees in the same order.
        drawn = generator(seed, "trees", epoch).sample(tasks, settings.trees_per_epoch)
        # A driver of its own for each epoch, whose counts so begin at 0.
        driver = Driver(policy, policy, critic, derive(seed, "training"), 1.0)
        result = driver.run_epoch(trained, epoch, [start_episode(setup, task) for task in drawn])

        # By the probabilities under the policy that searched, so before those of the updated one.
        allocation = allocation.plus(measure_allocation(result.trees, tasks_by_id, truth))
        truth = compute_success_probabilities(policy, tasks)

        epoch += 1
        generations += driver.generations
        optimizer_steps += len(driver.updates)
        epochs_without_samples = 0 if driver.generations else epochs_without_samples + 1

        row = {
            "generations": generations,
            "optimizer_steps": optimizer_steps,
            "success": mean_success(truth),
            "coverage": result.details["state_met"] / all_observations,
            "allocation": math.nan,
            "regret": math.nan,
        }
        # Only searches record trees.
        if allocation.samples:
            row |= allocation.mean_measures()
        rows.append(row)

    return rows


def compute_success_probabilities(policy: TabularPolicy, tasks: list[TreeTask]) -> Probabilities:
    """Return the probability that the policy wins from each node of each tree."""

    def choose_in(task: TreeTask) -> Callable[[str], dict[str, float]]:
        def choose(observation: str) -> dict[str, float]:
            probabilities = policy.probabilities(tree_prompt(task.goal, observation))
            return {str(action): value for action, value in enumerate(probabilities)}

        return choose

    return {task.task_id: success_probabilities(task, choose_in(task)) for task in tasks}


def mean_success(truth: Probabilities) -> float:
    """Return the probability of winning a tree, averaged over all."""
    return sum(nodes[()] for nodes in truth.values()) / len(truth)


def _make_tasks(settings: DecisionTreeFamily, seed: int) -> list[TreeTask]:
    # Each seed has trees of its own, the same for every method.
    return [
        TreeTask(
            number,
            settings.depth,
            settings.branching,
            settings.solutions,
            settings.dead_ends,
            settings.aliased,
        )
        for number in range(seed * settings.trees, (seed + 1) * settings.trees)
    ]


def _make_common_settings(
    settings: DecisionTreeFamily, seed: int, recorded: frozenset[str]
) -> CommonSettings:
    # Clip and reward of success are those of every study. A table samples admissible actions only.
    return CommonSettings(
        seed=seed,
        group_size=settings.group_size,
        clip=0.2,
        kl_coef=settings.kl_coef,
        invalid_penalty=0.0,
        inadmissible_penalty=0.0,
        success_reward=10.0,
        minibatch=settings.minibatch,
        statistics="trajectories",
        recorded=recorded,
    )
