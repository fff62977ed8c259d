"""Playing tasks with a prompting agent: up to ``trials`` attempts, with or without a reflection in between."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from threespo.agents.rollout import EpisodeRecord, play_episodes
from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup
from threespo.envs.parsing import parse_response
from threespo.protocol import Counters, Sampler, SampleRequest

AgentName = Literal["direct", "react", "retry", "reflexion"]

_THOUGHT = re.compile("<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Agent:
    """How a model is prompted.

    ``direct`` asks for actions, ``react`` for thoughts and actions; ``reflexion`` is ReAct with several attempts and a
    reflection after each failed one; ``retry`` the same without reflection, its control.
    """

    name: AgentName
    trials: int = 1
    reflection_characters: int = 4000
    """Characters of a failed attempt's steps that the request for a reflection shows, from its end."""
    note_characters: int = 400
    """Characters that are kept of a reflection."""
    thoughts_in_history: bool = False
    """Show earlier thoughts beside the actions that they led to."""


@dataclass(slots=True)
class _Prompter:
    """Remembers the thoughts of each episode."""

    agent: Agent
    fallback_length: int
    notes: list[list[str]]
    thoughts: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thoughts = [[] for _ in self.notes]

    def prompt(self, place: int, episode: Episode) -> str:
        if self.agent.name == "direct":
            return direct_prompt(episode)
        thoughts = self.thoughts[place] if self.agent.thoughts_in_history else None
        return react_prompt(episode, thoughts, self.notes[place])

    def note_response(self, place: int, response: str) -> bool:
        found = _THOUGHT.search(response)
        self.thoughts[place].append(" ".join(found.group(1).split()) if found else "")
        if self.agent.name == "direct":
            return "<action>" in response and "</action>" in response
        return parse_response(response, self.fallback_length).valid


def play_trials(
    setup: EpisodeSetup,
    tasks: Sequence[Task],
    sampler: Sampler,
    agent: Agent,
    *,
    seed: int,
    temperature: float,
    key: Counters,
) -> list[EpisodeRecord]:
    """Play every task until it is won or the agent's trials are used up.

    A first attempt's draws are those of a plain rollout with the same key. So on a local policy ``react``, ``retry`` and
    ``reflexion`` share it, and it is the evaluation of the untrained base.

    Args:
        setup: environment, step limit and history length.
        tasks: what is played.
        sampler: answers the prompts.
        agent: how the model is prompted.
        seed: seed of the run.
        temperature: of sampling; 0 means the most probable token.
        key: names this evaluation among the draws of the run.

    Returns:
        The last attempts in the order of ``tasks``; steps and faults are those of all attempts.
    """
    notes: list[list[str]] = [[] for _ in tasks]
    records: dict[int, EpisodeRecord] = {}
    left = list(range(len(tasks)))

    for trial in range(agent.trials):
        prompter = _Prompter(agent, setup.env.text.fallback_length, [notes[place] for place in left])
        played = play_episodes(
            setup,
            [tasks[place] for place in left],
            sampler,
            seed=seed,
            temperature=temperature,
            key=(*key, "trial", trial) if trial else key,
            prompter=prompter,
        )
        for place, record in zip(left, played, strict=True):
            earlier = records.get(place)
            first = record.episode.won if earlier is None else earlier.first_won
            records[place] = replace(
                record.add_earlier_attempts(earlier), trials=trial + 1, first_won=first
            )

        left = [place for place in left if not records[place].episode.won]
        if left and agent.name == "reflexion" and trial + 1 < agent.trials:
            requests = tuple(
                SampleRequest(
                    reflection_prompt(records[place].episode, notes[place], agent.reflection_characters),
                    1,
                    (*key, "reflection", trial, tasks[place].task_id),
                )
                for place in left
            )
            replies = sampler.sample(requests, seed=seed, temperature=temperature)
            for place, (reply,) in zip(left, replies, strict=True):
                notes[place].append(" ".join(reply.text.split())[: agent.note_characters])

    return [records[place] for place in range(len(tasks))]
