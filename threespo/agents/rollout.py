"""Playing whole episodes with a policy, many at a time in lock-step."""

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
    """One finished episode, with what went wrong on the way."""

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
    """What the policy said, step by step, from the start of the record on; of several attempts the last one's."""

    @property
    def score(self) -> float:
        """The best score of all attempts, as success is that of any."""
        return max(self.episode.score, self.earlier_score)

    def add_earlier_attempts(self, earlier: "EpisodeRecord | None") -> "EpisodeRecord":
        """Return the record with the steps, faults and score of an earlier attempt added."""
        if earlier is None:
            return self
        sums = {
            name: getattr(self, name) + getattr(earlier, name)
            for name in ("steps", "invalid_format", "inadmissible", "nothing_happens")
        }
        return replace(self, **sums, earlier_score=earlier.score)


class Prompter(Protocol):
    """Decides what a policy is asked; ``place`` is the episode's place among those that are played together."""

    def prompt(self, place: int, episode: Episode) -> str:
        """Return the prompt for the next action."""
        ...

    def note_response(self, place: int, response: str) -> bool:
        """Take note of a response to the prompt.

        Args:
            place: the episode's place.
            response: its text.

        Returns:
            Whether it has the form that was asked for, apart from its reasoning.
        """
        ...


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
        tasks: what is played.
        sampler: answers the prompts.
        seed: seed of the run.
        temperature: of sampling; 0 means the most probable token.
        key: names this evaluation among the draws of the run.
        prompter: writes the prompts, by default the paper's.

    Returns:
        The finished episodes, in the order of ``tasks``.
    """
    starts = [start_episode(setup, task) for task in tasks]
    names: list[Counters] = [(*key, task.task_id) for task in tasks]
    return continue_episodes(
        starts, sampler, seed=seed, temperature=temperature, keys=names, prompter=prompter
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
    """Play on from every start to its end; a draw depends on (seed, its key, step) only.

    Args:
        starts: first points; they may lie within an episode.
        sampler: answers the prompts.
        seed: seed of the run.
        temperature: of sampling; 0 means the most probable token.
        keys: the key of each start's draws.
        prompter: writes the prompts, by default the paper's.

    Returns:
        The finished episodes, in the order of ``starts``.
    """
    episodes = list(starts)
    faults = [[0, 0, 0] for _ in episodes]
    said: list[list[str]] = [[] for _ in episodes]

    while active := [index for index, episode in enumerate(episodes) if not episode.done]:
        # One batch per step of all running episodes; those that have ended leave it.
        requests = tuple(
            SampleRequest(
                prompter.prompt(i, episodes[i]) if prompter else episodes[i].prompt,
                1,
                (*keys[i], episodes[i].steps),
            )
            for i in active
        )
        for index, (sample,) in zip(
            active, sampler.sample(requests, seed=seed, temperature=temperature), strict=True
        ):
            response = full_response_text(sample)
            outcome = respond(episodes[index], response)
            episodes[index] = outcome.episode
            said[index].append(response)
            faults[index][0] += not (
                prompter.note_response(index, response) if prompter else outcome.valid
            )
            faults[index][1] += not outcome.admissible
            faults[index][2] += outcome.nothing_happens

    return [
        EpisodeRecord(episode, episode.steps, invalid, inadmissible, nothing, responses=tuple(responses))
        for episode, (invalid, inadmissible, nothing), responses in zip(
            episodes, faults, said, strict=True
        )
    ]


def full_response_text(sample: Sample) -> str:
    """Return the response as it would stand if no server had split the model's thought off.

    So the thought counts as the tag that the prompt asks for, and no more: without its angle brackets, no word of it is
    taken for a tag or an action. A text without an action stays alone: what is played is then its end.
    """
    text = sample.text
    lowered = text.lower()
    acts = "<action>" in lowered and "</action>" in lowered
    thinks = "<think>" in text and "</think>" in text
    if sample.thought is None or thinks or not acts:
        return text
    return f"<think>{_TAG.sub(lambda tag: tag[0].strip('<>'), sample.thought)}</think>{text}"
