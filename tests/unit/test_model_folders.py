"""Folders that hold parts of a model, each told by the command that makes a model of it; what doctor says of a model."""

import json
import shlex

import pytest
import torch
from safetensors.torch import save_file

from tests.templates import CLOCK, PLAIN, SWITCHED, THOUGHTS, folder, tokenizer
from threespo.cli import main
from threespo.errors import InputError
from threespo.policy.folders import check_model_folder
from threespo.policy.model import load_policy
from threespo.scaling import model_report

ADAPTER = {
    "adapter_config.json": json.dumps({"base_model_name_or_path": "Owner/Base"}),
    "adapter_model.safetensors": "",
}
WORDS = {"tokenizer.json": "{}", "tokenizer_config.json": "{}"}
CONFIG = {"config.json": "{}"}

PARTS = {
    "adapter": (ADAPTER, "an adapter", ["AutoPeftModelForCausalLM", "merge_and_unload", "'Owner/Base'"]),
    "adapter with words": ({**ADAPTER, **WORDS}, "an adapter", ["T.from_pretrained('FOLDER')"]),
    "adapter of nothing": ({"adapter_config.json": "["}, "an adapter", ["BASE_MODEL"]),
    "adapter beside a model": (
        {**ADAPTER, **WORDS, **CONFIG, "model.safetensors": ""},
        "an adapter",
        ["merge_and_unload"],
    ),
    "verl": (
        {**CONFIG, "model_world_size_2_rank_0.pt": ""},
        "FSDP, as verl",
        ["--backend fsdp --local_dir FOLDER"],
    ),
    "verl, Megatron": (
        {"dist_ckpt/common.pt": ""},
        "Megatron",
        ["--backend megatron --local_dir FOLDER"],
    ),
    "ZeRO": (
        {
            **CONFIG,
            **WORDS,
            "zero_to_fp32.py": "",
            "global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt": "",
        },
        "shards of ZeRO",
        ["python FOLDER/zero_to_fp32.py FOLDER merged --safe_serialization"],
    ),
    "ZeRO's inner folder": (
        {"zero_pp_rank_0_mp_rank_00_optim_states.pt": ""},
        "shards of ZeRO",
        ["python -m deepspeed.utils.zero_to_fp32 PARENT merged"],
    ),
    "FSDP": (
        {**CONFIG, **WORDS, "__0_0.distcp": ""},
        "shards of FSDP",
        ["accelerate merge-weights FOLDER merged"],
    ),
    "FSDP below": (
        {"pytorch_model_fsdp_0/__0_0.distcp": ""},
        "FSDP",
        ["merge-weights FOLDER/pytorch_model_fsdp_0 merged"],
    ),
    "GGUF": ({"model-Q4.gguf": ""}, "GGUF", ["gguf_file='model-Q4.gguf'", "save_pretrained('merged')"]),
}


@pytest.mark.parametrize(("files", "what", "command"), PARTS.values(), ids=PARTS)
def test_parts_of_a_model_are_refused_with_the_command_that_merges_them(files, what, command, tmp_path):
    place = tmp_path / "my model"
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    with pytest.raises(InputError) as refused:
        load_policy(place)
    message = str(refused.value)
    assert what in message
    assert "\n" not in message
    merge = message.partition("Merge first: ")[2].partition(" and give the folder 'merged'")[0]
    # As a shell takes it apart, blanks in the folder's name included.
    words = " ".join(shlex.split(merge))
    for part in command:
        assert part.replace("FOLDER", str(place)).replace("PARENT", str(tmp_path)) in words
    if "python -c" in merge:
        compile(shlex.split(merge)[2], "command", "exec")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {**CONFIG, **WORDS, "flax_model.msgpack": ""},
            r"no weights .*there is: config.json, flax_model.msgpack",
        ),
        ({**CONFIG, **WORDS, "consolidated.00.pth": ""}, r"no weights .*consolidated.00.pth"),
        (WORDS, "no model configuration"),
        ({**CONFIG, "model.safetensors": ""}, "no tokenizer"),
        ({}, "there is: none"),
    ],
)
def test_what_is_missing_is_named_beside_what_is_there(files, says, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says):
        check_model_folder(tmp_path)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "t5"}, "has no such causal language model; choose another one"),
        ({"model_type": "model_of_2030"}, "has no such causal language model; choose another one"),
        (
            {"model_type": "qwen2", "hidden_size": "many"},
            "if it is whole, transformers .* does not run this model",
        ),
    ],
)
def test_a_model_that_does_not_load_is_told_by_its_reason(config, says, tmp_path):
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=says):
        load_policy(tmp_path)


