"""Which state each response of a method was drawn in: a row has its prompt and its tokens, but not the state.

Two wrappers see it from outside, so that methods and learners know nothing of who looks. The environment of a task hands out
prompts that know the history they were written for; the sampler sees these prompts, and remembers each response by the
identity of its tokens, which the row of the response has as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from threespo.envs.base import Environment, Task, Transition
from threespo.envs.episode import Episode, EpisodeSetup, Outcome, respond, start_episode, take_action
from threespo.protocol import Row, Sample, Sampler, SampleRequest

History = tuple[tuple[str, str], ...]
"""(observation, action) of each step so far."""


class StatePrompt(str):
    """A prompt that knows its task and the whole history, of which it shows a part."""

    task: Task
    history: History


class ObservedEnvironment:
    """The environment as one task sees it; only its prompts differ, and only for who asks them for their state."""

    def __init__(self, env: Environment[Any, Any], task: Task) -> None:
        self.name = env.name
        self.text = replace(env.text, prompt=self._write_prompt)
        self._env = env
        self._task = task

    def initial(self, task: Task) -> Any:
        return self._env.initial(task)

    def step(self, state: Any, action: str) -> Transition[Any]:
        return self._env.step(state, action)

    def admissible(self, state: Any) -> tuple[str, ...]:
        return self._env.admissible(state)

    def won(self, state: Any) -> bool:
        return self._env.won(state)

    def _write_prompt(
        self,
        goal: str,
        observation: str,
        admissible: Sequence[str],
        history: Sequence[tuple[str, str]],
        history_length: int,
        *,
        lines: Sequence[str] | None = None,
        instruction: str | None = None,
        preface: str = "",
    ) -> str:
        written = self._env.text.prompt(
            goal,
            observation,
            admissible,
            history,
            history_length,
            lines=lines,
            instruction=instruction,
            preface=preface,
        )
        prompt = StatePrompt(written)
        prompt.task = self._task
        prompt.history = tuple(history)
        return prompt


def start_observed_episode(setup: EpisodeSetup, task: Task) -> Episode:
    """Return the start of an episode of ``task`` whose prompts know their states."""
    return start_episode(replace(setup, env=ObservedEnvironment(setup.env, task)), task)


class Draw(NamedTuple):
    """A response and what it was drawn for."""

    request: SampleRequest
    sample: Sample
    """Kept, so that no other response's tokens get the same identity."""
    epoch: int


class Step(NamedTuple):
    """A response in its episode."""

    before: Episode
    outcome: Outcome


@dataclass(slots=True)
class ObservingSampler:
    """A sampler that remembers every response."""

    sampler: Sampler
    epoch: int = 0
    """The epoch that is played."""
    requests: int = 0
    """Requests so far: each state that a search expands is one."""
    _draws: dict[int, Draw] = field(default_factory=dict)
    """By identity of the response's tokens."""

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return the sampler's samples (``protocol.Sampler``), and remember what they were drawn for."""
        # As plain text: where a prompt comes from is no matter of a sampler.
        plain = tuple(replace(request, prompt=str(request.prompt)) for request in requests)
        replies = self.sampler.sample(plain, seed=seed, temperature=temperature)
        self.requests += len(requests)
        for request, samples in zip(requests, replies, strict=True):
            for sample in samples:
                self._draws[id(sample.tokens)] = Draw(request, sample, self.epoch)
        return replies

    def find(self, row: Row) -> Draw:
        """Return what the response of a row was drawn for."""
        draw = self._draws[id(row.tokens)]
        assert draw.sample.tokens is row.tokens, "a row has the tokens of its sample"
        return draw


def task_of(draw: Draw) -> Task:
    """Return the task that a response was drawn in."""
    return _state_prompt(draw).task


def find_step(setup: EpisodeSetup, draw: Draw) -> Step:
    """Return the state that a response was drawn in and what it led to, by taking the actions of the history again."""
    prompt = _state_prompt(draw)
    episode = start_episode(setup, prompt.task)
    for _, action in prompt.history:
        episode = take_action(episode, action)
    return Step(episode, respond(episode, draw.sample.text))


def _state_prompt(draw: Draw) -> StatePrompt:
    prompt = draw.request.prompt
    assert isinstance(prompt, StatePrompt), "observed episodes begin with start_observed_episode"
    return prompt
