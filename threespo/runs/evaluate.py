"""Evaluation of one run: plain single rollouts of its final weights, every game once per evaluation seed."""

import sys
import time
from typing import TYPE_CHECKING, Any

from threespo.policy.tiny import load_tasks
from threespo.runs.rollout import EpisodeRecord, play_episodes
from threespo.runs.worlds import load_run_policy, make_sampler, make_world, policy_source
from threespo.study.matrix import REFERENCE_METHODS
from threespo.study.stages import evaluation_of
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.matrix import Paths, Run


def evaluate(study: "Study", run: "Run", paths: "Paths") -> None:
    """Write ``evaluation.parquet`` (one row per episode) and ``evaluation_timing.parquet``."""
    import torch

    torch.set_num_threads(study.training.threads)
    reference = run.method in REFERENCE_METHODS
    source = policy_source(study, paths, run) if reference else str(paths.run(run) / "weights")
    policy = load_run_policy(study, source, run.policy)
    sampler = make_sampler(study, policy, run.policy)
    world = make_world(study, run.env)
    rows: list[dict[str, Any]] = []
    timing: list[dict[str, Any]] = []
    evaluation = evaluation_of(study, run)
    for split in evaluation.splits:
        tasks = load_tasks(paths.data(run.env), split)
        for seed in evaluation.seeds:
            start = time.perf_counter()
            records = play_episodes(
                world, tasks, sampler, seed=seed, temperature=evaluation.temperature, key=("evaluate", split)
            )
            rows += [_row(study, run, split, seed, record) for record in records]
            seconds = time.perf_counter() - start
            timing.append({"split": split, "evaluation_seed": seed, "episodes": len(records), "seconds": seconds})
            won = sum(record.episode.won for record in records) / len(records)
            print(f"evaluate {run.run_id} {split} seed {seed}: {won:.1%} of {len(records)}", file=sys.stderr, flush=True)
    write_table(paths.run(run) / "evaluation_timing.parquet", timing)
    write_table(paths.run(run) / "evaluation.parquet", rows)


def _row(study: "Study", run: "Run", split: str, seed: int, record: EpisodeRecord) -> dict[str, Any]:
    episode = record.episode
    return {
        "env": run.env,
        "policy": run.policy,
        "method": run.method,
        "training_seed": run.seed,
        "split": split,
        "evaluation_seed": seed,
        "temperature": study.evaluation.temperature,
        "task_id": episode.task.task_id,
        "task_type": episode.task.task_type,
        "success": episode.won,
        "score": episode.score,
        "steps": episode.steps,
        "invalid_format": record.invalid_format,
        "inadmissible": record.inadmissible,
    }
