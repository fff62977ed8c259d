"""Runs side by side get different GPUs."""

import os
import subprocess
import sys

import pytest

from threespo.errors import InputError
from threespo.runs.gpus import VISIBLE, claim


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setenv(VISIBLE, "0,1,2,3")


def test_claims_do_not_overlap_and_are_given_back(four, tmp_path):
    with claim(1, folder=tmp_path):
        assert os.environ[VISIBLE] == "0"
        os.environ[VISIBLE] = "0,1,2,3"
        with claim(2, folder=tmp_path):
            assert os.environ[VISIBLE] == "1,2"
        os.environ[VISIBLE] = "0,1,2,3"
        with pytest.raises(InputError, match="only 3 of 4 are free"), claim(4, patience=0, folder=tmp_path):
            pass
    assert os.environ[VISIBLE] == "0,1,2,3"
    with claim(4, folder=tmp_path):
        assert os.environ[VISIBLE] == "0,1,2,3"


def test_a_killed_run_leaves_no_claim(four, tmp_path):
    code = (
        "import os, pathlib, signal; from threespo.runs.gpus import claim\n"
        f"with claim(4, folder=pathlib.Path({str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    with claim(4, patience=0, folder=tmp_path):
        pass


def test_a_machine_with_too_few_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(InputError, match=r"needs 1 GPU\(s\), this machine offers 0"), claim(1, folder=tmp_path):
        pass


def test_no_gpu_asked_for_changes_nothing(monkeypatch):
    monkeypatch.setenv(VISIBLE, "7")
    with claim(0):
        assert os.environ[VISIBLE] == "7"
