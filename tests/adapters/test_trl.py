"""TRL itself reads the tools, and takes a training step with an environment of ours; the model is tiny and random."""

import functools
import inspect

import pytest
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen3_chat_template

from threespo.adapters.trl import ALFWorldTools, WebShopTools, make_dataset_rows


@pytest.mark.parametrize("kind", [ALFWorldTools, WebShopTools])
def test_every_tool_has_a_schema(kind):
    methods = inspect.getmembers(kind, inspect.isfunction)
    tools = [
        method
        for name, method in methods
        if not name.startswith("_") and name not in ("reset", "get_reward")
    ]
    assert tools
    for tool in tools:
        schema = get_json_schema(tool)["function"]
        assert schema["description"]
        assert set(schema["parameters"]["properties"]) == set(inspect.signature(tool).parameters) - {
            "self"
        }


@pytest.fixture
def tokenizer():
    """A tokenizer of bytes with Qwen's template for tools."""
    inner = Tokenizer(models.BPE(byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    inner.train_from_iterator(
        [],
        trainers.BpeTrainer(
            special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.chat_template = qwen3_chat_template
    return made


def test_grpo_takes_a_step_with_the_environments_own_reward(tokenizer, tmp_path):
    """What a random model says is no tool call: the games are reset, asked for their reward, and a step is taken."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    begun = []

    class Recorded(ALFWorldTools):
        def reset(self, task=0, **row):
            begun.append(task)
            return super().reset(task, **row)

    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=8,
        max_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    dataset = Dataset.from_list(make_dataset_rows("alfworld", split="valid_unseen")[:4])
    trainer = trl.GRPOTrainer(
        model=Qwen3ForCausalLM(config),
        args=arguments,
        train_dataset=dataset,
        processing_class=tokenizer,
        environment_factory=functools.partial(Recorded, split="valid_unseen"),
    )
    trainer.train()
    assert trainer.state.global_step == 1
    assert len(begun) == 2
    assert begun[0] == begun[1] in dataset["task"]
    assert trainer.state.log_history[0]["rewards/Recorded/mean"] == 0.0
