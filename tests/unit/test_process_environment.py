"""A machine's settings, homes and users, and other programs' variables, are no trouble to a command."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from threespo.process_environment import ensure_user_folders

ROOT = Path(__file__).resolve().parents[2]
CACHES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")

DRAW = """
import os
from threespo import cli
cli._build_parser = type("", (), {"parse_args": lambda *_: __import__("argparse").Namespace(command=draw)})
def draw(_):
    from matplotlib.figure import Figure
    import pandas as pd
    from threespo.results.paper.figures import save_figure
    save_figure(Figure(figsize=(3.3, 2)), os.environ["OUT"], "x", pd.DataFrame({"a": [1]}))
    print("won – 好")
    return 0
raise SystemExit(cli.main([]))
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in CACHES} | variables
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_variables_of_other_programs_change_nothing(tmp_path):
    """Of a launcher, of a build, of a desktop; and a terminal that has few letters."""
    drawn = []
    odd = {"MPLBACKEND": "bogus", "SOURCE_DATE_EPOCH": "abc", "PYTHONIOENCODING": "ascii"}
    for name, variables in (("plain", {}), ("odd", odd)):
        done = run(DRAW, OUT=str(tmp_path / name), **variables)
        assert done.returncode == 0, done.stderr
        drawn.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 4
    assert done.stdout == "won \\u2013 \\u597d\n"


LAUNCHED = """
import json, os
from threespo.process_environment import isolate_process
isolate_process()
print(json.dumps(sorted(name for name in os.environ if "RANK" in name or name.endswith("WORLD_SIZE") or "MASTER" in name)))
"""


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "4"},
        {
            "RANK": "3",
            "LOCAL_RANK": "3",
            "WORLD_SIZE": "4",
            "MASTER_ADDR": "node7",
            "MASTER_PORT": "29500",
        },
        {"RANK": "abc"},
        {"WORLD_SIZE": "", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "0"},
    ],
)
def test_a_command_is_no_process_of_another_launcher(variables):
    assert json.loads(run(LAUNCHED, **variables).stdout) == []


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Take this process's home and caches away; temporary files lie in a folder of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in (*CACHES, "HF_HOME"):
        # Noted first, so that it is put back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path / "home"


def make_read_only(home: Path) -> None:
    """Stand in for a file system that is read-only, which root may not be asked for: a file is in the cache's place."""
    home.mkdir()
    (home / ".cache").write_text("")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda home: home.write_text("a file"),
        lambda home: home.symlink_to("/proc/nothing"),
        make_read_only,
        None,
    ],
    ids=["a file", "cannot be made", "cannot be written", "none at all"],
)
def test_without_a_home_that_can_be_written_caches_lie_elsewhere(home, spoil, monkeypatch):
    if spoil is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", no_entry)
    else:
        spoil(home)
        monkeypatch.setenv("HOME", str(home))
    ensure_user_folders()
    own = home.parent / "tmp" / f"threespo-{os.getuid()}"
    assert all(Path(os.environ[name]).is_relative_to(own) for name in CACHES)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert Path.home() == (own if spoil is None else home)


def no_entry(number: int) -> None:
    raise KeyError(f"getpwuid(): uid not found: {number}")


def test_a_home_that_can_be_written_is_left_alone(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    ensure_user_folders()
    assert not [name for name in (*CACHES, "HF_HOME") if name in os.environ]
    assert not list((home.parent / "tmp").iterdir())


def test_models_that_a_home_has_are_still_read(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    (home / ".cache" / "huggingface").mkdir(parents=True)
    monkeypatch.setattr("os.access", lambda *_: False)
    ensure_user_folders()
    assert os.environ["HF_HOME"] == str(home / ".cache" / "huggingface")


def test_a_folder_of_somebody_else_is_not_taken_for_ones_own(home, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nothing")
    theirs = home.parent / "tmp" / f"threespo-{os.getuid()}"
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o777)
    ensure_user_folders()
    assert not Path(os.environ["XDG_CACHE_HOME"]).is_relative_to(theirs)


def test_a_user_without_an_entry_has_a_name(home, monkeypatch):
    import getpass

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(KeyError):
        getpass.getuser()
    ensure_user_folders()
    assert getpass.getuser() == str(os.getuid())


NOBODY = """
import os, pwd
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
"""


@pytest.mark.slow
def test_the_workflow_needs_neither_a_home_nor_a_user(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOBODY)
    (tmp_path / "home").write_text("a file")
    without = ("LOGNAME", "USER", "LNAME", "USERNAME", *CACHES)
    kept = {name: value for name, value in os.environ.items() if name not in without}
    config = ("study=ci", f"results={tmp_path / 'results'}")
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", "--dry-run", "--config", *config],
        cwd=ROOT,
        env={
            **kept,
            "HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(tmp_path),
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "This was a dry-run" in done.stdout + done.stderr
    assert not (tmp_path / "results").exists()
