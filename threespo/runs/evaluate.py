"""Evaluation of one run: every game once per evaluation seed, plain single rollouts or a prompting agent's trials."""

import math
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from threespo.agents.rollout import EpisodeRecord, play_episodes
from threespo.agents.settings import AgentSettings
from threespo.agents.trials import Agent, play_trials
from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup
from threespo.policy.settings import EndpointSettings
from threespo.runs.settings import EXAMPLE_COLUMNS, EvaluateSettings
from threespo.runs.setup import (
    episode_setup,
    initial_weights,
    load_run_policy,
    load_tasks,
    make_sampler,
)
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.protocol import Sampler

EPISODE_COLUMNS = (
    "env", "policy", "method", "training_seed", "split", "evaluation_seed", "temperature", "task_id", "task_type", "success",
    "score", "steps", "invalid_format", "inadmissible", "trials", "first_success",
)  # fmt: skip

TIMING_COLUMNS = ("split", "evaluation_seed", "episodes", "seconds")

Rows = list[dict[str, Any]]


class EvaluationTables(NamedTuple):
    """What an evaluation writes."""

    episodes: Rows
    timing: Rows
    """One row for a split with an evaluation seed."""
    example: Rows
    """The first episode of the last split that was won, or else its first one, step by step."""


def evaluate(settings: EvaluateSettings) -> None:
    """Write ``evaluation.parquet`` (one row per episode), ``evaluation_timing.parquet`` and ``evaluation_example.parquet``.

    They have no rows where a closed model was to play, there is no key, and its replies are not
    recorded.
    """
    endpoint = settings.endpoint
    tables = _evaluate_endpoint(settings, endpoint) if endpoint else _evaluate_local_policy(settings)
    folder = settings.paths.run(settings.run)
    write_table(folder.evaluation, tables.episodes, EPISODE_COLUMNS)
    write_table(folder.evaluation_timing, tables.timing, TIMING_COLUMNS)
    write_table(folder.evaluation_example, tables.example, EXAMPLE_COLUMNS)


def _evaluate_local_policy(settings: EvaluateSettings) -> EvaluationTables:
    import torch

    torch.set_num_threads(settings.threads)
    own_weights = str(settings.paths.run(settings.run).weights)
    source = own_weights if settings.weights == "run" else initial_weights(settings)
    policy = load_run_policy(settings, source)
    return _play(settings, make_sampler(settings.sampling, policy))


def _evaluate_endpoint(settings: EvaluateSettings, endpoint: EndpointSettings) -> EvaluationTables:
    """Play with a closed model: from its recorded replies if they are all there, else with the service."""
    from threespo.policy.endpoint import EndpointSampler, NotRun

    agent = make_agent(settings.agent)
    evaluation = settings.evaluation
    games = sum(len(load_tasks(settings, split)) for split in evaluation.splits)
    replies = settings.paths.cassette(settings.run)

    # Recorded replies first: they need no key and cost nothing.
    for offline in (True, False):
        try:
            with EndpointSampler(endpoint, replies, offline=offline) as sampler:
                if sampler.reply_source == "key":
                    sampler.announce_cost(
                        episodes=games * len(evaluation.seeds) * agent.trials,
                        # A reflection is one more request.
                        max_steps=settings.episode.max_steps + (agent.name == "reflexion"),
                        prompt_tokens=settings.sampling.max_prompt_tokens,
                    )
                return _play(settings, sampler)
        except NotRun as error:
            reason = error

    print(f"evaluate {settings.run.run_id}: {reason}", file=sys.stderr)
    return EvaluationTables([], [], [])


def _play(settings: EvaluateSettings, sampler: "Sampler") -> EvaluationTables:
    setup = episode_setup(settings)
    evaluation = settings.evaluation
    tables = EvaluationTables([], [], [])

    for split in evaluation.splits:
        tasks = load_tasks(settings, split)
        for seed in evaluation.seeds:
            start = time.perf_counter()
            records = _play_split(settings, setup, tasks, sampler, split, seed)
            rows = [_episode_row(settings, split, seed, record) for record in records]
            tables.episodes.extend(rows)
            if split == evaluation.splits[-1]:
                _update_example(tables.example, rows, records)

            seconds = time.perf_counter() - start
            tables.timing.append(
                {"split": split, "evaluation_seed": seed, "episodes": len(records), "seconds": seconds}
            )
            rate = sum(record.episode.won for record in records) / len(records)
            print(
                f"evaluate {settings.run.run_id} {split} seed {seed}: {rate:.1%} of {len(records)}",
                file=sys.stderr,
                flush=True,
            )
    return tables


def _play_split(
    settings: EvaluateSettings,
    setup: EpisodeSetup,
    tasks: list[Task],
    sampler: "Sampler",
    split: str,
    seed: int,
) -> list[EpisodeRecord]:
    temperature = settings.evaluation.temperature
    # The split is part of the key, so that no two splits share random numbers.
    key = ("evaluate", split)
    if settings.agent:
        agent = make_agent(settings.agent)
        return play_trials(setup, tasks, sampler, agent, seed=seed, temperature=temperature, key=key)
    return play_episodes(setup, tasks, sampler, seed=seed, temperature=temperature, key=key)


def make_agent(settings: AgentSettings | None) -> Agent:
    """Return a prompting agent; those without repeated attempts have one trial."""
    assert settings is not None, "a closed model has no weights, so only agents play it"
    repeats = settings.agent in ("retry", "reflexion")
    return Agent(
        settings.agent,
        settings.trials if repeats else 1,
        settings.reflection_characters,
        settings.note_characters,
        settings.thoughts_in_history,
    )


def _episode_row(
    settings: EvaluateSettings, split: str, seed: int, record: EpisodeRecord
) -> dict[str, Any]:
    run = settings.run
    episode = record.episode
    # A service that is sent no temperature samples at an unknown one.
    is_known = settings.endpoint is None or settings.endpoint.send_temperature
    temperature = settings.evaluation.temperature if is_known else math.nan
    # Without trials the only attempt is the first.
    first_success = episode.won if record.first_won is None else record.first_won
    values = (
        run.env, run.policy, run.method, run.seed, split, seed, temperature, episode.task.task_id,
        episode.task.task_type, episode.won, record.score, record.steps, record.invalid_format, record.inadmissible,
        record.trials, first_success,
    )  # fmt: skip
    return dict(zip(EPISODE_COLUMNS, values, strict=True))


def _update_example(example: Rows, rows: Rows, records: list[EpisodeRecord]) -> None:
    """Put the first episode that was won into ``example``, unless it already has a won one; else the very first."""
    won = next((index for index, row in enumerate(rows) if row["success"]), None)
    if not example or (won is not None and not example[0]["success"]):
        index = won or 0
        example[:] = _example_rows(rows[index], records[index])


def _example_rows(row: dict[str, Any], record: EpisodeRecord) -> Rows:
    """Return an episode step by step, with the columns of its row."""
    episode = record.episode
    common = {name: row[name] for name in EXAMPLE_COLUMNS if name in row}
    common["goal"] = episode.task.goal

    steps = []
    turns = zip(episode.history, record.responses, strict=True)
    for step, ((observation, action), response) in enumerate(turns, start=1):
        steps.append(
            {
                **common,
                "step": step,
                "observation": observation,
                "response": response,
                "action": action,
            }
        )
    last = {"step": len(steps) + 1, "observation": episode.observation, "response": "", "action": ""}
    return [*steps, {**common, **last}]
