"""Starting the ranks of a run, on this machine or on several, and telling how they ended.

torch's launcher, torchrun's own (``torch.distributed.launcher``), starts and watches them: when one dies
it ends the others. On further machines the same launcher is started through a remote shell, since
neither torchrun nor the Slurm plugin of the workflow starts processes on the other machines of a job.
The process that launches does no work itself; it holds the run's lock and its GPUs.
"""

import argparse
import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError, StoppedError
from threespo.job_settings import JobSettings
from threespo.runs.settings import TrainSettings

HOSTFILE = "THREESPO_HOSTFILE"
"""Environment variable with a host file: lines ``HOST slots=N``, as DeepSpeed and MPI have them, this machine first."""

REMOTE_SHELL = "THREESPO_REMOTE_SHELL"
"""Environment variable with the command that runs another on a host; ``ssh`` without questions, or within Slurm ``srun``."""

SSH_COMMAND = "ssh -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
SRUN_COMMAND = "srun --overlap --nodes=1 --ntasks=1 --kill-on-bad-exit=1 -w"

HOSTFILE_LINE = re.compile(r"^(?P<host>\w[\w.:-]*)\s+slots=(?P<slots>[1-9]\d{0,3})$")

FORWARDED_PREFIXES = (
    "GLOO_",
    "HF_",
    "NCCL_",
    "OMP_",
    "PYTHONPATH",
    "TORCH_",
    "TRANSFORMERS_",
    "VLLM_",
)
"""How the names of environment variables begin that ranks on other machines get from here."""

LAUNCHER_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What the launcher handles, as long as it runs."""

RENDEZVOUS_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and the number of its ranks."""

    host: str
    slots: int


