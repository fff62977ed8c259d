"""Fetching models and data from a hub on this machine that cuts connections, damages files, and is not there."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub import file_download as library

from tests.hub import COMMIT, serve
from threespo import hub
from threespo.envs.webshop import official
from threespo.errors import InputError
from threespo.hub import fetch_file, fetch_model, find_model_folder

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = bytes(range(256)) * 400
MODEL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": WEIGHTS[::-1],
    "model.safetensors.index.json": json.dumps(
        {
            "weight_map": {
                "a": "model-00001-of-00002.safetensors",
                "b": "model-00002-of-00002.safetensors",
            }
        }
    ).encode(),
    "README.md": b"not fetched",
    "flax_model.msgpack": b"not fetched",
}
FETCHED = {
    name: len(content) for name, content in MODEL.items() if name.endswith((".json", ".safetensors"))
}
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def at_hub(monkeypatch, tmp_path):
    """Return a function that points the library at a server, with a cache of the test's own."""

    def point(url, offline=False):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)

    # What has come of a piece is lost with it; real pieces are of ten megabytes.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)
    # A server that is gone is asked five times, a second apart.
    monkeypatch.setattr(library.time, "sleep", lambda seconds: None)
    return point


def incomplete(folder):
    return sorted(path.name for path in folder.rglob("*") if path.name.endswith(".part"))


def test_a_model_is_fetched_once_into_the_hubs_cache_and_only_what_is_needed(at_hub, tmp_path):
    with serve("owner/tiny", MODEL) as server:
        at_hub(server.url)
        model = fetch_model("owner/tiny")
        assert (model.revision, model.files) == (COMMIT, FETCHED)
        assert model.folder.is_relative_to(tmp_path / "cache" / "models--owner--tiny" / "snapshots")
        assert all((model.folder / name).read_bytes() == MODEL[name] for name in FETCHED)
        assert [name for name, _ in server.bodies()][-2:] == [SHARD, SHARD.replace("1-of", "2-of")]

        before = len(server.bodies())
        assert fetch_model("owner/tiny", COMMIT) == model
        assert len(server.bodies()) == before
    # A pinned model that is there needs no network.
    assert fetch_model("owner/tiny", COMMIT) == model
    assert find_model_folder("owner/tiny", COMMIT, model.files) == model.folder


def test_a_cut_download_goes_on_where_it_stopped_in_this_call_and_in_the_next(at_hub, tmp_path):
    with serve("owner/data", {"items.bin": WEIGHTS}, "datasets") as server:
        at_hub(server.url)
        server.cut = [1_000, 70_000]
        target = fetch_file("owner/data", "items.bin", tmp_path / "items.bin", revision="main")
        assert target.read_bytes() == WEIGHTS
        assert [span for _, span in server.bodies()] == [None, "bytes=1000-", "bytes=71000-"]

        # Cut, and no more answers: the call ends, and what has arrived is kept.
        target.unlink()
        server.asked.clear()
        server.cut = [50_000, *[0] * 20]
        with pytest.raises(
            InputError,
            match=r"owner/data, items\.bin: not fetched .* What has arrived is kept\. Run again",
        ):
            fetch_file("owner/data", "items.bin", target, revision="main")
        assert not target.exists()
        assert [file.stat().st_size for file in tmp_path.glob("items.bin.*.part")] == [50_000]

        server.cut = []
        fetch_file("owner/data", "items.bin", target, revision="main")
        assert target.read_bytes() == WEIGHTS
        assert server.bodies()[-1] == ("items.bin", "bytes=50000-")
    assert not incomplete(tmp_path)


@pytest.mark.parametrize("name", [SHARD, "config.json"])
def test_a_damaged_file_is_deleted_and_never_gets_its_name(name, at_hub, tmp_path):
    with serve("owner/tiny", MODEL) as server:
        at_hub(server.url)
        server.wrong = {name}
        with pytest.raises(
            InputError,
            match=r"digest [0-9a-f]+, but [0-9a-f]+ the hub states\. It was deleted; run again",
        ):
            fetch_model("owner/tiny", COMMIT)
        assert not list(tmp_path.rglob(name))
        assert not incomplete(tmp_path)

        server.wrong = set()
        assert fetch_model("owner/tiny", COMMIT).files == FETCHED


def test_a_pinned_checksum_is_checked_beside_the_hubs(at_hub, tmp_path):
    with serve("owner/data", {"items.json": b"[]"}, "datasets") as server:
        at_hub(server.url)
        with pytest.raises(InputError, match=f"but {'0' * 64} is pinned here"):
            fetch_file(
                "owner/data", "items.json", tmp_path / "items.json", revision="main", sha256="0" * 64
            )
    assert list(tmp_path.glob("items.json*")) == []


def test_an_interrupted_model_is_completed_and_a_lost_file_fetched_again(at_hub, tmp_path):
    with serve("owner/tiny", MODEL) as server:
        at_hub(server.url)
        folder = fetch_model("owner/tiny", COMMIT).folder
        (folder / SHARD).resolve().unlink()
        (folder / SHARD).unlink()
        server.asked.clear()
        assert find_model_folder("owner/tiny", COMMIT, FETCHED) == folder
        assert [name for name, _ in server.bodies()] == [SHARD]


@pytest.mark.parametrize(
    ("source", "revision", "says"),
    [
        (
            "owner/other",
            None,
            r"owner/other: http.* has no such repository, revision or file .*set HF_TOKEN",
        ),
        ("owner/tiny", "v9", r"owner/tiny: http.* has no such repository, revision or file"),
    ],
)
def test_a_wrong_name_or_revision_is_told(source, revision, says, at_hub):
    with serve("owner/tiny", {}) as server:
        server.http.RequestHandlerClass.listing = lambda request: request.refuse("RepoNotFound")
        at_hub(server.url)
        with pytest.raises(InputError, match=says):
            fetch_model(source, revision)


