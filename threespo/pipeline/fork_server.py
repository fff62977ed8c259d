"""Jobs that begin with PyTorch and transformers imported: forked from a server that lives as long as one workflow call.

A job of an embedded study computes for some ten seconds, and importing these libraries takes it five more: of the 102 jobs
of ``smoke``, which take 927 processor seconds with this module, 80 would take 4.9 more each, 42 % in all. The workflow's
main process calls :func:`start`; a job's command calls :func:`run_forked`, and the server's copy of itself does the job,
with the command's arguments, environment, folder and standard streams. Modules of this package are imported after the fork,
so a job takes them from the disk when it begins, as ever. Where no server answers the command does the job itself.
"""

import contextlib
import ctypes
import functools
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

SERVER = "THREESPO_FORK_SERVER"
"""Environment variable with the name of the server's socket."""

COMMANDS = ("policy", "train", "evaluate", "learning", "probe", "credit")
"""Those that compute with PyTorch."""

_LIBRARIES = (
    "pydantic",
    "yaml",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.integrations.sdpa_attention",
)
"""Imported before the first fork. None of them starts a thread, which a copy would lack; pyarrow does, and so pandas."""

_THREADS = "OMP_NUM_THREADS"
"""Read by PyTorch when it is imported, so a job with another number does not begin here."""

_HEADER = struct.Struct("!Q")
_PR_SET_PDEATHSIG = 1

_INTERRUPTED = 130
"""Exit code of a command that a person has interrupted."""

_server: subprocess.Popen[bytes] | None = None
"""Of this process; it ends when this process does, because its standard input then does."""


def start(command: str, study: Path, threads: int) -> None:
    """Start this process's server, and name it in the environment that its jobs are given. Nothing is imported yet.

    Linux only: elsewhere a copy of a process may not use all of the system's libraries.

    Args:
        command: ``module:function`` of what a job's command would call: it takes the arguments and returns an exit code.
        study: the study's file; shown by ``ps``, so that who looks for the study's jobs finds them.
        threads: CPU threads of a job.
    """
    global _server
    if sys.platform != "linux":
        return
    # Of the abstract namespace: no file is left behind by a killed process. Both sides look at each other's user.
    name = f"threespo-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(128)
        _server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "threespo.pipeline.fork_server",
                str(listener.fileno()),
                command,
                str(study),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={**os.environ, _THREADS: str(threads)},
        )
    os.environ[SERVER] = name


def run_forked(arguments: Sequence[str]) -> int | None:
    """Let the server do a command, and return its exit code; ``None`` if it does not take this one.

    Args:
        arguments: those of ``threespo``.
    """
    name = os.environ.get(SERVER)
    if name is None or not arguments or arguments[0] not in COMMANDS:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"\0{name}")
        except OSError:
            return None
        if _user(connection) != os.getuid():
            return None
        # A terminal interrupts all processes: the job's own answers, and this one waits for it.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        request = json.dumps([list(arguments), str(Path.cwd()), dict(os.environ)]).encode()
        try:
            socket.send_fds(connection, [_HEADER.pack(len(request))], [0, 1, 2])
            connection.sendall(request)
            answer = connection.makefile("rb").read()
        except OSError:
            answer = b""
    if answer == b"declined":
        signal.signal(signal.SIGINT, interrupted)
        return None
    if not answer:
        print(
            "threespo: the process that forks jobs has ended before this one; run again", file=sys.stderr
        )
        return 1
    code = int(answer)
    # As a shell says it of a process that was killed.
    return 128 - code if code < 0 else code


