"""Plays tasks with a prompting agent: its prompts, and up to ``trials`` attempts with or without reflection.

The paper gives no prompts for its prompting rows. Its template asks for reasoning and then an action, so *ReAct* is the
template as it is; earlier thoughts can be kept in the history. *direct* asks for the action alone; *Reflexion* also shows
what the model noted after its earlier attempts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from threespo.agents.rollout import EpisodeRecord, play_episodes
from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup
from threespo.envs.parsing import parse_response
from threespo.protocol import Counters, Sampler, SampleRequest

AgentName = Literal["direct", "react", "retry", "reflexion"]

_THOUGHT = re.compile("<think>(.*?)</think>", re.DOTALL)

_DIRECT_INSTRUCTION = (
    "Now it's your turn to take an action.\n"
    "Choose one admissible action for the current step and present it within <action> </action> tags. "
    "Answer with nothing else.\n"
)

_NOTES_PREFACE = (
    "You have tried this task before and did not complete it. After each attempt you noted:\n{notes}\n\n"
)

_REFLECTION_PROMPT = (
    "\nYou are {agent}. Your task was to: {goal}\n"
    "You did not complete it in {steps} step(s). These are the last observations and the actions you took:\n"
    "{history}\n"
    "{notes}"
    "In a few sentences, say what went wrong and what you will do differently in your next attempt.\n"
)


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
    """Show earlier thoughts next to the actions that they led to."""


def direct_prompt(episode: Episode) -> str:
    """Return the prompt that asks for an action without reasoning."""
    return episode.ask(instruction=_DIRECT_INSTRUCTION)


def react_prompt(
    episode: Episode, thoughts: Sequence[str] | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the prompt that asks for a thought and an action.

    Args:
        episode: the agent's current state.
        thoughts: the thought before each action so far, to be shown in the history; ``None`` leaves them out.
        notes: what the model noted after its earlier attempts, oldest first.
    """
    history = None if thoughts is None else _format_history(episode, thoughts)
    return episode.ask(lines=history, preface=_format_notes(notes))


def reflection_prompt(episode: Episode, notes: Sequence[str], max_characters: int) -> str:
    """Return the prompt that asks what went wrong in a failed attempt.

    Args:
        episode: the failed attempt, at its end.
        notes: what the model noted after its earlier attempts, oldest first.
        max_characters: length of the shown history: the last steps that fit into it, but at least one.
    """
    # From the end: what led to the failure is in the last steps, and the whole history may exceed the context.
    lines = _format_history(episode)
    while len(lines) > 1 and sum(len(line) for line in lines) > max_characters:
        lines = lines[1:]
    return _REFLECTION_PROMPT.format(
        agent=episode.setup.env.text.persona,
        goal=episode.task.goal,
        steps=episode.steps,
        history="\n".join(lines),
        notes=_format_notes(notes),
    )


def _format_history(episode: Episode, thoughts: Sequence[str] | None = None) -> list[str]:
    """Return the template's line for each step, with its thought if there are any."""
    lines = []
    for index, (observation, action) in enumerate(episode.history):
        number = index + 1
        thought = f"Thought {number}: '{thoughts[index]}', " if thoughts else ""
        lines.append(f"[Observation {number}: '{observation}', {thought}Action {number}: '{action}']")
    return lines


def _format_notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    lines = [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return _NOTES_PREFACE.format(notes="\n".join(lines))


class _AgentPrompter:
    """Writes an agent's prompts (``rollout.Prompter``) and remembers the thoughts of each episode."""

    def __init__(self, agent: Agent, fallback_length: int, notes: list[list[str]]) -> None:
        self._agent = agent
        self._fallback_length = fallback_length
        self._notes = notes
        self._thoughts: list[list[str]] = [[] for _ in notes]

    def prompt(self, index: int, episode: Episode) -> str:
        if self._agent.name == "direct":
            return direct_prompt(episode)
        thoughts = self._thoughts[index] if self._agent.thoughts_in_history else None
        return react_prompt(episode, thoughts, self._notes[index])

    def note_response(self, index: int, response: str) -> bool:
        # A response without a thought adds an empty one, so that thoughts and actions stay aligned.
        match = _THOUGHT.search(response)
        self._thoughts[index].append(_join_lines(match.group(1)) if match else "")
        # The direct prompt asks for no thought, without which ``parse_response`` calls a response invalid.
        if self._agent.name == "direct":
            return "<action>" in response and "</action>" in response
        return parse_response(response, self._fallback_length).valid


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
        tasks: one or more attempts each.
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
    unsolved = list(range(len(tasks)))

    for trial in range(agent.trials):
        unsolved_notes = [notes[index] for index in unsolved]
        played = play_episodes(
            setup,
            [tasks[index] for index in unsolved],
            sampler,
            seed=seed,
            temperature=temperature,
            # Without a number in the first trial, so that its draws are those of a plain rollout.
            key=(*key, "trial", trial) if trial else key,
            prompter=_AgentPrompter(agent, setup.env.text.fallback_length, unsolved_notes),
        )
        # Success is that of any attempt; ``first_won`` keeps what one attempt alone would give.
        for index, attempt in zip(unsolved, played, strict=True):
            if trial == 0:
                records[index] = replace(attempt, first_won=attempt.episode.won)
                continue
            earlier = records[index]
            records[index] = replace(
                attempt.add_earlier_attempts(earlier), trials=trial + 1, first_won=earlier.first_won
            )

        # Reflections are asked for in one batch, after the attempts of all tasks.
        unsolved = [index for index in unsolved if not records[index].episode.won]
        if unsolved and agent.name == "reflexion" and trial + 1 < agent.trials:
            requests = []
            for index in unsolved:
                episode = records[index].episode
                prompt = reflection_prompt(episode, notes[index], agent.reflection_characters)
                reflection_key = (*key, "reflection", trial, tasks[index].task_id)
                requests.append(SampleRequest(prompt, 1, reflection_key))
            replies = sampler.sample(tuple(requests), seed=seed, temperature=temperature)
            for index, (reply,) in zip(unsolved, replies, strict=True):
                notes[index].append(_join_lines(reply.text)[: agent.note_characters])

    return [records[index] for index in range(len(tasks))]


def _join_lines(text: str) -> str:
    """Return a text in one line, every run of white space as one blank."""
    return " ".join(text.split())
