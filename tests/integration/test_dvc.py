"""DVC moves a study's results between clones, and the workflow accepts what it pulled."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"DVC_NO_ANALYTICS": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def run(checkout, *command: str) -> str:
    tools = {"dvc": [sys.executable, "-m", "dvc"]}
    done = subprocess.run(
        [*tools.get(command[0], [command[0]]), *command[1:]],
        cwd=checkout.folder,
        env=checkout.environment(**QUIET),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_push_and_pull_move_results_to_another_clone(finished_copy, tmp_path):
    first = finished_copy
    pipeline = first.folder / "dvc.yaml"
    pipeline.write_text(pipeline.read_text().replace("results/smoke", "results/ci"))
    (first.folder / ".gitignore").write_text(".snakemake/\nstages.log\n__pycache__/\n")
    run(first, "git", "init", "--quiet")
    run(first, "dvc", "init", "--quiet")
    run(first, "dvc", "remote", "add", "--default", "storage", str(tmp_path / "storage"))
    run(first, "dvc", "commit", "--force")
    run(first, "dvc", "push")
    run(first, "git", "add", "--all")
    run(
        first, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "results"
    )
    assert not [name for name in run(first, "git", "ls-files").splitlines() if name.startswith("results/ci/")]

    clone = type(first)(tmp_path / "clone")
    shutil.copytree(first.folder / ".git", clone.folder / ".git")
    run(clone, "git", "checkout", "--quiet", "--force", "HEAD")
    assert not clone.results().exists()
    run(clone, "dvc", "pull")
    assert digests(clone.results()) == digests(first.results())
    assert clone.snakemake("--touch").returncode == 0
    done = clone.snakemake()
    assert done.returncode == 0, done.stderr
    assert "Nothing to be done" in done.stderr
    assert clone.ran() == []


def test_dvc_keeps_results_and_leaves_the_order_of_work_to_snakemake():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert [stage["cmd"].split()[0] for stage in stages.values()] == ["snakemake"]
    outs = [settings for stage in stages.values() for out in stage["outs"] for settings in out.values()]
    assert all(settings["persist"] for settings in outs)