def lines_of(found):
    return {name: rest.strip() for name, _, rest in (line.partition(" ") for line in found)}


def test_doctor_says_what_a_thinking_model_sees(tmp_path):
    place = folder(tmp_path, tokenizer(CLOCK.replace("FORMAT", "%d %b %Y").replace(PLAIN, SWITCHED)))
    found = model_report.report_model(str(place), {})
    assert len(found) <= 12
    said = lines_of(found)
    assert said["before"] == "'<system>Today is 26 Jul 2024.<user>'"
    assert said["behind"] == r"'<model><think>\n'"
    assert said["date"].startswith("the template takes 2024-07-26 for today")
    assert said["reads"].startswith("day, enable_thinking")
    assert said["thought"].startswith(
        "opened by the template, and counted as the answer's: '<think>\\n'"
    )
    assert said["ends"].startswith("'<end>' (")
    assert r"<model><think>\n" in said["prompt"][-20:]
    assert "You are an expert agent" in said["prompt"]
    assert said["answer"].startswith(
        r"a perfect one is read as valid: '<think>\nI look around.</think><action>go to "
    )
    alfworld, webshop = (int(part.split()[1]) for part in said["longest"].split("; ")[:2])
    assert alfworld > 1000
    assert webshop > 1000
    assert "TOO LONG" not in said["longest"]

    settings = {"chat_template_kwargs": {"enable_thinking": False}, "chat_template_date": "2031-01-05"}
    changed = lines_of(model_report.report_model(str(place), settings))
    assert changed["before"] == "'<system>Today is 05 Jan 2031.<user>'"
    assert changed["thought"] == "opened and closed by the template; the answer needs one of its own"
    assert changed["answer"].startswith("a perfect one is read as valid: '<think>I look")


def test_doctor_says_what_would_go_wrong(tmp_path):
    # A context that the prompts do not fit into, and a tokenizer that does not know the tags.
    short = lines_of(
        model_report.report_model(
            str(folder(tmp_path / "a", tokenizer(), max_position_embeddings=900)), {}
        )
    )
    assert short["longest"].count("TOO LONG for the context beside a response of 512") == 2
    assert short["date"] == "no clock is read"
    from tests.models import policy

    source = policy()
    source.model.save_pretrained(tmp_path / "b")
    source.tokenizer.save_pretrained(tmp_path / "b")
    assert "NOT read as valid" in lines_of(model_report.report_model(str(tmp_path / "b"), {}))["answer"]


def test_the_command(tmp_path, capsys):
    place = folder(tmp_path / "model", tokenizer(THOUGHTS["<think>"]))
    assert main(["doctor", "--model", str(place)]) == 0
    assert "counted as the answer's: '<think>'" in capsys.readouterr().out
    for arguments, says in (
        (["--model", str(tmp_path / "nowhere")], "there is no such model folder"),
        (["--model", "Owner/Nowhere"], "hf download Owner/Nowhere --exclude"),
        (["--model", str(place), "--set", "{dtype: float32}"], "--set: dtype: no such field"),
        (
            ["--model", str(place), "--set", "{chat_template_kwargs: {x: 1}}"],
            "kwargs.x: the chat template does not read it",
        ),
        (["--set", "{chat_template_date: '2025-01-01'}"], "give --model NAME_OR_FOLDER as well"),
    ):
        assert main(["doctor", *arguments]) == 2
        assert says in capsys.readouterr().err
