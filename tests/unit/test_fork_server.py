"""Jobs forked from a process that has its libraries: they are what the command would have been, and end with it.

The commands here are a stand-in's, so that a test can say what a job does; the server is the real one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from threespo.pipeline import fork_server

CALLER = """
import os, signal, sys
if "--background" in sys.argv: signal.signal(signal.SIGINT, signal.SIG_IGN)
from pathlib import Path
from threespo.pipeline import fork_server
fork_server.start("threespo.cli:main", Path("results/stand-in/study.json"), 1)
print(os.environ[fork_server.SERVER], fork_server._server.pid, flush=True)
sys.stdin.read()
"""

COMMAND = """
import sys
from threespo.pipeline.fork_server import run_forked
code = run_forked(sys.argv[1:])
sys.exit(99 if code is None else code)
"""
"""Ends with 99 where the command would have to do the job itself."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux only")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a folder with the real server, and a command that does what its argument says, in Python."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "threespo" / "study").mkdir(parents=True)
    for name in ("__init__.py", "study/__init__.py"):
        (folder / "threespo" / name).write_text("")
    shutil.copy(fork_server.__file__, folder / "threespo" / "study")
    (folder / "threespo" / "cli.py").write_text(
        "def main(arguments):\n    exec(arguments[1])\n    return 0\n"
    )
    return folder


