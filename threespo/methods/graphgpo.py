"""GraphGPO (arXiv 2605.26684): GRPO's episode advantage, plus one by how much nearer to success a step leads.

All episodes of a task in an epoch make one graph. Its nodes are the visited states and one for success, its edges the steps
that were taken, each of length 1; a won step leads to success. Since episodes share nodes, the steps of a lost episode have
a distance, too, wherever a won one passed.
"""

from collections.abc import Hashable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Literal

from pydantic import Field

from threespo.methods.advantages import (
    Population,
    StepIndex,
    Steps,
    estimate_by_group,
    grpo_advantages,
    mean_std,
)
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod
from threespo.methods.state_graph import shortest_distances


class GraphgpoOptions(MethodOptions):
    """Options of GraphGPO; defaults are those of its released recipe."""

    omega: float = Field(default=0.1, gt=0, lt=1)
    """Discount of a step's worth per step that is left to success."""
    worth: Literal["released", "printed"] = "released"
    """A step s -> s' is worth R * omega^d(s'), as released, or R * omega^(d(s') + 1), as its paper prints; R is the
    study's reward of success. Standardised they differ by the small constant in the divisor alone."""
    nodes: Literal["observation", "state"] = "observation"
    """Nodes are observations, as published, or the environment's true states (with the text that led to each), which tell
    apart what looks the same: every "Nothing happens." is one observation."""
    step_weight: float = Field(default=1.0, ge=0, le=1_000_000)
    """Weight of the step-level advantage."""


class _Success(Enum):
    """The node of success: equal to no observation and no state."""

    NODE = 0


SUCCESS = _Success.NODE

Edge = tuple[Hashable, Hashable]
"""A step, as its two nodes."""


def make(options: GraphgpoOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = A_E + step_weight * A_S."""
    # The printed formula has one factor omega more for every step.
    factor = options.omega if options.worth == "printed" else 1.0
    estimator = partial(
        graphgpo_advantages,
        population=common.statistics,
        reward=common.success_reward * factor,
        omega=options.omega,
        nodes=options.nodes,
        step_weight=options.step_weight,
    )
    return EpisodeMethod(common, estimate_by_group(estimator))


def graphgpo_advantages(
    group: Sequence[Steps],
    *,
    population: Population = "trajectories",
    reward: float = 10.0,
    omega: float = 0.1,
    nodes: Literal["observation", "state"] = "observation",
    step_weight: float = 1.0,
    eps: float = 1e-6,
) -> list[list[float]]:
    """GraphGPO: A = A_E + step_weight * A_S.

    A_E is GRPO's. A step s -> s' is worth w = reward * omega^d(s'), d the distance to success. A_S = (w - mean) / (std +
    eps) among all steps of the group out of the same s, repetitions counted; std has ddof 1. It is 0 where there is no
    other, and everywhere if no episode of the group was won.

    Args:
        group: the episodes of one task, with their states.
        population: what mean and std of A_E are taken over.
        reward: worth of the step that wins.
        omega: discount per step.
        nodes: whether equal observations or equal states are one node.
        step_weight: weight of A_S.
        eps: added to the standard deviations.

    Returns:
        The advantage of each step, per episode.
    """
    advantages = grpo_advantages(group, population=population, eps=eps)
    paths = [_list_edges(episode, nodes) for episode in group]
    distances = distances_to_success(edge for path in paths for edge in path)
    # Without a won episode no step leads nearer to success than another: only A_E is left.
    if not distances:
        return advantages

    steps_by_source: dict[Hashable, list[StepIndex]] = {}
    for episode, path in enumerate(paths):
        for step, (source, _) in enumerate(path):
            steps_by_source.setdefault(source, []).append(StepIndex(episode, step))

    for cluster in steps_by_source.values():
        targets = [paths[index.episode][index.step][1] for index in cluster]
        worths = [reward * omega ** distances[target] for target in targets]
        # A single step has a deviation of 0 from its own worth: its mean is that worth here, not the 0 of ``mean_std``.
        mean, std = mean_std(worths) if len(worths) > 1 else (worths[0], 0.0)
        # Divided even where all worths are equal: then the numerator is exactly 0.
        for index, worth in zip(cluster, worths, strict=True):
            advantages[index.episode][index.step] += step_weight * (worth - mean) / (std + eps)
    return advantages


def distances_to_success(edges: Iterable[Edge]) -> dict[Hashable, int]:
    """Return the number of edges on a shortest path from each node to ``SUCCESS``; nothing if no edge leads there.

    Nodes without a path are one step further than the furthest that has one.

    Args:
        edges: the graph; an edge may come more than once.
    """
    sources: dict[Hashable, list[Hashable]] = {}
    nodes: dict[Hashable, None] = {}
    for source, target in edges:
        sources.setdefault(target, []).append(source)
        nodes |= {source: None, target: None}
    if SUCCESS not in nodes:
        return {}

    distances = shortest_distances([SUCCESS], sources)
    # Nearest nodes come first, so the last one is the furthest.
    furthest_node = next(reversed(distances))
    beyond = distances[furthest_node] + 1
    return {node: distances.get(node, beyond) for node in nodes}


def _list_edges(episode: Steps, nodes: Literal["observation", "state"]) -> list[Edge]:
    """Return an episode's steps as edges; a won one ends in ``SUCCESS`` and not in what it showed."""
    visited: list[Hashable] = list(episode.states)
    # A state holds the text that led to it; published graphs merge all states that show the same text.
    if nodes == "observation":
        visited = [state.observation for state in episode.states]
    if episode.won:
        visited[-1] = SUCCESS
    return list(pairwise(visited))


METHOD = MethodEntry(make, GraphgpoOptions)
