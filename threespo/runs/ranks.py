"""A run of several processes: rank 0 trains, the others do what it calls and nothing else.

Methods, environments, tasks, the state table, metrics and files are on rank 0, as in a run of one
process. Every rank has a policy, its optimizer and a sampler (``threespo.runs.parts``). A call of one of
these on rank 0 goes to all ranks, by name and with its arguments, and returns when all have done it.
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

GRACE_SECONDS = 5.0
"""How long a failing rank waits for the others to say that they have failed first, or likewise."""

PR_SET_PDEATHSIG = 1
"""Of Linux's ``prctl``: the signal that a process gets when its parent dies."""


class OnAllRanks:
    """A part of the run as rank 0 sees it: a method that is called here is called on every rank."""

    def __init__(self, name: str, own: Any) -> None:
        """``own`` is this rank's ``RunParts.name``."""
        self._name = name
        self._own = own

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            backend.broadcast_object((self._name, method, arguments, keywords))
            return _do_on_all_ranks(lambda: getattr(self._own, method)(*arguments, **keywords))

        return call


@contextlib.contextmanager
def parts_on_all_ranks(
    settings: TrainSettings, source: str, critic_rate: float | None
) -> Iterator[RunParts]:
    """Yield the run's parts (``make_run_parts``); with several ranks, on rank 0, their calls reach all of them.

    The other ranks end when the block ends without an error.
    """
    if backend.get_world_size() == 1:
        yield make_run_parts(settings, source, critic_rate)
        return

    backend.broadcast_object((settings, source, critic_rate))
    own = _do_on_all_ranks(lambda: make_run_parts(settings, source, critic_rate))
    # The proxies have the methods of what they stand for.
    sampler: Any = OnAllRanks("sampler", own.sampler)
    learner: Any = OnAllRanks("learner", own.learner)
    critic: Any = OnAllRanks("critic", own.critic) if own.critic else None
    yield RunParts(sampler, learner, critic)
    # No more calls.
    backend.broadcast_object(None)


def serve_calls() -> None:
    """Do what rank 0 calls, until it has no more calls."""
    # Replaced by what rank 0 broadcasts.
    placeholder: Any = None
    settings, source, critic_rate = backend.broadcast_object(placeholder)
    parts = _do_on_all_ranks(lambda: make_run_parts(settings, source, critic_rate))
    while call := backend.broadcast_object(placeholder):
        name, method, arguments, keywords = call
        function = functools.partial(getattr(getattr(parts, name), method), *arguments, **keywords)
        # Rank 0 has refused likewise, and decides whether to go on.
        with contextlib.suppress(InputError):
            _do_on_all_ranks(function)


def _do_on_all_ranks(work: Callable[[], T]) -> T:
    """Do ``work`` on all ranks; if any refuses, all do.

    Most refusals come on every rank alike. One that comes on a single rank leaves the others waiting
    inside the work: that rank then ends itself, and so the run.
    """
    result: T | None = None
    refusal: str | None = None
    try:
        result = work()
    except InputError as error:
        refusal = str(error)

    deadline = threading.Timer(GRACE_SECONDS, _end_process, (refusal,))
    deadline.daemon = True
    if refusal is not None:
        deadline.start()
    refusals = backend.gather_objects(refusal)
    deadline.cancel()
    for rank_refusal in refusals:
        if rank_refusal is not None:
            raise InputError(rank_refusal)
    return result  # type: ignore[return-value]


def _end_process(refusal: str) -> None:
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    get_error_handler().record_exception(InputError(refusal))
    os._exit(1)


def run_rank(
    work: Callable[[TrainSettings], None] | None, settings: TrainSettings | None, cuda: bool
) -> None:
    """Be one rank of a run: what a launcher starts, with its environment variables set.

    Args:
        work: done on rank 0 with ``settings``; both may be ``None`` on a machine that rank 0 is not on.
        settings: of the run.
        cuda: whether the rank has a GPU.
    """
    # Killed at once if the launcher dies: what a rank writes is whole or absent, and nothing would wait
    # for it any more.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
        # A rank whose partner has died fails as well; the launcher reports the first to die.
        time.sleep(GRACE_SECONDS)
        raise
