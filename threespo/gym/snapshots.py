"""Points of episodes as bytes: to be kept, sent to other processes, and gone on from. JSON inside; nothing is executed.

A line ``threespo-snapshot FORMAT CHECKSUM``, then the values. What an environment computes anew (ALFWorld's commands) is
left out.
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
    """A point of an environment's life; a value, so that going back to it is using it."""

    episode: Episode | None
    """``None`` before the first reset."""
    seed: int
    """Of the stream of tasks."""
    played: int
    """How many tasks of the stream have begun."""


def to_bytes(snapshot: Snapshot, tasks: Tasks) -> bytes:
    """Return a snapshot as bytes.

    Args:
        snapshot: of an environment that plays ``tasks``.
        tasks: they are named, not stored; a task's content is stored as a hash.
    """
    values: dict[str, Any] = {
        "made": _describe_tasks(tasks),
        "seed": snapshot.seed,
        "played": snapshot.played,
        "task": None,
    }
    if (episode := snapshot.episode) is not None:
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
        tasks: what the environment that goes on plays.

    Raises:
        InputError: if the bytes are no snapshot, damaged, of another version, of other tasks or of other data.
    """
    head, _, body = bytes(data).partition(b"\n")
    words = head.decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != _NAME:
        raise InputError(f"not a snapshot: it begins with {head[:40]!r}; expected what dump() returned")
    if words[1] != str(FORMAT):
        raise InputError(f"snapshot of version {words[1]}, expected {FORMAT}; {_REMEDY}")
    if words[2] != _checksum(body):
        raise InputError(f"snapshot is damaged or cut off ({len(body)} bytes); {_REMEDY}")

    values = json.loads(body)
    if values["made"] != (mine := _describe_tasks(tasks)):
        raise InputError(f"snapshot of {values['made']}, but this environment is {mine}; {_REMEDY}")
    if values["task"] is None:
        return Snapshot(None, values["seed"], values["played"])
    task = tasks.task(values["task"])
    if values["content"] != (found := tasks.content(task.task_id)):
        raise InputError(
            f"snapshot of task {task.task_id!r} with the content {values['content']}, here {found}; {_REMEDY}"
        )

    history = tuple((seen, action) for seen, action in values["history"])
    state = _load_state(task, values["state"])
    episode = Episode(tasks.setup, task, state, history, values["won"], values["score"], values["ended"])
    return Snapshot(episode, values["seed"], values["played"])


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _describe_tasks(tasks: Tasks) -> dict[str, Any]:
    """Return what two environments must have in common for one to go on where the other was."""
    made = {"environment": tasks.name, "split": tasks.split, "max_steps": tasks.setup.max_steps}
    env = tasks.setup.env
    if isinstance(env, WebShop):
        made |= {"mode": env.mode, "fidelity": env.fidelity, "catalogue": env.catalogue.facts["sha256"]}
        if env.mode == "url":
            made["session"] = env.session
    return made


def _dump_state(state: Any) -> Any:
    if isinstance(state, GameState):
        return {"facts": state.world, "observation": state.observation, "won": state._won}
    if isinstance(state, ShopState):
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        return {**values, "goal": None, "visited": sorted(state.visited)}
    raise InputError(f"states of {type(state).__name__} cannot be written as bytes")


def _load_state(task: Any, values: dict[str, Any]) -> Any:
    if isinstance(task, Game):
        facts = WorldState._make(
            tuple(value) if isinstance(value, list) else value for value in values["facts"]
        )
        return GameState(task, facts, values["observation"], values["won"])
    assert isinstance(task, ShopGoal)
    chosen = tuple((name, value) for name, value in values["chosen"])
    return ShopState(
        **{**values, "goal": task, "chosen": chosen, "visited": frozenset(values["visited"])}
    )
