"""Advantages of whole episodes, in float64: GRPO, RLOO, GiGPO, HGPO, REINFORCE++.

Reference implementations take their statistics over *rows* (steps), so a long failure weighs more than a short success;
the methods' papers take them over trajectories. Both are here: ``population`` says which.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from threespo.envs.base import State

Population = Literal["trajectories", "rows", "first_rows"]
"""``trajectories``: one return per trajectory (the papers; our default). ``rows``: every step, as the reference code
runs. ``first_rows``: the first step's score of each trajectory, the reference's ``compute_mean_std_cross_steps=false``."""

_ROUNDING = 1e-9
"""A difference below this, relative to max(1, |value|), is rounding: mathematically zero."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What an estimator reads of one episode, step by step."""

    keys: Sequence[Hashable]
    """The observation before each action: which steps of a group start from the same place."""
    scores: Sequence[float]
    """Episode return minus the step's own penalty."""
    step_returns: Sequence[float]
    """Discounted return from the step on, minus the step's own penalty."""
    episode_return: float
    lengths: Sequence[int] = ()
    """Response tokens of each step, for statistics over tokens."""
    penalties: Sequence[float] = ()
    """What was subtracted from each step's score and return; empty where nothing was."""
    states: Sequence[State] = ()
    """The state before each action and the one after the last, (steps + 1,); empty where no estimator reads them."""
    won: bool = False
    """Whether the last action won; read by estimators that read ``states``."""

    def unpenalised_return(self, step: int) -> float:
        """Return the discounted return from the step on, without its own penalty."""
        penalty = self.penalties[step] if self.penalties else 0.0
        return self.step_returns[step] + penalty


class StepIndex(NamedTuple):
    """A step of a group, by the index of its episode."""

    episode: int
    step: int


Groups = Sequence[Sequence[Steps]]
"""The episodes of an epoch, group by group."""

Estimator = Callable[[Groups], list[list[list[float]]]]
"""From the episodes of an epoch to an advantage for each group, episode and step."""