def test_without_network_and_offline_it_is_said_in_a_line_and_the_cache_is_used(at_hub):
    with serve("owner/tiny", MODEL) as server:
        at_hub(server.url)
        folder = fetch_model("owner/tiny").folder
    at_hub("http://127.0.0.1:9")
    with pytest.raises(
        InputError, match=r"owner/none: not fetched from http.*Run again .*HF_ENDPOINT"
    ) as error:
        fetch_model("owner/none")
    assert "\n" not in str(error.value)

    at_hub("http://127.0.0.1:9", offline=True)
    assert fetch_model("owner/tiny").folder == folder
    with pytest.raises(InputError, match=r"owner/none: not in .*cache, and HF_HUB_OFFLINE forbids"):
        fetch_model("owner/none")
    # A snapshot without one of its shards is no model.
    (folder / SHARD).unlink()
    with pytest.raises(InputError, match=r"owner/tiny: not in .*cache, and HF_HUB_OFFLINE forbids"):
        fetch_model("owner/tiny")


def test_a_full_disk_is_told_before_anything_is_written_and_in_the_middle(at_hub, tmp_path, monkeypatch):
    with serve("owner/tiny", MODEL) as server:
        at_hub(server.url)
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(hub.shutil, "disk_usage", lambda _: usage._replace(free=10_000))
        with pytest.raises(
            InputError,
            match=r"102,400 bytes are still to come, and 10,000 are free .*Free some disk space",
        ):
            fetch_model("owner/tiny", COMMIT)
        assert SHARD not in [name for name, _ in server.bodies()]

        monkeypatch.setattr(hub.shutil, "disk_usage", lambda _: usage)

        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(library, "http_get", full)
        with pytest.raises(
            InputError, match=r"No space left on device.*What has arrived is kept\. Free some disk space"
        ):
            fetch_model("owner/tiny", COMMIT)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_model_without_safetensors_is_refused(at_hub):
    with serve("owner/old", {"config.json": b"{}", "pytorch_model.bin": b"x"}) as server:
        at_hub(server.url)
        with pytest.raises(InputError, match=r"owner/old: no weights in the format safetensors"):
            fetch_model("owner/old")


def test_the_shops_files_are_fetched_checked_and_may_lie_there_already(at_hub, tmp_path):
    content = {"items_shuffle.json": b"[1]", "items_ins_v2.json": b"{}", "items_human_ins.json": b"{}"}
    sums = {name: official.hashlib.sha256(text).hexdigest() for name, text in content.items()}
    with serve("owner/shop", content, "datasets") as server:
        at_hub(server.url)
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "items_human_ins.json").write_bytes(b"{}")
        folder = official.fetch(tmp_path / "shop", "owner/shop", COMMIT, sums)
        assert {file.name: file.read_bytes() for file in folder.glob("*.json")} == content
        assert sorted({name for name, _ in server.bodies()}) == [
            "items_ins_v2.json",
            "items_shuffle.json",
        ]
    # All are there: no network is needed. One that is another is not used, and not overwritten.
    official.fetch(folder, "owner/shop", COMMIT, sums)
    (folder / "items_ins_v2.json").write_bytes(b"{1}")
    with pytest.raises(InputError, match=r"items_ins_v2\.json: its SHA-256 is .*source: path"):
        official.fetch(folder, "owner/shop", COMMIT, sums)
    assert (folder / "items_ins_v2.json").read_bytes() == b"{1}"


STUDY = """
name: fetched
description: a model of a hub
seeds: [0]
alfworld: {source: embedded, max_steps: 3, games: {train: 1, calibration: 1, valid_seen: 1, valid_unseen: 1}}
policies: {base: {kind: pretrained, source: owner/tiny, revision: REVISION, stands_for: qwen2.5-1.5b-instruct}}
methods: {grpo: {method: grpo, learning_rate: 1.0e-4}}
training: {generations: 4, tasks_per_epoch: 1, group_size: 2, snapshots: 0}
"""


@pytest.mark.slow
def test_the_policy_stage_fetches_with_the_librarys_environment_variables(tmp_path):
    """In a process of its own: mirror, cache and offline mode are read when the library is imported."""
    (tmp_path / "study.json").write_text(STUDY.replace("REVISION", COMMIT))

    def threespo(*command, **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "threespo.cli",
                *command,
                str(tmp_path / "study.json"),
                "--env",
                "alfworld",
            ]
            + (["--policy", "base"] if command[0] == "policy" else []),
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / "home"), **variables},
            capture_output=True,
            text=True,
        )

    assert threespo("data").returncode == 0
    with serve("owner/tiny", MODEL) as server:
        refused = threespo("policy", HF_ENDPOINT=server.url, HF_HUB_OFFLINE="1")
        assert (refused.returncode, server.seen) == (2, [])
        assert "HF_HUB_OFFLINE forbids" in refused.stderr
        done = threespo("policy", HF_ENDPOINT=server.url, HF_TOKEN="hf_secret")
        assert done.returncode == 0, done.stderr
        assert set(server.seen) == {"Bearer hf_secret"}
    (described,) = tmp_path.rglob("policy.json")
    assert json.loads(described.read_text()) == {
        "kind": "pretrained", "source": "owner/tiny", "revision": COMMIT, "files": FETCHED,
    }  # fmt: skip
    assert list((tmp_path / "home" / "hub").glob("models--owner--tiny/snapshots/*/config.json"))
    assert "hf_secret" not in described.read_text() + done.stderr + done.stdout
