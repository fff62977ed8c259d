"""States of episodes as bytes, to save them or continue them in other processes.

The format is a line ``threespo-snapshot FORMAT CHECKSUM``, then JSON: loading executes nothing. What an environment can
compute from the state (ALFWorld's commands) is not stored.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from threespo.envs.alfworld import Game, GameState
from threespo.envs.alfworld.model import WorldState
from threespo.envs.episode import Episode
from threespo.envs.webshop import ShopGoal, ShopState, WebShop
from threespo.errors import InputError
from threespo.gym.tasks import Tasks

FORMAT = 1
_NAME = "threespo-snapshot"
_REMEDY = "take it again with this version, on the same data"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of an environment, as an immutable value."""

    episode: Episode | None
    """``None`` before the first reset."""
    seed: int
    """Seed of the stream of tasks."""
    played: int
    """Tasks of the stream that have begun."""


def to_bytes(snapshot: Snapshot, tasks: Tasks) -> bytes:
    """Return a snapshot as bytes.

    Args:
        snapshot: state of an environment that plays ``tasks``.
        tasks: identified by name; of the task's content only a hash is stored.
    """
    values: dict[str, Any] = {
        "made": _describe_tasks(tasks),
        "seed": snapshot.seed,
        "played": snapshot.played,
        "task": None,
    }
    episode = snapshot.episode
    if episode is not None:
        values |= {
            "task": episode.task.task_id,
            "content": tasks.content(episode.task.task_id),
            "state": _dump_state(episode.state),
            "history": episode.history,
            "won": episode.won,
            "score": episode.score,
            "ended": episode.ended,
        }
    body = json.dumps(values, separators=(",", ":")).encode()
    return f"{_NAME} {FORMAT} {_checksum(body)}\n".encode() + body


def from_bytes(data: bytes, tasks: Tasks) -> Snapshot:
    """Return the snapshot that :func:`to_bytes` wrote.

    Args:
        data: the bytes.
        tasks: tasks of the environment that will continue.

    Raises:
        InputError: if the bytes are no snapshot, damaged, of another version, of other tasks or of other data.
    """
    # Each check has a message of its own, from the most general fault to the most special one.
    header, _, body = bytes(data).partition(b"\n")
    words = header.decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != _NAME:
        raise InputError(
            f"not a snapshot: it begins with {header[:40]!r}; expected what dump() returned"
        )
    if words[1] != str(FORMAT):
        raise InputError(f"snapshot of version {words[1]}, expected {FORMAT}; {_REMEDY}")
    if words[2] != _checksum(body):
        raise InputError(f"snapshot is damaged or cut off ({len(body)} bytes); {_REMEDY}")

    values = json.loads(body)
    expected = _describe_tasks(tasks)
    if values["made"] != expected:
        raise InputError(f"snapshot of {values['made']}, but this environment is {expected}; {_REMEDY}")
    if values["task"] is None:
        return Snapshot(None, values["seed"], values["played"])
    task = tasks.task(values["task"])
    # Two catalogues or folders may have a task of the same id: the same state would then continue another task.
    content = tasks.content(task.task_id)
    if values["content"] != content:
        raise InputError(
            f"snapshot of task {task.task_id!r} with the content {values['content']}, here {content}; {_REMEDY}"
        )

    history = tuple((observation, action) for observation, action in values["history"])
    state = _load_state(task, values["state"])
    episode = Episode(tasks.setup, task, state, history, values["won"], values["score"], values["ended"])
    return Snapshot(episode, values["seed"], values["played"])


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _describe_tasks(tasks: Tasks) -> dict[str, Any]:
    """Return what must be equal in two environments for one to continue an episode of the other."""
    description = {"environment": tasks.name, "split": tasks.split, "max_steps": tasks.setup.max_steps}
    env = tasks.setup.env
    if isinstance(env, WebShop):
        description |= {
            "mode": env.mode,
            "fidelity": env.fidelity,
            "catalogue": env.catalogue.facts["sha256"],
        }
        # Only in this mode does the session's name appear in the pages.
        if env.mode == "url":
            description["session"] = env.session
    return description


def _dump_state(state: Any) -> Any:
    if isinstance(state, GameState):
        return {"facts": state.world, "observation": state.observation, "won": state._won}
    if isinstance(state, ShopState):
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        # The goal is the task itself, and JSON has no sets; sorted, so that equal states give equal bytes.
        return {**values, "goal": None, "visited": sorted(state.visited)}
    raise InputError(f"states of {type(state).__name__} cannot be written as bytes")


def _load_state(task: Any, values: dict[str, Any]) -> Any:
    if isinstance(task, Game):
        # JSON has made lists of tuples; states are hashed, so they need tuples again.
        facts = WorldState._make(
            tuple(value) if isinstance(value, list) else value for value in values["facts"]
        )
        return GameState(task, facts, values["observation"], values["won"])
    assert isinstance(task, ShopGoal)
    restored = {
        **values,
        "goal": task,
        "chosen": tuple((name, value) for name, value in values["chosen"]),
        "visited": frozenset(values["visited"]),
    }
    return ShopState(**restored)
