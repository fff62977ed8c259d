"""Policies are loaded from folders, prompts set into the chat template, and broken folders named."""

from pathlib import Path

import pytest
import torch

from tests.models import naive_logprobs, policy
from threespo.errors import InputError
from threespo.policy.model import load_policy, make_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = policy()
    source.model.save_pretrained(tmp_path / "model")
    source.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_policy_comes_back_the_same(folder: Path) -> None:
    before, after = policy(), load_policy(folder, "float32")
    assert after.eos_ids == before.eos_ids == {0}
    assert after.max_context == 256
    assert after.encode_prompt("w1 w2") == before.encode_prompt("w1 w2")
    with torch.no_grad():
        assert torch.equal(
            naive_logprobs(after, "w1 w2", (5, 6)), naive_logprobs(before, "w1 w2", (5, 6))
        )


def test_the_saved_tokenizer_is_used_not_that_of_the_architecture(folder: Path) -> None:
    assert len(load_policy(folder).tokenizer) == len(policy().tokenizer)


def test_a_prompt_is_set_into_the_chat_template(folder: Path) -> None:
    source = load_policy(folder)
    assert source.tokenizer.convert_ids_to_tokens(source.encode_prompt("w1 w2")) == [
        "<user>",
        "w1",
        "w2",
        "<reply>",
    ]


def test_without_a_chat_template_a_prompt_is_encoded_plainly(folder: Path) -> None:
    loaded = load_policy(folder)
    loaded.tokenizer.chat_template = None
    source = make_policy(loaded.model, loaded.tokenizer, "without")
    assert source.tokenizer.convert_ids_to_tokens(source.encode_prompt("w1 w2")) == ["w1", "w2"]


def test_changing_a_returned_encoding_changes_no_later_one(folder: Path) -> None:
    source = load_policy(folder)
    source.encode_prompt("w1").append(7)
    assert 7 not in source.encode_prompt("w1")


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("config.json", "model configuration"),
        ("tokenizer.json", "tokenizer"),
        ("model.safetensors", "weights"),
    ],
)
def test_an_incomplete_folder_is_named(folder: Path, missing: str, named: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(InputError, match=f"{folder.name}: no {named} .*{missing}|no {named}"):
        load_policy(folder)


def test_truncated_weights_are_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be loaded"):
        load_policy(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such model folder"):
        load_policy(tmp_path / "nowhere")


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    other = policy().tokenizer
    other.add_tokens(["extra"])
    other.save_pretrained(folder)
    with pytest.raises(InputError, match="64 tokens, the model 63"):
        load_policy(folder)


def test_an_unknown_dtype_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="dtype: found 'int8'"):
        load_policy(folder, "int8")
