"""A toy environment for tests: states are strings, actions are edges, and nothing is learned from text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Transition
from threespo.envs.episode import Episode, EpisodeSetup, start_episode
from threespo.methods.base import CommonSettings
from threespo.protocol import Row, Sample, UpdateRequest, UpdateStats


@dataclass(frozen=True)
class ToyTask:
    """A graph: node -> action -> node. ``goal_nodes`` are won."""

    task_id: str
    root: str
    edges: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    goal_nodes: frozenset[str]
    task_type: str = "toy"
    goal: str = "reach the goal."


@dataclass(frozen=True)
class ToyState:
    task: ToyTask
    node: str

    @property
    def observation(self) -> str:
        return self.node


class ToyEnv:
    """Deterministic; unknown actions change nothing."""

    name = "alfworld"
    text = TEXT

    def initial(self, task: ToyTask) -> ToyState:
        return ToyState(task, task.root)

    def step(self, state: ToyState, action: str) -> Transition:
        target = dict(dict(state.task.edges).get(state.node, ())).get(action)
        after = ToyState(state.task, target) if target else state
        observation = target or "Nothing happens."
        return Transition(after, observation, int(self.won(after)), self.won(after))

    def admissible(self, state: ToyState) -> tuple[str, ...]:
        return tuple(action for action, _ in dict(state.task.edges).get(state.node, ()))

    def won(self, state: ToyState) -> bool:
        return state.node in state.task.goal_nodes


def make_task(
    graph: Mapping[str, Mapping[str, str]], goals: set[str], root: str, name: str = "toy"
) -> ToyTask:
    edges = tuple((node, tuple(sorted(actions.items()))) for node, actions in sorted(graph.items()))
    return ToyTask(name, root, edges, frozenset(goals))


def start(task: ToyTask, max_steps: int = 10) -> Episode:
    return start_episode(EpisodeSetup(ToyEnv(), max_steps, 2), task)


def answer(action: str, tokens: int = 3) -> Sample:
    return Sample(
        tuple(range(tokens)), (-1.0,) * tokens, f"<think>x</think><action>{action}</action>", True, 0
    )


def common(seed: int = 0, group_size: int = 8, **over: Any) -> CommonSettings:
    values = {
        "clip": 0.2,
        "kl_coef": 0.01,
        "invalid_penalty": 0.1,
        "inadmissible_penalty": 0.0,
        "success_reward": 10.0,
        "minibatch": 256,
        "statistics": "trajectories",
    } | over
    return CommonSettings(seed=seed, group_size=group_size, **values)


STATS = UpdateStats(*(0.0,) * 7, 1.0, 0.0, 0, 0.0, 0, 1)


def drive(steps, choose):
    """Drive a method's generator: ``choose(request) -> list of Sample``. Returns (result, batches of rows, requests)."""
    updates: list[tuple[Row, ...]] = []
    batches = []
    reply = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as stop:
            return stop.value, updates, batches
        if isinstance(request, UpdateRequest):
            updates.extend(request.batches)
            reply = [STATS] * len(request.batches)
        else:
            batches.append(request)
            reply = [choose(one) for one in request]
