"""Git and DVC as commands: without input, with what they say in one line."""

import os
import subprocess
import sys

from threespo.errors import InputError

DVC = (sys.executable, "-m", "dvc")


def run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; what it prints need not be UTF-8, since names of files need not."""
    # No input: DVC would ask, and wait for an answer. No translation: what git says is looked at.
    environment = {**os.environ, "LC_ALL": "C"} if command[0] == "git" else None
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
            env=environment,
        )
    except FileNotFoundError as error:
        raise InputError(f"{command[0]}: not installed, and others learn of results by it") from error


def dvc(*arguments: str, about: str = "") -> str:
    """Return what a command of DVC prints.

    Raises:
        InputError: if it fails; ``about`` begins the message.
    """
    done = run([*DVC, *arguments])
    if done.returncode:
        raise InputError(f"{about or 'dvc ' + ' '.join(arguments)}: {last_line(done)}")
    return done.stdout


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of git, which may fail."""
    return run(["git", *arguments])


def check_repository() -> None:
    """Make sure that git knows this folder.

    Raises:
        InputError: with git's own words where it knows of a repository and does not look into it.
    """
    asked = git("rev-parse", "--git-dir")
    if not asked.returncode:
        return
    if "not a git repository" in asked.stderr:
        raise InputError(
            "not a git repository, by which others learn of results: git init && git add . && git commit"
        )
    raise InputError(f"git: {' '.join(asked.stderr.split())}")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command says: DVC's first error, else the last line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or [f"exit code {done.returncode}"])[0]
