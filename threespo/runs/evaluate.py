"""Evaluation of one run: every game once per evaluation seed, plain single rollouts or a prompting agent's trials."""

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from threespo.agents.rollout import EpisodeRecord, play_episodes
from threespo.agents.settings import AgentSettings
from threespo.agents.trials import Agent, play_trials
from threespo.policy.settings import EndpointSettings
from threespo.runs.settings import EXAMPLE_COLUMNS, EvaluateSettings
from threespo.runs.setup import (
    episode_setup,
    load_run_policy,
    load_tasks,
    make_sampler,
    untrained_weights,
)
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.protocol import Sampler

_EPISODE_COLUMNS = (
    "env", "policy", "method", "training_seed", "split", "evaluation_seed", "temperature", "task_id", "task_type", "success",
    "score", "steps", "invalid_format", "inadmissible", "trials", "first_success",
)  # fmt: skip

Rows = list[dict[str, Any]]

_TIMING_COLUMNS = ("split", "evaluation_seed", "episodes", "seconds")


def evaluate(settings: EvaluateSettings) -> None:
    """Write ``evaluation.parquet`` (one row per episode), ``evaluation_timing.parquet`` and ``evaluation_example.parquet``.

    They have no rows where a closed model was to play, there is no key, and its replies are not recorded.
    """
    episodes, timing, example = (
        _closed(settings, settings.endpoint) if settings.endpoint else _local(settings)
    )
    folder = settings.paths.run(settings.run)
    write_table(folder.evaluation, episodes, _EPISODE_COLUMNS)
    write_table(folder.evaluation_timing, timing, _TIMING_COLUMNS)
    write_table(folder.evaluation_example, example, EXAMPLE_COLUMNS)


def _local(settings: EvaluateSettings) -> tuple[Rows, Rows, Rows]:
    import torch

    torch.set_num_threads(settings.threads)
    own = settings.weights == "run"
    source = str(settings.paths.run(settings.run).weights) if own else untrained_weights(settings)
    return _play(settings, make_sampler(settings.sampling, load_run_policy(settings, source)))


def _closed(settings: EvaluateSettings, endpoint: EndpointSettings) -> tuple[Rows, Rows, Rows]:
    """Play with a closed model: from its recorded replies if they are all there, else with the service."""
    from threespo.policy.endpoint import EndpointSampler, NotRun

    agent, evaluation = make_agent(settings.agent), settings.evaluation
    games = sum(len(load_tasks(settings, split)) for split in evaluation.splits)

    # Recorded replies first: they need no key and cost nothing.
    for offline in (True, False):
        try:
            with EndpointSampler(
                endpoint, settings.paths.cassette(settings.run), offline=offline
            ) as sampler:
                if sampler.reply_source == "key":
                    sampler.announce_cost(
                        episodes=games * len(evaluation.seeds) * agent.trials,
                        # A reflection is one more request.
                        max_steps=settings.episode.max_steps + (agent.name == "reflexion"),
                        prompt_tokens=settings.sampling.max_prompt_tokens,
                    )
                return _play(settings, sampler)
        except NotRun as reason:
            said = reason

    print(f"evaluate {settings.run.run_id}: {said}", file=sys.stderr)
    return [], [], []


def _play(settings: EvaluateSettings, sampler: "Sampler") -> tuple[Rows, Rows, Rows]:
    """Return the rows of episodes, of times (one split with one evaluation seed) and of the example.

    The example is the first episode of the last split that was won, or else the first one.
    """
    setup, evaluation, name = episode_setup(settings), settings.evaluation, settings.run.run_id
    episodes: Rows = []
    timing: Rows = []
    example: Rows = []

    for split in evaluation.splits:
        tasks = load_tasks(settings, split)
        for seed in evaluation.seeds:
            start = time.perf_counter()
            # The split is part of the key, so that no two splits share random numbers.
            draws: dict[str, Any] = {
                "seed": seed,
                "temperature": evaluation.temperature,
                "key": ("evaluate", split),
            }
            if settings.agent:
                records = play_trials(setup, tasks, sampler, make_agent(settings.agent), **draws)
            else:
                records = play_episodes(setup, tasks, sampler, **draws)

            rows = [_row(settings, split, seed, record) for record in records]
            episodes += rows
            won = next((place for place, row in enumerate(rows) if row["success"]), None)
            if split == evaluation.splits[-1] and (
                not example or (won is not None and not example[0]["success"])
            ):
                example = _example(rows[won or 0], records[won or 0])

            seconds = time.perf_counter() - start
            timing.append(
                {"split": split, "evaluation_seed": seed, "episodes": len(records), "seconds": seconds}
            )
            rate = sum(record.episode.won for record in records) / len(records)
            print(
                f"evaluate {name} {split} seed {seed}: {rate:.1%} of {len(records)}",
                file=sys.stderr,
                flush=True,
            )
    return episodes, timing, example


def make_agent(settings: AgentSettings | None) -> Agent:
    """Return a prompting agent; those without repeated attempts have one trial."""
    assert settings is not None, "a closed model has no weights, so only agents play it"
    trials = settings.trials if settings.agent in ("retry", "reflexion") else 1
    return Agent(
        settings.agent,
        trials,
        settings.reflection_characters,
        settings.note_characters,
        settings.thoughts_in_history,
    )


def _row(settings: EvaluateSettings, split: str, seed: int, record: EpisodeRecord) -> dict[str, Any]:
    run, episode = settings.run, record.episode
    # A service that is sent no temperature samples at one that nobody here knows.
    known = settings.endpoint is None or settings.endpoint.send_temperature
    temperature = settings.evaluation.temperature if known else math.nan
    values = (
        run.env, run.policy, run.method, run.seed, split, seed, temperature, episode.task.task_id,
        episode.task.task_type, episode.won, record.score, record.steps, record.invalid_format, record.inadmissible,
        record.trials, episode.won if record.first_won is None else record.first_won,
    )  # fmt: skip
    return dict(zip(_EPISODE_COLUMNS, values, strict=True))


def _example(row: dict[str, Any], record: EpisodeRecord) -> Rows:
    """Return an episode step by step, with the names that its row has."""
    episode = record.episode
    names = {**{name: row[name] for name in EXAMPLE_COLUMNS if name in row}, "goal": episode.task.goal}
    steps = [
        {**names, "step": step, "observation": observation, "response": response, "action": action}
        for step, ((observation, action), response) in enumerate(
            zip(episode.history, record.responses, strict=True), 1
        )
    ]
    return [
        *steps,
        {
            **names,
            "step": len(steps) + 1,
            "observation": episode.observation,
            "response": "",
            "action": "",
        },
    ]