def estimate_by_group(estimator: Callable[[Sequence[Steps]], list[list[float]]]) -> Estimator:
    """Return the estimator that treats each group separately."""
    return lambda groups: [estimator(group) for group in groups]


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return G_s = sum over u >= s of gamma^(u - s) r_u for every step s, (steps,)."""
    returns = [0.0] * len(rewards)
    # Backwards, so that each step's return is computed from that of the next one.
    next_return = 0.0
    for step in range(len(rewards) - 1, -1, -1):
        next_return = rewards[step] + gamma * next_return
        returns[step] = next_return
    return returns


def grpo_advantages(
    group: Sequence[Steps],
    *,
    population: Population = "trajectories",
    normalise: bool = True,
    eps: float = 1e-6,
) -> list[list[float]]:
    """GRPO: A = (x - mean) / (std + eps) within one task's group, one value per step, x its score.

    With ``trajectories`` a group of equal returns is centred and not divided: there is nothing to learn from it but the
    penalties, which would otherwise be divided by eps. A group of one row gets its raw score, as in the reference.

    Args:
        group: the episodes of one task.
        population: what mean and std (ddof 1) are taken over.
        normalise: divide by the standard deviation (``mean_std_norm``), or not (``mean_norm``).
        eps: added to the standard deviation.

    Returns:
        The advantage of each step, per episode.
    """
    mean, std, _ = _population_statistics(group, population)
    divisor = std + eps if normalise else 1.0
    if population == "trajectories" and std == 0.0:
        # Only penalties differ here: divided by eps alone, a penalty of 0.1 would be an advantage of -1e5.
        divisor = 1.0
    return [[(score - mean) / divisor for score in episode.scores] for episode in group]


def rloo_advantages(
    group: Sequence[Steps], *, population: Population = "trajectories"
) -> list[list[float]]:
    """RLOO: A = x - mean of the others = (x - mean) n / (n - 1), x the step's score; a population of one has A = x.

    Args:
        group: the episodes of one task.
        population: what the mean is taken over; n is its size.

    Returns:
        The advantage of each step, per episode.
    """
    mean, _, size = _population_statistics(group, population)
    # x - (n mean - x) / (n - 1) = (x - mean) n / (n - 1), as long as x itself is in the population.
    factor = size / (size - 1) if size > 1 else 1.0
    return [[(score - mean) * factor for score in episode.scores] for episode in group]


def gigpo_advantages(
    group: Sequence[Steps],
    *,
    population: Population = "trajectories",
    normalise: bool = True,
    step_weight: float = 1.0,
    eps: float = 1e-6,
) -> list[list[float]]:
    """GiGPO: A = A_E + step_weight * A_S.

    A_E is GRPO's. A_S compares the steps of the group that start from the same observation (anchor), those of one
    trajectory included: A_S = (G - mean) / (std + eps), or G - mean; 0 where there is no other. G is the discounted
    return from the step on, std has ddof 1. With ``trajectories`` steps whose returns are equal are not divided, as in
    ``grpo_advantages``.

    Args:
        group: the episodes of one task.
        population: what mean and std of A_E are taken over.
        normalise: divide both parts by their standard deviations.
        step_weight: weight of A_S (omega of its paper).
        eps: added to the standard deviations.

    Returns:
        The advantage of each step, per episode.
    """
    advantages = grpo_advantages(group, population=population, normalise=normalise, eps=eps)

    clusters: dict[Hashable, list[StepIndex]] = {}
    for index in _list_steps(group):
        anchor = group[index.episode].keys[index.step]
        clusters.setdefault(anchor, []).append(index)

    for cluster in clusters.values():
        # A step whose observation no other step shares has no A_S: 0 is added, where the mean would give its whole return.
        if len(cluster) == 1:
            continue
        returns = [group[index.episode].step_returns[index.step] for index in cluster]
        mean, std = mean_std(returns)
        divide = normalise and not _differ_by_penalty_only(group, cluster, population)
        divisor = std + eps if divide else 1.0
        for index, value in zip(cluster, returns, strict=True):
            advantages[index.episode][index.step] += step_weight * (value - mean) / divisor
    return advantages


def hgpo_advantages(
    group: Sequence[Steps],
    *,
    population: Population = "rows",
    normalise: bool = True,
    history: int = 2,
    alpha: float = 1.0,
    base_group: bool = False,
    eps: float = 1e-6,
) -> list[list[float]]:
    """HGPO: A = sum w_k a_k / (sum w_k + eps) over the levels k at which other steps match; 0 if none do.

    At level k = 1, ..., history + 1 a step is compared with those of the group whose last k observations are the same:
    a_k = (G - mean) / (std + eps), or G - mean, with ddof 0, and w_k = (k + 1)^alpha. Items that are exactly zero are
    dropped, with their weights.

    Args:
        group: the episodes of one task.
        population: what GRPO's statistics are taken over at level 0.
        normalise: divide by each cluster's standard deviation.
        history: observations before the current one that the levels reach back (K).
        alpha: exponent of the level weights.
        base_group: add GRPO's advantage as level 0, with weight 1.
        eps: added to standard deviations and to the sum of weights.

    Returns:
        The advantage of each step, per episode.
    """
    # The levels that have something to say of each step, by episode and step.
    items: list[list[list[LevelItem]]] = [[[] for _ in episode.scores] for episode in group]
    if base_group:
        base = grpo_advantages(group, population=population, normalise=normalise, eps=eps)
        for index in _list_steps(group):
            advantage = base[index.episode][index.step]
            if advantage != 0.0:
                items[index.episode][index.step].append(LevelItem(1.0, advantage))

    for level in range(1, history + 2):
        # ``weight_type: length`` of tab:hyperparams: the longer the shared history, the fairer the comparison.
        weight = (level + 1) ** alpha
        for cluster in _cluster_by_history(group, level):
            returns = [group[index.episode].step_returns[index.step] for index in cluster]
            mean, std = mean_std(returns, ddof=0)
            divide = normalise and not _differ_by_penalty_only(group, cluster, population)
            divisor = std + eps if divide else 1.0
            for index, value in zip(cluster, returns, strict=True):
                difference = value - mean
                # The reference drops items that are exactly zero, which a rounded mean would hide.
                is_zero = abs(difference) <= _ROUNDING * max(1.0, abs(mean))
                if len(cluster) > 1 and not is_zero:
                    item = LevelItem(weight, difference / divisor)
                    items[index.episode][index.step].append(item)

    return [[_weighted_mean(step_items, eps) for step_items in episode] for episode in items]


class LevelItem(NamedTuple):
    """The advantage of a step at one level of HGPO."""

    weight: float
    advantage: float


def _cluster_by_history(group: Sequence[Steps], level: int) -> list[list[StepIndex]]:
    """Return the steps that share their last ``level`` observations, cluster by cluster."""
    clusters: dict[Hashable, list[StepIndex]] = {}
    for index in _list_steps(group):
        end = index.step + 1
        # A step with fewer than ``level`` observations so far has no key at this level.
        if end >= level:
            recent = tuple(group[index.episode].keys[end - level : end])
            clusters.setdefault(recent, []).append(index)
    return list(clusters.values())


def _weighted_mean(items: Sequence[LevelItem], eps: float) -> float:
    if not items:
        return 0.0
    total = math.fsum(item.weight * item.advantage for item in items)
    total_weight = math.fsum(item.weight for item in items)
    return total / (total_weight + eps)


def reinforce_pp_advantages(
    groups: Groups, *, population: Population = "trajectories", eps: float = 1e-8
) -> list[list[list[float]]]:
    """REINFORCE++: A = (x - mean) / sqrt(var + eps), one mean and variance (ddof 1) for the whole epoch, no groups.

    Args:
        groups: the episodes of the epoch, by task.
        population: ``rows`` takes mean and variance over response tokens, as the reference code whitens;
            ``trajectories`` over episode returns, where an epoch of equal returns is centred and not divided.
        eps: added to the variance.

    Returns:
        The advantage of each step, per group and episode.
    """
    episodes = [episode for group in groups for episode in group]
    if population == "trajectories":
        values = [episode.episode_return for episode in episodes]
        weights = [1] * len(values)
    else:
        # The reference whitens tokens: every token of a response has its step's score.
        values = [score for episode in episodes for score in episode.scores]
        weights = [length for episode in episodes for length in episode.lengths]

    count = sum(weights)
    pairs = list(zip(values, weights, strict=True))
    mean = math.fsum(value * weight for value, weight in pairs) / count
    squares = math.fsum(weight * (value - mean) ** 2 for value, weight in pairs)
    variance = squares / max(1, count - 1)

    divisor = math.sqrt(variance + eps)
    if population == "trajectories" and max(values) == min(values):
        # As in ``grpo_advantages``: what is left are penalties, which eps alone would blow up.
        divisor = 1.0

    return [
        [[(score - mean) / divisor for score in episode.scores] for episode in group] for group in groups
    ]


def _differ_by_penalty_only(
    group: Sequence[Steps], cluster: Sequence[StepIndex], population: Population
) -> bool:
    """Return whether a cluster's returns are equal before penalties; then they are not divided (``trajectories`` only)."""
    if population != "trajectories":
        # The reference code divides here as well, and is matched.
        return False
    returns = [group[index.episode].unpenalised_return(index.step) for index in cluster]
    return max(returns) - min(returns) <= _ROUNDING * max(1.0, abs(returns[0]))


def _list_steps(group: Sequence[Steps]) -> list[StepIndex]:
    """Return the indices of all steps, episode by episode."""
    return [
        StepIndex(number, step)
        for number, episode in enumerate(group)
        for step in range(len(episode.scores))
    ]


class _Statistics(NamedTuple):
    mean: float
    std: float
    size: int


def _population_statistics(group: Sequence[Steps], population: Population) -> _Statistics:
    if population == "trajectories":
        values = [episode.episode_return for episode in group]
    elif population == "rows":
        # A long episode is in the mean once for each of its steps.
        values = [score for episode in group for score in episode.scores]
    else:
        values = [episode.scores[0] for episode in group]
    mean, std = mean_std(values)
    return _Statistics(mean, std, len(values))


def mean_std(values: Sequence[float], ddof: int = 1) -> tuple[float, float]:
    """Return mean and standard deviation; (0, 1) for a single value."""
    if len(values) == 1:
        # As the reference code has it: a group of one keeps its raw score.
        return 0.0, 1.0
    # Exactly 0 for equal values: a rounded mean would leave a tiny spread, which callers divide by.
    if max(values) == min(values):
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - ddof))
