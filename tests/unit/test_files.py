"""Files are whole or untouched, whatever goes wrong in between."""

import subprocess
import sys

import pytest

from threespo.errors import InputError
from threespo.files import atomic_folder, atomic_json, atomic_path, atomic_text


def _die_while_writing(target):
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed")


def _die_while_filling(target):
    with atomic_folder(target) as folder:
        (folder / "weights").write_text("new")
        raise RuntimeError("killed")


def _names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "table.txt"
    atomic_text(target, "old")
    with pytest.raises(RuntimeError):
        _die_while_writing(target)
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["table.txt"]


def test_a_failed_folder_leaves_the_old_folder(tmp_path):
    target = tmp_path / "run"
    with atomic_folder(target) as folder:
        (folder / "weights").write_text("old")
    with pytest.raises(RuntimeError):
        _die_while_filling(target)
    assert (target / "weights").read_text() == "old"
    assert _names(tmp_path) == ["run"]
    with atomic_folder(target) as folder:
        (folder / "weights").write_text("new")
    assert (target / "weights").read_text() == "new"
    assert _names(tmp_path) == ["run"]


_FULL = """
import resource, signal, sys
from pathlib import Path
from threespo.files import atomic_text
from threespo.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    atomic_text(Path(sys.argv[1]), "x" * 100_000)
except InputError as error:
    print(error)
"""


def test_a_device_that_takes_no_more_is_one_clear_error(tmp_path):
    """A real limit on what may be written, met in the middle of a write."""
    target = tmp_path / "table.txt"
    atomic_text(target, "old")
    done = subprocess.run([sys.executable, "-c", _FULL, str(target)], capture_output=True, text=True, check=True)
    assert str(target) in done.stdout
    assert "cannot be written" in done.stdout
    assert "Earlier results are untouched" in done.stdout
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["table.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.x\.json: cannot be written"):
        atomic_json(tmp_path / "file" / "x.json", {})


_FULL_FOLDER = """
import resource, signal, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from threespo.files import atomic_folder
from threespo.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
writers = {"torch": torch.save, "safetensors": save_file}
try:
    with atomic_folder(Path(sys.argv[1])) as folder:
        writers[sys.argv[2]]({"weight": torch.zeros(100_000)}, folder / "weights")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("writer", ["torch", "safetensors"])
def test_a_checkpoint_that_does_not_fit_is_one_clear_error(tmp_path, writer):
    """The libraries that write weights have errors of their own for a full disk."""
    target = tmp_path / "epoch-1"
    with atomic_folder(target) as folder:
        (folder / "weights").write_text("old")
    command = [sys.executable, "-c", _FULL_FOLDER, str(target), writer]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{target}: cannot be written" in done.stdout
    assert (target / "weights").read_text() == "old"
    assert _names(tmp_path) == ["epoch-1"]
