"""On which machines the ranks of a run are: this one, those of a host file, or those of a Slurm job."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from threespo.errors import InputError

HOSTFILE = "THREESPO_HOSTFILE"
"""Environment variable with a host file: lines ``HOST slots=N``, as DeepSpeed and MPI have them, this machine first."""

REMOTE_SHELL = "THREESPO_REMOTE_SHELL"
"""Environment variable with the command that runs another on a host; ``ssh`` without questions, or within Slurm ``srun``."""

_SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
_SRUN = "srun --overlap --nodes=1 --ntasks=1 --kill-on-bad-exit=1 -w"

_LINE = re.compile(r"^(?P<host>\w[\w.:-]*)\s+slots=(?P<slots>[1-9]\d{0,3})$")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and the number of its ranks."""

    host: str
    slots: int


def list_nodes(ranks: int) -> list[Node]:
    """Return the machines of a run's ranks, this one first.

    Raises:
        InputError: if the host file is wrong or has too few slots, or the ranks do not divide among the machines of Slurm.
    """
    if file := os.environ.get(HOSTFILE):
        return _of_file(Path(file), ranks)
    count = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    if count == 1:
        return [Node("localhost", ranks)]
    if ranks % count:
        raise InputError(
            f"ranks_per_run: found {ranks}, which {count} nodes of the Slurm job cannot share evenly."
        )
    listed = subprocess.run(
        ["scontrol", "show", "hostnames"], capture_output=True, text=True, check=True
    ).stdout
    return [Node(host, ranks // count) for host in listed.split()]


def remote_shell() -> list[str]:
    """Return the command that, followed by a host and a command line, runs this there."""
    default = _SRUN if "SLURM_JOB_ID" in os.environ else _SSH
    return shlex.split(os.environ.get(REMOTE_SHELL, default))


def _of_file(file: Path, ranks: int) -> list[Node]:
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
        if not text or not left:
            continue
        parsed = _LINE.match(text)
        if parsed is None:
            raise InputError(f"{file}, line {number}: found {text[:80]!r}, expected 'HOST slots=N'.")
        found.append(Node(parsed["host"], min(left, int(parsed["slots"]))))
        left -= found[-1].slots
    if left:
        raise InputError(
            f"{file}: {ranks - left} slots, but ranks_per_run is {ranks}. Add hosts, or lower ranks_per_run."
        )
    return found
