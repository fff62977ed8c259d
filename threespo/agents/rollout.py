"""Plays whole episodes with a policy, many at a time in lock-step."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup, respond, start_episode
from threespo.protocol import Counters, Sample, Sampler, SampleRequest

_TAG = re.compile("</?(?:think|action)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One finished episode, with the faults of its responses."""

    episode: Episode
    steps: int
    """Actions taken, with those of earlier attempts."""
    invalid_format: int
    inadmissible: int
    nothing_happens: int
    trials: int = 1
    """Attempts at the task; the episode is the last one."""
    first_won: bool | None = None
    """Whether the first of several attempts succeeded."""
    earlier_score: float = 0.0
    """The best score of earlier attempts."""
    responses: tuple[str, ...] = ()
    """The policy's responses, step by step; of several attempts the last one's."""

    @property
    def score(self) -> float:
        """The best score of all attempts, as success is that of any."""
        return max(self.episode.score, self.earlier_score)

    def add_earlier_attempts(self, earlier: "EpisodeRecord") -> "EpisodeRecord":
        """Return the record with the steps, faults and score of earlier attempts added."""
        return replace(
            self,
            steps=self.steps + earlier.steps,
            invalid_format=self.invalid_format + earlier.invalid_format,
            inadmissible=self.inadmissible + earlier.inadmissible,
            nothing_happens=self.nothing_happens + earlier.nothing_happens,
            earlier_score=earlier.score,
        )


class Prompter(Protocol):
    """Writes the prompts of episodes; ``index`` is the episode's position among those that are played together."""

    def prompt(self, index: int, episode: Episode) -> str:
        """Return the prompt for the next action."""
        ...

    def note_response(self, index: int, response: str) -> bool:
        """Take note of a response to the prompt; return whether it has the form that the prompt asks for."""
        ...


@dataclass(slots=True)
class _Faults:
    invalid_format: int = 0
    inadmissible: int = 0
    nothing_happens: int = 0


def play_episodes(
    setup: EpisodeSetup,
    tasks: Sequence[Task],
    sampler: Sampler,
    *,
    seed: int,
    temperature: float,
    key: Counters,
    prompter: Prompter | None = None,
) -> list[EpisodeRecord]:
    """Play every task once to its end.

    The draw of a step depends on (seed, key, task id, step) only, not on which tasks are played together.

    Args:
        setup: environment, step limit and history length.
        tasks: one episode each.
        sampler: answers the prompts.
        seed: seed of the run.
        temperature: of sampling; 0 means the most probable token.
        key: names this evaluation among the draws of the run.
        prompter: writes the prompts, by default the paper's.

    Returns:
        The finished episodes, in the order of ``tasks``.
    """
    starts = [start_episode(setup, task) for task in tasks]
    keys: list[Counters] = [(*key, task.task_id) for task in tasks]
    return continue_episodes(
        starts, sampler, seed=seed, temperature=temperature, keys=keys, prompter=prompter
    )


def continue_episodes(
    starts: Sequence[Episode],
    sampler: Sampler,
    *,
    seed: int,
    temperature: float,
    keys: Sequence[Counters],
    prompter: Prompter | None = None,
) -> list[EpisodeRecord]:
    """Play every episode from its current state to its end, as :func:`play_episodes`.

    Args:
        starts: initial or later states of episodes.
        sampler, seed, temperature, prompter: as of :func:`play_episodes`.
        keys: the key of each start's draws, which depend on (seed, its key, step) only.
    """
    episodes = list(starts)
    faults = [_Faults() for _ in episodes]
    responses: list[list[str]] = [[] for _ in episodes]

    # One batch per step of all running episodes; those that have ended leave it.
    while active := [index for index, episode in enumerate(episodes) if not episode.done]:
        requests = []
        for index in active:
            episode = episodes[index]
            prompt = prompter.prompt(index, episode) if prompter else episode.prompt
            # The step is part of the key, so a draw does not depend on which episodes are played together.
            requests.append(SampleRequest(prompt, 1, (*keys[index], episode.steps)))
        samples = sampler.sample(tuple(requests), seed=seed, temperature=temperature)

        for index, (sample,) in zip(active, samples, strict=True):
            # The whole response is judged and recorded, whether or not a server has separated the thought.
            response = full_response_text(sample)
            outcome = respond(episodes[index], response)
            episodes[index] = outcome.episode
            responses[index].append(response)

            is_valid = prompter.note_response(index, response) if prompter else outcome.valid
            faults[index].invalid_format += not is_valid
            faults[index].inadmissible += not outcome.admissible
            faults[index].nothing_happens += outcome.nothing_happens

    return [
        EpisodeRecord(
            episode,
            episode.steps,
            faults[index].invalid_format,
            faults[index].inadmissible,
            faults[index].nothing_happens,
            responses=tuple(responses[index]),
        )
        for index, episode in enumerate(episodes)
    ]


def full_response_text(sample: Sample) -> str:
    """Return the response as if the server had not separated the model's thought from its text.

    The thought then counts as the tag that the prompt asks for, and as nothing else: without angle brackets no word of it
    is taken for a tag or an action. A text without an action is left as it is: its end is then played.
    """
    text = sample.text
    lowered = text.lower()
    has_action = "<action>" in lowered and "</action>" in lowered
    has_thought = "<think>" in text and "</think>" in text
    if sample.thought is None or has_thought or not has_action:
        return text
    # Tags within the thought would be parsed as the response's own; their words stay.
    thought = _TAG.sub(lambda tag: tag[0].strip("<>"), sample.thought)
    return f"<think>{thought}</think>{text}"
