"""Any method on decision trees with a tabular policy, where success is computed and not sampled.

The method's generator, its random draws and the loss are those of the studies; only environment and policy are small
enough for a hundred seeds in minutes.
"""

import math
import sys
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

_TUNING = 10_000
"""Seeds from here on choose learning rates; no result comes from them."""


def train_on_family(settings: DecisionTreeSettings) -> None:
    """Train one row of the study's section ``laboratory`` and write its table: every epoch of every seed.

    The learning rate is the one that did best on other seeds.
    """

    def run(rate: float, seed: int) -> list[dict[str, float]]:
        return run_on_trees(
            settings.method, settings.options, settings.trees, learning_rate=rate, seed=seed
        )

    def final(rate: float) -> float:
        seeds = range(_TUNING, _TUNING + settings.tuning_seeds)
        return sum(run(rate, seed)[-1]["success"] for seed in seeds) / settings.tuning_seeds

    family, name = settings.family, settings.name
    found = {rate: final(rate) for rate in settings.learning_rates}
    best = max(found, key=lambda rate: found[rate])
    rows = [
        {"family": family, "method": name, "learning_rate": best, "seed": seed, "epoch": epoch, **row}
        for seed in range(settings.seeds)
        for epoch, row in enumerate(run(best, seed))
    ]
    write_table(settings.paths.decision_trees(family, name), rows, COLUMNS)

    shown = ", ".join(f"{rate:g}: {value:.1%}" for rate, value in found.items())
    print(f"decision trees {family}/{name}: learning rate {best:g} of {shown}", file=sys.stderr)


def run_on_trees(
    method: str,
    options: dict[str, Any],
    settings: DecisionTreeFamily,
    *,
    learning_rate: float,
    seed: int,
) -> list[dict[str, float]]:
    """Train a method once.

    Columns: ``generations`` and ``optimizer_steps`` so far; ``mean_success``, the probability with which the present policy
    wins, exactly, averaged over the trees; ``coverage``, the share of all observations that the run has met so far; of
    searches ``allocation`` and ``regret`` so far (``threespo.decision_trees.allocation``), else NaN.

    Args:
        method: its name in ``threespo.methods.registry``.
        options: its options.
        settings: the trees and the budget.
        learning_rate: step size of the tabular policy.
        seed: decides trees and draws.

    Returns:
        A row per epoch; row 0 is the untrained policy.
    """
    # Each seed has trees of its own, the same for every method.
    numbers = range(seed * settings.trees, (seed + 1) * settings.trees)
    tasks = [
        TreeTask(
            number,
            settings.depth,
            settings.branching,
            settings.solutions,
            settings.dead_ends,
            settings.aliased,
        )
        for number in numbers
    ]

    setup = EpisodeSetup(TreeEnv(), settings.depth, 0)
    by_id = {task.task_id: task for task in tasks}
    made = make_method(method, options, _common(settings, seed, frozenset(by_id)))
    policy = TabularPolicy(settings.branching, learning_rate, torch.zeros(settings.branching))
    critic = TabularCritic(settings.critic_learning_rate) if made.critic_rate else None

    generations = steps = idle = epoch = 0
    spent, truth = Allocation(), compute_success_probabilities(policy, tasks)
    most = count_observations(tasks, truth)
    none = {"coverage": 0.0, "allocation": math.nan, "regret": math.nan}
    rows = [{"generations": 0, "optimizer_steps": 0, "success": mean_success(truth), **none}]

    # Where all roots are gated no epoch samples anything, so the budget would never be spent.
    while generations < settings.generations and idle < settings.trees:
        drawn = generator(seed, "trees", epoch).sample(tasks, settings.trees_per_epoch)
        driver = Driver(policy, policy, critic, derive(seed, "training"), 1.0)
        result = driver.run_epoch(made, epoch, [start_episode(setup, task) for task in drawn])

        spent = spent.plus(measure_allocation(result.trees, by_id, truth))
        truth = compute_success_probabilities(policy, tasks)
        epoch, generations, steps = (
            epoch + 1,
            generations + driver.generations,
            steps + len(driver.updates),
        )
        idle = 0 if driver.generations else idle + 1

        found = {
            **none,
            "coverage": result.details["state_met"] / most,
            **(spent.measures() if spent.samples else {}),
        }
        rows.append(
            {
                "generations": generations,
                "optimizer_steps": steps,
                "success": mean_success(truth),
                **found,
            }
        )

    return rows


def compute_success_probabilities(policy: TabularPolicy, tasks: list[TreeTask]) -> Probabilities:
    """Return the probability that the policy wins from each node of each tree."""
    return {task.task_id: success_probabilities(task, _chooser(policy, task)) for task in tasks}


def mean_success(truth: Probabilities) -> float:
    """Return the probability of winning a tree, averaged over all."""
    return sum(nodes[()] for nodes in truth.values()) / len(truth)


def _chooser(policy: TabularPolicy, task: TreeTask) -> Any:
    def choose(observation: str) -> dict[str, float]:
        probabilities = policy.probabilities(tree_prompt(task.goal, observation))
        return {str(action): value for action, value in enumerate(probabilities)}

    return choose


def _common(settings: DecisionTreeFamily, seed: int, recorded: frozenset[str]) -> CommonSettings:
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
