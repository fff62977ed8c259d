"""A copy of the repository in which the workflow runs with its slow stages replaced (fakes/sitecustomize.py)."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from threespo.files import try_lock

REPOSITORY = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).parent / "fakes"
# Of .dvc what says nothing about this clone: not its remote, and not its cache.
SHARING = ("dvc.yaml", ".dvcignore", ".dvc/.gitignore", ".dvc/plots", ".gitignore", "Makefile")
PARTS = ("Snakefile", "workflow", "config", "threespo", "notebooks", *SHARING)


@dataclass(frozen=True)
class Checkout:
    """A private copy of the repository. ``log`` lists the stages that ran since the last call."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "stages.log"

    def environment(self, **extra: str) -> dict[str, str]:
        path = os.pathsep.join([str(FAKES), str(self.folder)])
        return {**os.environ, "PYTHONPATH": path, "FAKE_LOG": str(self.log), **extra}

    def command(self, *arguments: str, config: tuple[str, ...] = ("study=ci",)) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments, "--config", *config]

    def snakemake(
        self,
        *arguments: str,
        config: tuple[str, ...] = ("study=ci",),
        notebooks: bool = False,
        **extra: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run the workflow and return what it printed; notebooks, seconds each, are executed only if asked for."""
        self.log.write_text("")
        if not notebooks:
            extra["FAKE_NOTEBOOKS"] = "all"
        return subprocess.run(
            self.command(*arguments, config=config),
            cwd=self.folder,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=300,
        )

    def ran(self) -> list[str]:
        """Return the slow stages that ran, without their details."""
        return sorted({" ".join(line.split()[:2]) for line in self.log.read_text().splitlines()})

    def results(self, study: str = "ci") -> Path:
        return self.folder / "results" / study


def copy_repository(folder: Path, *without: str) -> Checkout:
    """Copy the repository into ``folder``, files named like ``without`` left out.

    Compiled modules come along: every job of a workflow would compile the package anew.
    """
    folder.mkdir(parents=True)
    for part in PARTS:
        source = REPOSITORY / part
        (folder / part).parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns(*without))
        else:
            shutil.copy(source, folder / part)
    (folder / "profiles").symlink_to("workflow/profiles")
    return Checkout(folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a fresh copy of the repository."""
    return copy_repository(tmp_path / "repository", "*.safetensors")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a copy of the repository in which the `ci` study has run to its end; tests must not change it."""
    # Test processes share what is dear: the first that asks makes it, the others wait for it.
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    made = Checkout(shared / "finished" / "repository")
    while (lock := try_lock(shared / "finished.lock")) is None:
        time.sleep(0.5)
    with lock:
        if not made.folder.exists():
            building = copy_repository(shared / "building" / "repository", "*.safetensors")
            done = building.snakemake(notebooks=True)
            assert done.returncode == 0, done.stdout + done.stderr
            building.folder.parent.rename(shared / "finished")
    return made


@pytest.fixture
def finished_copy(finished: Checkout, tmp_path: Path) -> Checkout:
    """Return a private copy of ``finished``."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Checkout(folder)