def list_nodes(ranks: int) -> list[Node]:
    """Return the machines of a run's ranks, this one first: those of a host file or of a Slurm job, or this one alone.

    Raises:
        InputError: if the host file is wrong or has too few slots, or the ranks do not divide among the machines of Slurm.
    """
    hostfile = os.environ.get(HOSTFILE)
    if hostfile:
        return _read_hostfile(Path(hostfile), ranks)

    node_count = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    if node_count == 1:
        return [Node("localhost", ranks)]
    if ranks % node_count:
        raise InputError(
            f"ranks_per_run: found {ranks}, which {node_count} nodes of the Slurm job cannot share evenly."
        )
    command = ["scontrol", "show", "hostnames"]
    hosts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [Node(host, ranks // node_count) for host in hosts]


def _read_hostfile(file: Path, ranks: int) -> list[Node]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{HOSTFILE}={file}: cannot be read ({error}). Give a file of lines 'HOST slots=N'."
        ) from error

    found: list[Node] = []
    left = ranks
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        # Hosts that the run does not need are not even checked.
        if not text or not left:
            continue
        parsed = HOSTFILE_LINE.match(text)
        if parsed is None:
            raise InputError(f"{file}, line {number}: found {text[:80]!r}, expected 'HOST slots=N'.")
        node = Node(parsed["host"], min(left, int(parsed["slots"])))
        found.append(node)
        left -= node.slots
    if left:
        raise InputError(
            f"{file}: {ranks - left} slots, but ranks_per_run is {ranks}. Add hosts, or lower ranks_per_run."
        )
    return found


def gpus_on_first_machine(settings: JobSettings) -> int:
    """Return the GPUs that a job needs on this machine, the first of its machines."""
    if settings.ranks == 1 or not settings.gpus:
        return settings.gpus
    gpus_per_rank = settings.gpus // settings.ranks
    return gpus_per_rank * list_nodes(settings.ranks)[0].slots


def launch_ranks(settings: TrainSettings, work: Callable[[TrainSettings], None]) -> None:
    """Start the run's ranks and wait for their end; rank 0 does ``work``.

    Raises:
        InputError: if a rank has raised it, or the machines are not as the run needs them.
        StoppedError: if a rank has died.
    """
    machines = list_nodes(settings.ranks)
    cuda = settings.gpus > 0
    endpoint = f"{machines[0].host}:{_free_port()}" if len(machines) > 1 else ""
    with _remote_launchers(machines, endpoint, settings.runs_per_gpu if cuda else 0):
        _launch_on_machine(machines, 0, endpoint, (work, settings, cuda))


def _launch_on_machine(
    machines: Sequence[Node], number: int, endpoint: str, arguments: tuple[Any, ...]
) -> None:
    """Run the ranks of machine ``number``, which is this one, to their end; each calls ``run_rank`` with ``arguments``."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from threespo.runs.ranks import run_rank

    # What they log of a failure is in our message.
    for name in logging.root.manager.loggerDict:
        if name.startswith(("torch.distributed.elastic", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    if len(machines) == 1:
        rendezvous: dict[str, Any] = {
            "rdzv_backend": "c10d",
            "rdzv_endpoint": "localhost:0",
            "rdzv_configs": {"timeout": RENDEZVOUS_SECONDS},
            "local_addr": "localhost",
        }
    else:
        # Static: the machine's number is its place among the ranks, so rank 0 is where the run's files
        # are written.
        rendezvous = {
            "rdzv_backend": "static",
            "rdzv_endpoint": endpoint,
            "rdzv_configs": {"rank": number, "timeout": RENDEZVOUS_SECONDS},
            "local_addr": None,
        }
    with tempfile.TemporaryDirectory() as logs, _restored_signal_handlers():
        config = LaunchConfig(
            min_nodes=len(machines),
            max_nodes=len(machines),
            nproc_per_node=machines[number].slots,
            run_id="threespo",
            # A run resumes from its checkpoint when it is started again, not by the launcher.
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            shutdown_timeout=10,
            **rendezvous,
        )
        try:
            elastic_launch(config, run_rank)(*arguments)
        except ChildFailedError as error:
            raise _explain_failure(error) from None
        except SignalException as error:
            raise StoppedError(
                f"ended by signal {error.sigval.name}, and with it all ranks of the run"
            ) from None


def _explain_failure(error: Any) -> Exception:
    """Return what the first failure means for a person."""
    number, failure = error.get_first_failure()
    # An exception's record is a mapping; of a process that was killed there is only the launcher's own
    # text.
    record = failure.error_file_data.get("message", "")
    has_record = isinstance(record, dict)
    reason = record["message"] if has_record else str(failure.message)
    kind, _, message = reason.partition(": ")
    if kind == InputError.__name__:
        return InputError(message)
    if has_record:
        print(record["extraInfo"]["py_callstack"], file=sys.stderr)
    return StoppedError(
        f"rank {number} of the run has ended ({reason}), so all its ranks were ended. Run again: training goes on from its "
        "last checkpoint. A rank that the system kills (SIGKILL) mostly needed more memory than there was."
    )


@contextlib.contextmanager
def _restored_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers after the block: the launcher leaves its own."""
    handlers = {number: signal.getsignal(number) for number in LAUNCHER_SIGNALS}
    try:
        yield
    finally:
        # Python sets handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _remote_launchers(machines: Sequence[Node], endpoint: str, runs_per_gpu: int) -> Iterator[None]:
    """Run the ranks of all machines but the first as long as the block; if those of one fail, end the block.

    Args:
        machines: all of them.
        endpoint: where the ranks meet.
        runs_per_gpu: runs that may share a GPU; 0 for a run on processors.
    """
    launchers: list[subprocess.Popen[bytes]] = []
    failed_hosts: list[str] = []
    block_ended = threading.Event()

    def watch(machine: Node, process: subprocess.Popen[bytes]) -> None:
        if process.wait() and not block_ended.is_set():
            failed_hosts.append(machine.host)
            # To the launcher in the main thread, which ends the ranks of this machine.
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        for number, machine in enumerate(machines[1:], start=1):
            command = _remote_command(machines, number, endpoint, runs_per_gpu)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            launchers.append(process)
            threading.Thread(target=watch, args=(machine, process), daemon=True).start()
        yield
        # Their ranks end with those here; a minute is for the launchers themselves.
        for process in launchers:
            process.wait(60)
    except StoppedError:
        if failed_hosts:
            raise StoppedError(
                f"the ranks on {failed_hosts[0]} have ended, so all were ended (what it said is above)"
            ) from None
        raise
    finally:
        block_ended.set()
        for process in launchers:
            process.terminate()


def _remote_command(
    machines: Sequence[Node], number: int, endpoint: str, runs_per_gpu: int
) -> list[str]:
    """Return the command that starts this module on machine ``number``, in this folder and with this environment."""
    slots = ",".join(f"{machine.host}={machine.slots}" for machine in machines)
    module = [sys.executable, "-m", "threespo.runs.launch"]
    arguments = [slots, str(number), endpoint, str(runs_per_gpu)]
    forwarded = [
        f"{name}={value}" for name, value in os.environ.items() if name.startswith(FORWARDED_PREFIXES)
    ]
    line = shlex.join([*forwarded, *module, *arguments])

    default_shell = SRUN_COMMAND if "SLURM_JOB_ID" in os.environ else SSH_COMMAND
    remote_shell = shlex.split(os.environ.get(REMOTE_SHELL, default_shell))
    folder = shlex.quote(str(Path.cwd()))
    return [*remote_shell, machines[number].host, f"cd {folder} && exec env {line}"]


def _free_port() -> int:
    # The system chooses one; another process could take it before the launcher does, which then says so.
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str]) -> int:
    """Run the ranks of another machine than the first, which calls this through its remote shell."""
    from threespo.runs.gpus import claim_gpus

    parser = argparse.ArgumentParser()
    for name in ("machines", "number", "endpoint", "runs_per_gpu"):
        parser.add_argument(name)
    parsed = parser.parse_args(arguments)

    machines = []
    for item in parsed.machines.split(","):
        host, _, slots = item.partition("=")
        machines.append(Node(host, int(slots)))
    number = int(parsed.number)
    runs_per_gpu = int(parsed.runs_per_gpu)
    cuda = runs_per_gpu > 0
    try:
        with claim_gpus(machines[number].slots if cuda else 0, runs_per_gpu):
            # Work and settings are rank 0's, which is on the first machine.
            _launch_on_machine(machines, number, parsed.endpoint, (None, None, cuda))
    except (InputError, StoppedError) as error:
        print(f"{machines[number].host}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
