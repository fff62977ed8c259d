"""A run of several processes: rank 0 trains, the others do what it calls and nothing else.

Methods, environments, tasks, the state table, metrics and files are on rank 0, as in a run of one process. What every rank
has is the policy, its optimizer and a sampler (``threespo.runs.parts``). A call of one of these on rank 0 goes to all ranks,
by name and with its arguments, and returns when all have done it.
"""

import contextlib
import ctypes
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from threespo.errors import InputError
from threespo.learner import backend
from threespo.runs.parts import RunParts, make_run_parts
from threespo.runs.settings import TrainSettings

T = TypeVar("T")

GRACE = 5.0
"""Seconds that a failing rank waits for the others to say that they have failed first, or likewise."""

_DIE_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG`` of Linux."""


class OnAllRanks:
    """A part of the run as rank 0 sees it: a method that is called here is called on every rank."""

    def __init__(self, name: str, own: Any) -> None:
        """``own`` is this rank's ``Parts.name``."""
        self._name, self._own = name, own

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            backend.broadcast_object((self._name, method, arguments, named))
            return _together(lambda: getattr(self._own, method)(*arguments, **named))

        return call


@contextlib.contextmanager
def parts_on_all_ranks(
    settings: TrainSettings, source: str, critic_rate: float | None
) -> Iterator[RunParts]:
    """Yield the run's parts (``make_parts``); with several ranks, on rank 0, their calls reach all of them.

    The other ranks are let go when the block ends well.
    """
    if backend.get_world_size() == 1:
        yield make_run_parts(settings, source, critic_rate)
        return

    backend.broadcast_object((settings, source, critic_rate))
    own = _together(lambda: make_run_parts(settings, source, critic_rate))
    wrapped: dict[str, Any] = {
        name: OnAllRanks(name, getattr(own, name)) for name in ("sampler", "learner", "critic")
    }
    yield RunParts(**{**wrapped, "critic": wrapped["critic"] if own.critic else None})
    backend.broadcast_object(None)


def serve_calls() -> None:
    """Do what rank 0 calls, until it lets go."""
    asked: Any = None
    settings, source, critic_rate = backend.broadcast_object(asked)
    parts = _together(lambda: make_run_parts(settings, source, critic_rate))
    while call := backend.broadcast_object(asked):
        # Rank 0 has refused likewise, and decides whether to go on.
        with contextlib.suppress(InputError):
            _together(functools.partial(_called, parts, *call))


def _called(
    parts: RunParts, name: str, method: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    return getattr(getattr(parts, name), method)(*arguments, **named)


def _together(work: Callable[[], T]) -> T:
    """Do ``work`` on all ranks; if any refuses, all do.

    Most refusals come on every rank alike. One that comes on a single rank leaves the others waiting inside the work: that
    rank then ends itself, and so the run.
    """
    result, refused = None, None
    try:
        result = work()
    except InputError as error:
        refused = str(error)
    waiting = threading.Timer(GRACE, _end, (refused,))
    waiting.daemon = True
    if refused is not None:
        waiting.start()
    refusals = [refusal for refusal in backend.gather_objects(refused) if refusal is not None]
    waiting.cancel()
    if refusals:
        raise InputError(refusals[0])
    return result  # type: ignore[return-value]


def _end(refused: str) -> None:
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    get_error_handler().record_exception(InputError(refused))
    os._exit(1)


def run_rank(
    work: Callable[[TrainSettings], None] | None, settings: TrainSettings | None, cuda: bool
) -> None:
    """Be one rank of a run: what a launcher starts, with its environment variables set.

    Args:
        work: done on rank 0 with ``settings``; both may be ``None`` where rank 0 cannot be.
        settings: of the run.
        cuda: whether the rank has a GPU.
    """
    # Killed without mercy: what it writes is whole or absent, and nobody would be left to wait for it.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    try:
        backend.join_process_group(cuda)
        if backend.get_rank():
            serve_calls()
        else:
            assert work is not None
            assert settings is not None
            work(settings)
        backend.leave_process_group()
    except InputError:
        raise
    except Exception:
        # A rank whose partner has died fails as well; who died first is to be told.
        time.sleep(GRACE)
        raise
