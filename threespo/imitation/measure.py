"""What a cloned policy is measured by: success, form and admissibility in whole episodes."""

from threespo.agents.rollout import play_episodes
from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup
from threespo.protocol import Sampler

MEASURED_TEMPERATURES = (1.0, 0.4)
"""Those of training and of evaluation."""


def measure_play(
    sampler: Sampler, setup: EpisodeSetup, tasks: list[Task], seed: int
) -> dict[str, float]:
    """Play tasks once at temperatures 1.0 and 0.4; return success, format validity and admissibility at each.

    Args:
        sampler: of the policy.
        setup: environment, step limit and history length.
        tasks: what is played.
        seed: of the draws.
    """
    facts: dict[str, float] = {}
    for temperature in MEASURED_TEMPERATURES:
        records = play_episodes(
            setup,
            tasks,
            sampler,
            seed=seed,
            temperature=temperature,
            key=("calibration",),
        )
        steps = sum(record.episode.steps for record in records)
        won = sum(record.episode.won for record in records)
        invalid_format = sum(record.invalid_format for record in records)
        inadmissible = sum(record.inadmissible for record in records)
        facts[f"success_t{temperature}"] = won / len(records)
        facts[f"valid_format_t{temperature}"] = 1 - invalid_format / steps
        facts[f"admissible_t{temperature}"] = 1 - inadmissible / steps
    return facts
