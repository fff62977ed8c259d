"""Files are whole or untouched, whatever goes wrong in between."""

import os
import stat
import subprocess
import sys

import pytest
from safetensors.torch import save_file
from torch import zeros

from threespo.errors import InputError, format_bytes
from threespo.files import (
    copy_folder,
    link_file,
    link_folder,
    replace_file,
    replace_folder,
    write_json,
    write_text,
)
from threespo.paths import Paths
from threespo.pipeline import journal
from threespo.pipeline.stages import Job
from threespo.tables import write_table


def _die_while_writing(target):
    with replace_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed")


def _die_while_filling(target):
    with replace_folder(target) as folder:
        (folder / "weights").write_text("new")
        raise RuntimeError("killed")


def _names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "table.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError):
        _die_while_writing(target)
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["table.txt"]


def test_a_failed_folder_leaves_the_old_folder(tmp_path):
    target = tmp_path / "run"
    with replace_folder(target) as folder:
        (folder / "weights").write_text("old")
    with pytest.raises(RuntimeError):
        _die_while_filling(target)
    assert (target / "weights").read_text() == "old"
    assert _names(tmp_path) == ["run"]
    with replace_folder(target) as folder:
        (folder / "weights").write_text("new")
    assert (target / "weights").read_text() == "new"
    assert _names(tmp_path) == ["run"]


_FULL = """
import resource, signal, sys
from pathlib import Path
from threespo.files import write_text
from threespo.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_text(Path(sys.argv[1]), "x" * 100_000)
except InputError as error:
    print(error)
"""


def test_a_device_that_takes_no_more_is_one_clear_error(tmp_path):
    """A real limit on what may be written, met in the middle of a write."""
    target = tmp_path / "table.txt"
    write_text(target, "old")
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(target)], capture_output=True, text=True, check=True
    )
    assert str(target) in done.stdout
    assert "cannot be written" in done.stdout
    assert "Earlier results are untouched" in done.stdout
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["table.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.x\.json: cannot be written"):
        write_json(tmp_path / "file" / "x.json", {})


_FULL_FOLDER = """
import resource, signal, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from threespo.files import replace_folder
from threespo.errors import InputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
writers = {"torch": torch.save, "safetensors": save_file}
try:
    with replace_folder(Path(sys.argv[1])) as folder:
        writers[sys.argv[2]]({"weight": torch.zeros(100_000)}, folder / "weights")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("writer", ["torch", "safetensors"])
def test_a_checkpoint_that_does_not_fit_is_one_clear_error(tmp_path, writer):
    """The libraries that write weights have errors of their own for a full disk."""
    target = tmp_path / "epoch-1"
    with replace_folder(target) as folder:
        (folder / "weights").write_text("old")
    command = [sys.executable, "-c", _FULL_FOLDER, str(target), writer]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{target}: cannot be written" in done.stdout
    assert (target / "weights").read_text() == "old"
    assert _names(tmp_path) == ["epoch-1"]


@pytest.fixture(params=[0o002, 0o022, 0o027, 0o077], ids=oct)
def umask(request):
    """Let this process make files as a person does who has asked for a umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def _modes(folder):
    """Return the permissions of all files below a folder, and of all folders."""
    there = list(folder.rglob("*"))
    kinds = ([path for path in there if not path.is_dir()], [path for path in there if path.is_dir()])
    return tuple({oct(stat.S_IMODE(path.stat().st_mode)) for path in paths} for paths in kinds)


def test_what_is_written_is_for_those_whom_the_umask_lets(tmp_path, umask):
    """Two people with umask 002 share a folder: each must be able to go on where the other has stopped."""
    folder = tmp_path / "results"
    write_text(folder / "a" / "text.txt", "text")
    write_json(folder / "a" / "b" / "value.json", {})
    write_table(folder / "c" / "table.parquet", [{"one": 1}])
    with replace_file(folder / "weights.safetensors") as file:
        save_file({"weight": zeros(3)}, file)
    with replace_folder(folder / "run") as run:
        save_file({"weight": zeros(3)}, run / "weights.safetensors")
        (run / "more").mkdir()
        (run / "more" / "text.txt").write_text("text")
    journal.start_journal(Paths(folder), [Job("tables")])
    with journal.log_job(Paths(folder / "other"), Job("tables")):
        pass
    assert _modes(folder) == ({oct(0o666 & ~umask)}, {oct(0o777 & ~umask)})


def test_so_is_what_is_linked_or_copied(tmp_path, umask):
    """Even if its source is of somebody with another umask, installed, or not to be written by anybody."""
    results = tmp_path / "results"
    results.mkdir()
    for mode in {0o666 & ~umask, 0o644, 0o444, 0o600}:
        source = tmp_path / oct(mode)
        (source / "deep").mkdir(parents=True)
        (source / "deep" / "weights").write_text("weights")
        (source / "deep" / "weights").chmod(mode)
        (source / "deep").chmod(0o755)
        link_folder(source, results / f"linked-{mode}")
        link_file(source / "deep" / "weights", results / f"linked-{mode}.txt")
        copy_folder(source, results / f"copied-{mode}")
    assert _modes(results) == ({oct(0o666 & ~umask)}, {oct(0o777 & ~umask)})
    assert {path.read_text() for path in results.rglob("*") if path.is_file()} == {"weights"}
    alike = tmp_path / oct(0o666 & ~umask) / "deep" / "weights"
    assert alike.samefile(results / f"linked-{0o666 & ~umask}.txt"), (
        "the disk's blocks are shared where that is possible"
    )


def test_a_setgid_folder_hands_its_group_on(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2775)
    with replace_folder(folder / "run") as run:
        (run / "weights").write_text("weights")
    assert stat.S_IMODE((folder / "run").stat().st_mode) & stat.S_ISGID


@pytest.mark.parametrize("leads_to", ["folder", "file", "nothing"])
def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path, leads_to):
    place, target = tmp_path / "results", tmp_path / "mine" / "folder"
    place.mkdir()
    target.mkdir(parents=True)
    (target / "mine.txt").write_text("mine")
    for name in ("text", "run"):
        (place / name).symlink_to(
            {"folder": target, "file": target / "mine.txt", "nothing": tmp_path / "gone"}[leads_to]
        )
    if leads_to != "folder":
        write_text(place / "text", "new")
        assert (place / "text").read_text() == "new"
        assert not (place / "text").is_symlink()
    with replace_folder(place / "run") as run:
        (run / "weights").write_text("new")
    assert _names(place / "run") == ["weights"]
    assert sorted(_names(place)) == ["run", "text"]
    assert not (place / "run").is_symlink()
    assert (_names(target), (target / "mine.txt").read_text()) == (["mine.txt"], "mine")


def test_links_to_folders_are_not_followed_when_a_folder_is_linked(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.txt").write_text("mine")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "weights").write_text("weights")
    (tmp_path / "source" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "source" / "alias").symlink_to("weights")
    link_folder(tmp_path / "source", tmp_path / "copy")
    assert sorted(_names(tmp_path / "copy")) == ["alias", "weights"]
    assert not (tmp_path / "copy" / "alias").is_symlink()


def test_sizes_have_a_unit_that_says_something():
    shown = {
        0: "0 bytes",
        999: "999 bytes",
        12_345: "12.3 kB",
        3e6: "3.0 MB",
        1.5e9: "1.5 GB",
        2e13: "20.0 TB",
    }
    assert {count: format_bytes(count) for count in shown} == shown
