"""Starting the ranks of a run, on this machine or on several, and telling how they ended.

torch's launcher starts and watches them: when one dies it ends the others. On further machines the same launcher is started
through a remote shell. The process that launches does no work itself; it holds the run's lock and its GPUs.
"""

import argparse
import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from threespo.errors import InputError, StoppedError
from threespo.job_settings import JobSettings
from threespo.runs.nodes import remote_shell
from threespo.runs.settings import TrainSettings

FORWARDED = ("GLOO_", "HF_", "NCCL_", "OMP_", "PYTHONPATH", "TORCH_", "TRANSFORMERS_", "VLLM_")
"""How the names of environment variables begin that ranks on other machines get from here."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What the launcher handles, as long as it runs."""


def gpus_on_first_machine(settings: JobSettings) -> int:
    """Return the GPUs that a job needs on this machine, the first of its machines."""
    if settings.ranks == 1 or not settings.gpus:
        return settings.gpus
    return settings.gpus // settings.ranks * list_nodes(settings.ranks)[0].slots


def launch_ranks(settings: TrainSettings, work: Callable[[TrainSettings], None]) -> None:
    """Start the run's ranks and wait for their end; rank 0 does ``work``.

    Raises:
        InputError: if a rank has raised it, or the machines are not as the run needs them.
        StoppedError: if a rank has died.
    """
    machines, cuda = list_nodes(settings.ranks), settings.gpus > 0
    endpoint = f"{machines[0].host}:{_free_port()}" if len(machines) > 1 else ""
    with _elsewhere(machines, endpoint, settings.runs_per_gpu if cuda else 0):
        _run_ranks(machines, 0, endpoint, (work, settings, cuda))


def _run_ranks(machines: Sequence[Node], number: int, endpoint: str, arguments: tuple[Any, ...]) -> None:
    """Run the ranks of machine ``number``, which is this one, to their end."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from threespo.runs.ranks import run_rank

    # What they log of a failure is in our message.
    for name in logging.root.manager.loggerDict:
        if name.startswith(("torch.distributed.elastic", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    alone = len(machines) == 1
    with tempfile.TemporaryDirectory() as logs, _signals_kept():
        config = LaunchConfig(
            min_nodes=len(machines),
            max_nodes=len(machines),
            nproc_per_node=machines[number].slots,
            run_id="threespo",
            rdzv_backend="c10d" if alone else "static",
            rdzv_endpoint="localhost:0" if alone else endpoint,
            rdzv_configs={"timeout": 300} if alone else {"rank": number, "timeout": 300},
            local_addr="localhost" if alone else None,
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            shutdown_timeout=10,
        )
        try:
            elastic_launch(config, run_rank)(*arguments)
        except ChildFailedError as error:
            raise _told(error) from None
        except SignalException as error:
            raise StoppedError(
                f"ended by signal {error.sigval.name}, and with it all ranks of the run"
            ) from None


def _told(error: Any) -> Exception:
    """Return what the first failure means for a person."""
    number, failure = error.get_first_failure()
    data = failure.error_file_data.get("message", "")
    said = data["message"] if isinstance(data, dict) else str(failure.message)
    kind, _, message = said.partition(": ")
    if kind == InputError.__name__:
        return InputError(message)
    if isinstance(data, dict):
        print(data["extraInfo"]["py_callstack"], file=sys.stderr)
    return StoppedError(
        f"rank {number} of the run has ended ({said}), so all its ranks were ended. Run again: training goes on from its "
        "last checkpoint. A rank that the system kills (SIGKILL) mostly needed more memory than there was."
    )


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Put the handlers of signals back after the block: the launcher leaves its own."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _elsewhere(machines: Sequence[Node], endpoint: str, runs_per_gpu: int) -> Iterator[None]:
    """Run the ranks of all machines but the first as long as the block; if those of one fail, end the block.

    Args:
        machines: all of them.
        endpoint: where the ranks meet.
        runs_per_gpu: runs that may share a GPU; 0 for a run on processors.
    """
    started: list[subprocess.Popen[bytes]] = []
    done, failed = threading.Event(), list[str]()

    def watch(machine: Node, process: subprocess.Popen[bytes]) -> None:
        if process.wait() and not done.is_set():
            failed.append(machine.host)
            # To the launcher in the main thread, which ends the ranks of this machine.
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        for number, machine in enumerate(machines[1:], start=1):
            slots = ",".join(f"{one.host}={one.slots}" for one in machines)
            command = [
                sys.executable,
                "-m",
                "threespo.runs.launch",
                slots,
                str(number),
                endpoint,
                str(runs_per_gpu),
            ]
            given = [
                f"{name}={value}" for name, value in os.environ.items() if name.startswith(FORWARDED)
            ]
            line = f"cd {shlex.quote(str(Path.cwd()))} && exec env {shlex.join([*given, *command])}"
            process = subprocess.Popen([*remote_shell(), machine.host, line], stdin=subprocess.DEVNULL)
            started.append(process)
            threading.Thread(target=watch, args=(machine, process), daemon=True).start()
        yield
        for process in started:
            process.wait(60)
    except StoppedError:
        if failed:
            raise StoppedError(
                f"the ranks on {failed[0]} have ended, so all were ended (what it said is above)"
            ) from None
        raise
    finally:
        done.set()
        for process in started:
            process.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _serve(arguments: Sequence[str]) -> int:
    """Run the ranks of another machine than the first (``_elsewhere`` calls this)."""
    from threespo.runs.gpus import claim_gpus

    parser = argparse.ArgumentParser()
    for name in ("machines", "number", "endpoint", "runs_per_gpu"):
        parser.add_argument(name)
    given = parser.parse_args(arguments)
    machines = [
        Node(host, int(slots))
        for host, _, slots in (one.partition("=") for one in given.machines.split(","))
    ]
    number, sharing = int(given.number), int(given.runs_per_gpu)
    try:
        with claim_gpus(machines[number].slots if sharing else 0, sharing):
            _run_ranks(machines, number, given.endpoint, (None, None, sharing > 0))
    except (InputError, StoppedError) as error:
        print(f"{machines[number].host}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1:]))
