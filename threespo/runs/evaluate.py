"""Evaluation of one run: every game once per evaluation seed, plain single rollouts or a prompting agent's trials."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from threespo.agents.play import Agent, play_trials
from threespo.policy.tiny import load_tasks
from threespo.runs.rollout import EpisodeRecord, play_episodes
from threespo.runs.worlds import judged_source, load_run_policy, make_sampler, make_world
from threespo.study.stages import evaluation_of
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.protocol import Sampler
    from threespo.study.config import Study
    from threespo.study.matrix import Paths, Run

_EPISODE_COLUMNS = (
    "env", "policy", "method", "training_seed", "split", "evaluation_seed", "temperature", "task_id", "task_type", "success",
    "score", "steps", "invalid_format", "inadmissible", "trials", "first_success",
)  # fmt: skip
_TIMING_COLUMNS = ("split", "evaluation_seed", "episodes", "seconds")


def evaluate(study: "Study", run: "Run", paths: "Paths") -> None:
    """Write ``evaluation.parquet`` (one row per episode) and ``evaluation_timing.parquet``.

    Both have no rows where a closed model was to play, there is no key, and its replies are not recorded.
    """
    from threespo.policy.endpoint import NotRun

    episodes: list[dict[str, Any]] = []
    timing: list[dict[str, Any]] = []
    try:
        with _sampler(study, run, paths) as sampler:
            _play(study, run, paths, sampler, episodes, timing)
    except NotRun as reason:
        print(f"evaluate {run.run_id}: {reason}", file=sys.stderr)
        episodes, timing = [], []
    write_table(paths.run(run) / "evaluation_timing.parquet", timing, _TIMING_COLUMNS)
    write_table(paths.run(run) / "evaluation.parquet", episodes, _EPISODE_COLUMNS)


def _play(
    study: "Study",
    run: "Run",
    paths: "Paths",
    sampler: "Sampler",
    episodes: list[dict[str, Any]],
    timing: list[dict[str, Any]],
) -> None:
    world, evaluation = make_world(study, run.env), evaluation_of(study, run)
    for split in evaluation.splits:
        tasks = load_tasks(paths.data(run.env), split)
        for seed in evaluation.seeds:
            start = time.perf_counter()
            settings: dict[str, Any] = {
                "seed": seed,
                "temperature": evaluation.temperature,
                "key": ("evaluate", split),
            }
            if run.method in study.agents:
                records = play_trials(world, tasks, sampler, make_agent(study, run), **settings)
            else:
                records = play_episodes(world, tasks, sampler, **settings)
            episodes += [_row(study, run, split, seed, record) for record in records]
            seconds = time.perf_counter() - start
            timing.append({"split": split, "evaluation_seed": seed, "episodes": len(records), "seconds": seconds})
            won = sum(record.episode.won for record in records) / len(records)
            print(f"evaluate {run.run_id} {split} seed {seed}: {won:.1%} of {len(records)}", file=sys.stderr, flush=True)


def make_agent(study: "Study", run: "Run") -> Agent:
    """Return the prompting agent of a run; those without repeated attempts have one trial."""
    entry = study.agents[run.method]
    trials = entry.trials if entry.agent in ("retry", "reflexion") else 1
    return Agent(entry.agent, trials, entry.reflection_steps, entry.thoughts_in_history)


@contextlib.contextmanager
def _sampler(study: "Study", run: "Run", paths: "Paths") -> Iterator["Sampler"]:
    endpoint = study.policies[run.policy].endpoint
    if endpoint is None:
        import torch

        torch.set_num_threads(study.training.threads)
        policy = load_run_policy(study, judged_source(study, paths, run), run.policy)
        yield make_sampler(study, policy, run.policy)
        return
    from threespo.policy.endpoint import EndpointSampler

    evaluation, agent = evaluation_of(study, run), make_agent(study, run)
    games = sum(len(load_tasks(paths.data(run.env), split)) for split in evaluation.splits)
    with EndpointSampler(endpoint, paths.cassette(run)) as sampler:
        sampler.announce(
            episodes=games * len(evaluation.seeds) * agent.trials,
            # A reflection is one more request.
            max_steps=study.alfworld.max_steps + (agent.name == "reflexion"),
            prompt_tokens=study.policies[run.policy].max_prompt_tokens,
        )
        yield sampler


def _row(study: "Study", run: "Run", split: str, seed: int, record: EpisodeRecord) -> dict[str, Any]:
    episode = record.episode
    values = (
        run.env, run.policy, run.method, run.seed, split, seed, study.evaluation.temperature, episode.task.task_id,
        episode.task.task_type, episode.won, episode.score, episode.steps, record.invalid_format, record.inadmissible,
        record.trials, episode.won if record.first_won is None else record.first_won,
    )  # fmt: skip
    return dict(zip(_EPISODE_COLUMNS, values, strict=True))