def _user(connection: socket.socket) -> int:
    """Return the user at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


class _Server:
    """Takes requests until its standard input ends, and lives until its last job has ended."""

    def __init__(self, listener: socket.socket, command: str) -> None:
        self._listener = listener
        self._command = command
        self._selector = selectors.DefaultSelector()
        self._jobs: dict[int, socket.socket] = {}
        self._interrupted = False
        self._answers = signal.getsignal(signal.SIGINT)

    def run(self) -> int:
        """Return an exit code: in the server its own, in each of its copies that of the job."""
        # The jobs answer a terminal's interrupt; this process ends after them, and begins no more. What runs in the
        # background of a shell ignores interrupts, and so do its jobs.
        if self._answers is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupt)
        ended, wake = socket.socketpair()
        wake.setblocking(False)
        ended.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._listener, selectors.EVENT_READ, "listener")
        self._selector.register(0, selectors.EVENT_READ, "parent")
        self._selector.register(ended, selectors.EVENT_READ, "ended")

        open_ = True
        while open_ or self._jobs:
            for key, _ in self._selector.select():
                if key.data == "listener":
                    code = self._accept()
                    if code is not None:
                        return code
                elif key.data == "parent":
                    # Nothing is ever written there: the main process is gone.
                    self._selector.unregister(0)
                    self._selector.unregister(self._listener)
                    self._listener.close()
                    open_ = False
                    break
                elif key.data == "ended":
                    ended.recv(4096)
                    self._reap()
                elif key.data in self._jobs:
                    # The command has been killed, and so is its job.
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
        return 0

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True

    def _accept(self) -> int | None:
        """Fork a job; return its exit code in the copy, else ``None``."""
        connection, _ = self._listener.accept()
        streams: list[int] = []
        try:
            if _user(connection) != os.getuid():
                connection.close()
                return None
            header, streams, _, _ = socket.recv_fds(connection, _HEADER.size, 3)
            (size,) = _HEADER.unpack(header)
            with connection.makefile("rb") as request:
                arguments, folder, environment = json.loads(request.read(size))
        except (OSError, struct.error, ValueError):
            # Killed while it asked.
            for stream in streams:
                os.close(stream)
            connection.close()
            return None

        server = os.getpid()
        pid = None
        if (
            environment.get(_THREADS) == os.environ.get(_THREADS)
            and self._imported
            and not self._interrupted
        ):
            # Without memory for a copy, the command may still find some.
            with contextlib.suppress(OSError):
                pid = os.fork()
        if pid == 0:
            return self._job(server, connection, streams, arguments, folder, environment)
        if pid:
            self._jobs[pid] = connection
            self._selector.register(connection, selectors.EVENT_READ, pid)
        else:
            self._answer(connection, str(_INTERRUPTED) if self._interrupted else "declined")
        for stream in streams:
            os.close(stream)
        return None

    @functools.cached_property
    def _imported(self) -> bool:
        """Import the libraries, once, and return whether this process may be copied: none of them has started a thread."""
        try:
            for library in _LIBRARIES:
                importlib.import_module(library)
        except Exception as error:
            # Where it matters, a job that imports it itself fails with its own message.
            print(
                f"threespo: {error!r} on importing {library}, so each job imports by itself",
                file=sys.stderr,
            )
            return False
        # A copy has only the thread that forked: a lock that another thread had would stay locked in it.
        alone = len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
        if not alone:
            print(
                "threespo: an imported library has started a thread, so each job imports by itself",
                file=sys.stderr,
            )
        return alone

    def _job(
        self,
        server: int,
        connection: socket.socket,
        streams: Sequence[int],
        arguments: Sequence[str],
        folder: str,
        environment: dict[str, str],
    ) -> int:
        """Do a job in the copy, as the command that asked would have done it, and return the exit code."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The server may have died before the request above took effect; then no signal will come.
        if os.getppid() != server:
            return 1
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self._answers)
        if self._interrupted:
            return _INTERRUPTED
        # An open copy of another job's connection would hide from its command that the server has died.
        self._selector.close()
        for other in (self._listener, connection, *self._jobs.values()):
            other.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["threespo", *arguments]

        module, _, function = self._command.partition(":")
        return int(getattr(importlib.import_module(module), function)(arguments))

    def _reap(self) -> None:
        """Send the exit codes of ended jobs to the commands that wait for them."""
        while self._jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            connection = self._jobs.pop(pid)
            # Unregistered already if its command was killed.
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            self._answer(connection, str(os.waitstatus_to_exitcode(status)))

    def _answer(self, connection: socket.socket, answer: str) -> None:
        """Send a command its answer, unless it has been killed."""
        with contextlib.suppress(OSError):
            connection.sendall(answer.encode())
        connection.close()


if __name__ == "__main__":
    sys.exit(_Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).run())
