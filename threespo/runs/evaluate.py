"""Evaluation of one run: every game once per evaluation seed, plain single rollouts or a prompting agent's trials."""

import sys
import time
from typing import TYPE_CHECKING, Any

from threespo.agents.play import Agent, play_trials
from threespo.runs.data import load_tasks
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
Rows = list[dict[str, Any]]

_TIMING_COLUMNS = ("split", "evaluation_seed", "episodes", "seconds")


def evaluate(study: "Study", run: "Run", paths: "Paths") -> None:
    """Write ``evaluation.parquet`` (one row per episode) and ``evaluation_timing.parquet``.

    Both have no rows where a closed model was to play, there is no key, and its replies are not recorded.
    """
    study = study.at(run.env)
    episodes, timing = _closed(study, run, paths) if study.policies[run.policy].endpoint else _local(study, run, paths)
    write_table(paths.run(run) / "evaluation_timing.parquet", timing, _TIMING_COLUMNS)
    write_table(paths.run(run) / "evaluation.parquet", episodes, _EPISODE_COLUMNS)


def _local(study: "Study", run: "Run", paths: "Paths") -> tuple[Rows, Rows]:
    import torch

    torch.set_num_threads(study.training.threads)
    policy = load_run_policy(study, judged_source(study, paths, run), run.policy)
    return _play(study, run, paths, make_sampler(study, policy, run.policy))


def _closed(study: "Study", run: "Run", paths: "Paths") -> tuple[Rows, Rows]:
    """Play with a closed model: from its recorded replies if they are all there, else with the service."""
    from threespo.policy.endpoint import EndpointSampler, NotRun

    endpoint, agent, evaluation = study.policies[run.policy].endpoint, make_agent(study, run), evaluation_of(study, run)
    assert endpoint is not None
    games = sum(len(load_tasks(run.env, paths.data(run.env), split)) for split in evaluation.splits)
    for offline in (True, False):
        try:
            with EndpointSampler(endpoint, paths.cassette(run), offline=offline) as sampler:
                if sampler.available == "key":
                    sampler.announce(
                        episodes=games * len(evaluation.seeds) * agent.trials,
                        # A reflection is one more request.
                        max_steps=study.environments[run.env].max_steps + (agent.name == "reflexion"),
                        prompt_tokens=study.policies[run.policy].max_prompt_tokens,
                    )
                return _play(study, run, paths, sampler)
        except NotRun as reason:
            said = reason
    print(f"evaluate {run.run_id}: {said}", file=sys.stderr)
    return [], []


def _play(study: "Study", run: "Run", paths: "Paths", sampler: "Sampler") -> tuple[Rows, Rows]:
    """Return the rows of episodes and of times."""
    world, evaluation = make_world(study, run.env, paths.data(run.env)), evaluation_of(study, run)
    episodes: Rows = []
    timing: Rows = []
    for split in evaluation.splits:
        tasks = load_tasks(run.env, paths.data(run.env), split)
        for seed in evaluation.seeds:
            start = time.perf_counter()
            settings: dict[str, Any] = {"seed": seed, "temperature": evaluation.temperature, "key": ("evaluate", split)}
            if run.method in study.agents:
                records = play_trials(world, tasks, sampler, make_agent(study, run), **settings)
            else:
                records = play_episodes(world, tasks, sampler, **settings)
            episodes += [_row(study, run, split, seed, record) for record in records]
            seconds = time.perf_counter() - start
            timing.append({"split": split, "evaluation_seed": seed, "episodes": len(records), "seconds": seconds})
            won = sum(record.episode.won for record in records) / len(records)
            print(f"evaluate {run.run_id} {split} seed {seed}: {won:.1%} of {len(records)}", file=sys.stderr, flush=True)
    return episodes, timing


def make_agent(study: "Study", run: "Run") -> Agent:
    """Return the prompting agent of a run; those without repeated attempts have one trial."""
    entry = study.agents[run.method]
    trials = entry.trials if entry.agent in ("retry", "reflexion") else 1
    return Agent(
        entry.agent, trials, entry.reflection_characters, entry.note_characters, entry.thoughts_in_history
    )


def _row(study: "Study", run: "Run", split: str, seed: int, record: EpisodeRecord) -> dict[str, Any]:
    episode = record.episode
    values = (
        run.env, run.policy, run.method, run.seed, split, seed, study.evaluation.temperature, episode.task.task_id,
        episode.task.task_type, episode.won, record.score, record.steps, record.invalid_format, record.inadmissible,
        record.trials, episode.won if record.first_won is None else record.first_won,
    )  # fmt: skip
    return dict(zip(_EPISODE_COLUMNS, values, strict=True))