def environment(package, **more):
    kept = {name: value for name, value in os.environ.items() if name != fork_server.SERVER}
    return {**kept, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", **more}


class Workflow:
    """A process that has started a server, as the workflow's main process does."""

    def __init__(self, package, *arguments):
        self.package = package
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", CALLER, *arguments]
        self.caller = subprocess.Popen(command, cwd=package, env=environment(package), **pipes)
        self.name, server = self.caller.stdout.readline().split()
        self.server = int(server)

    def command(self, *arguments, **more):
        more.setdefault("env", environment(self.package, **{fork_server.SERVER: self.name}))
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def end(self):
        self.caller.stdin.close()
        self.caller.wait()


@pytest.fixture(scope="module")
def workflow(package):
    made = Workflow(package)
    yield made
    made.end()


def gone(pid, seconds=30):
    """Return whether a process has ended, or does so soon."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def test_a_job_has_the_arguments_environment_folder_and_streams_of_its_command(workflow, tmp_path):
    code = (
        "import os, sys; print(sys.argv[2:], os.environ['ASKED'], os.getcwd(), os.getppid(), 'torch' in sys.modules);"
        "print(sys.stdin.read(), file=sys.stderr)"
    )
    env = environment(workflow.package, **{fork_server.SERVER: workflow.name, "ASKED": "ü"})
    job = workflow.command("train", code, "--run", "a b", env=env, cwd=tmp_path, stdin=subprocess.PIPE)
    out, err = job.communicate("typed")
    assert job.returncode == 0, err
    assert out.strip() == f"[{code!r}, '--run', 'a b'] ü {tmp_path} {workflow.server} True"
    assert err.strip() == "typed"


def test_nothing_of_one_job_is_seen_in_the_next(workflow):
    first = workflow.command(
        "train", "import os, sys, torch; os.environ['LEFT'] = 'x'; sys.left = 1; torch.manual_seed(5)"
    )
    assert first.wait() == 0
    second = workflow.command(
        "train", "import os, sys; print('LEFT' in os.environ, hasattr(sys, 'left'))"
    )
    assert second.communicate()[0].strip() == "False False"


def test_a_job_takes_this_package_from_the_disk_when_it_begins(workflow):
    module = workflow.package / "threespo" / "edited.py"
    seen = []
    for value in ("1", "22"):
        module.write_text(f"VALUE = {value}\n")
        job = workflow.command("evaluate", "from threespo.edited import VALUE; print(VALUE)")
        seen.append(job.communicate()[0].strip())
    assert seen == ["1", "22"]


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        ("import sys; sys.exit(2)", 2, ""),
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, ""),
    ],
)
def test_exit_codes_are_those_of_the_job(workflow, does, code, says):
    job = workflow.command("learning", does)
    _, err = job.communicate()
    assert job.returncode == code
    assert says in err


def test_jobs_run_side_by_side(workflow, tmp_path):
    """Each waits for the other's file."""
    waits = "import pathlib, time\npathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    names = [str(tmp_path / "one"), str(tmp_path / "two")]
    both = [workflow.command("train", waits.format(*order)) for order in (names, names[::-1])]
    assert [job.wait(60) for job in both] == [0, 0]


def test_a_killed_command_takes_its_job_along(workflow):
    job = workflow.command("train", "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    pid = int(job.stdout.readline())
    assert pid != job.pid
    job.kill()
    assert gone(pid)
    assert workflow.command("train", "pass").wait() == 0, "the server goes on"


def test_an_interrupt_reaches_the_job_and_the_command_waits_for_it(package):
    """A terminal sends it to all processes; the job says what it has to say, and the command ends with its code."""
    workflow = Workflow(package)
    does = (
        "import os, time\ntry:\n print(os.getpid(), flush=True)\n time.sleep(600)\n"
        "except KeyboardInterrupt: raise SystemExit(130)"
    )
    job = workflow.command("train", does)
    pid = int(job.stdout.readline())
    for process in (job.pid, workflow.server, pid):
        os.kill(process, signal.SIGINT)
    assert job.wait(60) == 130
    workflow.end()


def catches_interrupts(pid):
    caught = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)


def test_a_job_that_waits_for_the_libraries_does_not_begin_after_an_interrupt(package, tmp_path):
    workflow = Workflow(package)
    while not catches_interrupts(workflow.server):
        time.sleep(0.01)
    job = workflow.command("train", f"import pathlib; pathlib.Path({str(tmp_path / 'begun')!r}).touch()")
    # Importing takes seconds, and has begun when PyTorch's library is there.
    while "libtorch" not in Path(f"/proc/{workflow.server}/maps").read_text():
        time.sleep(0.01)
    os.kill(workflow.server, signal.SIGINT)
    assert job.wait(60) == 130
    assert not (tmp_path / "begun").exists()
    workflow.end()


def test_what_runs_in_the_background_of_a_shell_ignores_interrupts_and_so_do_its_jobs(package):
    workflow = Workflow(package, "--background")
    job = workflow.command("train", "import signal; print(signal.getsignal(signal.SIGINT).name)")
    assert job.communicate()[0].strip() == "SIG_IGN"
    workflow.end()


def test_a_library_that_cannot_be_imported_is_left_to_the_jobs(package, tmp_path):
    shutil.copytree(package / "threespo", tmp_path / "threespo")
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("raise RuntimeError('half installed')")
    workflow = Workflow(tmp_path)
    assert [workflow.command("train", "pass").wait(60) for _ in range(2)] == [99, 99]
    workflow.end()


@pytest.mark.parametrize("changes", [{"OMP_NUM_THREADS": "2"}, {fork_server.SERVER: "threespo-nobody"}])
def test_a_command_that_the_server_does_not_fit_does_its_job_itself(workflow, changes):
    """PyTorch has read the number of threads when it was imported."""
    env = environment(workflow.package, **{fork_server.SERVER: workflow.name, **changes})
    assert workflow.command("train", "pass", env=env).wait() == 99


def test_other_commands_do_their_work_themselves(workflow):
    assert workflow.command("tables", "pass").wait() == 99
    assert workflow.command().wait() == 99


def test_a_server_that_is_killed_takes_its_jobs_along(package):
    workflow = Workflow(package)
    job = workflow.command("train", "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    pid = int(job.stdout.readline())
    os.kill(workflow.server, signal.SIGKILL)
    assert job.wait(60) == 1
    assert "has ended before this one; run again" in job.stderr.read()
    assert gone(pid)
    assert workflow.command("train", "pass").wait() == 99, "the next one does its job itself"
    workflow.end()


def test_the_server_ends_with_the_workflow_after_its_last_job(package):
    """Jobs of a killed workflow go on to their end, as they do without a server."""
    workflow = Workflow(package)
    job = workflow.command(
        "train", "import time; print('begun', flush=True); time.sleep(1); print('done')"
    )
    assert job.stdout.readline() == "begun\n"
    workflow.caller.kill()
    assert job.communicate(timeout=60)[0] == "done\n"
    assert job.returncode == 0
    assert gone(workflow.server)
