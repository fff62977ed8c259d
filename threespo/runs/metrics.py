"""What a run writes down of each epoch: the rows of its tables ``metrics`` and ``timing``."""

import math
import resource
from typing import Any

from threespo.protocol import EpochResult
from threespo.runs.checkpoint import Progress
from threespo.runs.driver import Driver

_MEANS = (
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


def record_epoch(progress: Progress, result: EpochResult, driver: Driver, tasks: int) -> None:
    """Add an epoch's results, and what it cost, to a run's progress."""
    progress.epoch += 1
    progress.generations += driver.generations
    progress.env_steps += result.env_steps
    progress.completed_paths += result.completed_paths
    progress.optimizer_steps += len(driver.updates)

    # Statistics of a step are means over its tokens, so steps are weighted by their tokens.
    tokens = sum(stats.tokens for stats in driver.updates)
    means = {
        name: sum(getattr(stats, name) * stats.tokens for stats in driver.updates) / tokens
        if tokens
        else math.nan
        for name in _MEANS
    }
    # The gap is a mean over those tokens alone whose log pi_old the learner computed itself.
    recomputed = sum(stats.recomputed for stats in driver.updates)
    gap = (
        sum(stats.sampler_gap * stats.recomputed for stats in driver.updates) / recomputed
        if recomputed
        else math.nan
    )
    paths, steps = result.completed_paths, max(1, result.env_steps)
    progress.metrics.append(
        {
            "epoch": progress.epoch,
            "tasks": tasks,
            **{
                name: getattr(progress, name) for name in ("generations", "env_steps", "completed_paths")
            },
            "optimizer_steps": progress.optimizer_steps,
            "epoch_tokens": driver.tokens,
            "epoch_paths": paths,
            "epoch_successes": result.successes,
            "train_success": result.successes / paths if paths else math.nan,
            "invalid_rate": result.invalid_format / steps,
            "inadmissible_rate": result.inadmissible / steps,
            "nothing_rate": result.nothing_happens / steps,
            **means,
            "sampler_gap": gap,
            "staleness_max": float(max((stats.oldest for stats in driver.updates), default=math.nan)),
            **_spread(driver.advantages),
            **{f"detail_{name}": value for name, value in result.details.items()},
        }
    )


def _spread(advantages: list[float]) -> dict[str, float]:
    rows = len(advantages)
    mean = math.fsum(advantages) / rows if rows else math.nan
    return {
        "rows": float(rows),
        "advantage_mean": mean,
        "advantage_std": math.sqrt(math.fsum((value - mean) ** 2 for value in advantages) / rows)
        if rows
        else math.nan,
        "advantage_max": max(map(abs, advantages), default=math.nan),
    }


def record_timing(
    progress: Progress, driver: Driver, seconds: float, environment: float, logging: float
) -> None:
    """Add an epoch's times. ``logging`` (metrics, progress, checkpoints) was spent between the epoch before and this."""
    progress.timing.append(
        {
            "epoch": progress.epoch,
            "seconds": seconds + logging,
            "sampling_seconds": driver.sampling_seconds,
            "update_seconds": driver.update_seconds,
            "environment_seconds": environment,
            "method_seconds": seconds - driver.sampling_seconds - driver.update_seconds - environment,
            "logging_seconds": logging,
            "generations_per_second": driver.generations / seconds,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    )


def sort_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the columns, ``epoch`` first: rows that went through a checkpoint have lost the order they were made in."""
    return [{"epoch": row["epoch"], **dict(sorted(row.items()))} for row in rows]
