"""What a run records of each epoch: the rows of its tables ``metrics`` and ``timing``."""

import math
import resource
from typing import Any

from threespo.protocol import EpochResult, UpdateStats
from threespo.runs.checkpoint import Progress
from threespo.runs.driver import Driver

STEP_STATISTICS = (
    "loss",
    "policy_loss",
    "kl",
    "entropy",
    "clip_fraction",
    "approx_kl",
    "grad_norm",
    "ratio",
    "staleness",
)
"""Fields of ``UpdateStats`` of which an epoch's row has the mean."""


def record_epoch(progress: Progress, result: EpochResult, driver: Driver, tasks: int) -> None:
    """Add an epoch's results, and what it cost, to a run's progress."""
    progress.epoch += 1
    progress.generations += driver.generations
    progress.env_steps += result.env_steps
    progress.completed_paths += result.completed_paths
    progress.optimizer_steps += len(driver.updates)

    # An epoch may be without steps, paths or updates, if a method refuses all of its tasks.
    paths = result.completed_paths
    env_steps = max(1, result.env_steps)
    progress.metrics.append(
        {
            "epoch": progress.epoch,
            "tasks": tasks,
            "generations": progress.generations,
            "env_steps": progress.env_steps,
            "completed_paths": progress.completed_paths,
            "optimizer_steps": progress.optimizer_steps,
            "epoch_tokens": driver.tokens,
            "epoch_paths": paths,
            "epoch_successes": result.successes,
            "train_success": result.successes / paths if paths else math.nan,
            "invalid_rate": result.invalid_format / env_steps,
            "inadmissible_rate": result.inadmissible / env_steps,
            "nothing_rate": result.nothing_happens / env_steps,
            **_update_statistics(driver.updates),
            **_advantage_statistics(driver.advantages),
            **{f"detail_{name}": value for name, value in result.details.items()},
        }
    )


def _update_statistics(updates: list[UpdateStats]) -> dict[str, float]:
    # Statistics of a step are means over its tokens, so steps are weighted by their tokens.
    tokens = sum(stats.tokens for stats in updates)
    means: dict[str, float] = {}
    for name in STEP_STATISTICS:
        weighted_sum = sum(getattr(stats, name) * stats.tokens for stats in updates)
        means[name] = weighted_sum / tokens if tokens else math.nan

    # The gap is a mean over those tokens alone whose log pi_old the learner computed itself.
    recomputed = sum(stats.recomputed for stats in updates)
    gap_sum = sum(stats.sampler_gap * stats.recomputed for stats in updates)
    oldest = max((stats.oldest for stats in updates), default=math.nan)
    return {
        **means,
        "sampler_gap": gap_sum / recomputed if recomputed else math.nan,
        "staleness_max": float(oldest),
    }


def _advantage_statistics(advantages: list[float]) -> dict[str, float]:
    rows = len(advantages)
    mean = math.nan
    deviation = math.nan
    if rows:
        mean = math.fsum(advantages) / rows
        variance = math.fsum((advantage - mean) ** 2 for advantage in advantages) / rows
        deviation = math.sqrt(variance)
    return {
        "rows": float(rows),
        "advantage_mean": mean,
        "advantage_std": deviation,
        "advantage_max": max(map(abs, advantages), default=math.nan),
    }


def record_timing(
    progress: Progress, driver: Driver, seconds: float, environment: float, logging: float
) -> None:
    """Add an epoch's times. ``logging`` (metrics, progress, checkpoints) was spent between the epoch before and this."""
    # Linux counts resident memory in kilobytes.
    peak_memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    progress.timing.append(
        {
            "epoch": progress.epoch,
            "seconds": seconds + logging,
            "sampling_seconds": driver.sampling_seconds,
            "update_seconds": driver.update_seconds,
            "environment_seconds": environment,
            # What is left: the method's own work.
            "method_seconds": seconds - driver.sampling_seconds - driver.update_seconds - environment,
            "logging_seconds": logging,
            "generations_per_second": driver.generations / seconds,
            "peak_memory_mb": peak_memory_mb,
        }
    )


def sort_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the columns, ``epoch`` first: rows that went through a checkpoint have lost the order they were made in."""
    return [{"epoch": row["epoch"], **dict(sorted(row.items()))} for row in rows]
