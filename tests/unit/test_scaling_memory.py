"""Planned memory beside what DeepSpeed and autograd really hold, at a size where both can be counted."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from threespo.learner.forward import Group, ResponseScorer, pack_groups
from threespo.scaling.memory import (
    BUCKET,
    MemorySettings,
    activation_bytes,
    estimate_memory,
    state_bytes,
)
from threespo.scaling.shapes import KNOWN_SHAPES, ModelShape

ROOT = Path(__file__).resolve().parents[2]
SHAPE = ModelShape(
    layers=3, hidden=256, heads=8, kv_heads=2, mlp=768, vocabulary=512, head_dim=32, tied=True
)
PLAIN = MemorySettings(
    ranks=1, zero_stage=0, wide=True, micro_batch_tokens=64, scored=32, checkpointing=False, offload=False, reference=False,
    critic=False, entropy=False, colocated=False, cache=0.0,
)  # fmt: skip

# Takes two steps of several micro-batches with each setting and prints the most bytes that tensors held at once: between two
# micro-batches, when gradients are added up, and at the step.
SCRIPT = """
import gc, json, sys
import deepspeed, torch
from tests.models import rows, tokenizer
from threespo.learner import backend, engine
from threespo.learner.optim import OptimSettings
from threespo.policy.model import make_policy
from threespo.protocol import LossSettings
from tests.unit.test_scaling_memory import model, SHAPE

torch.set_num_threads(1)
kinds, alive = (torch.Tensor, torch.nn.Parameter), []

def held():
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) in kinds]
    tensors += [one.grad for one in tensors if one.is_leaf and one.grad is not None]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())

def watched(function, seen, before):
    def call(*arguments):
        seen.append(held() - before)
        return function(*arguments)
    return call

def initialize(*arguments, config, **rest):
    # What memory is planned for: gradients of bfloat16 weights are added up in float32.
    return start(*arguments, config={**config, "data_types": {"grad_accum_dtype": "fp32"}}, **rest)

start, deepspeed.initialize, pack, step = deepspeed.initialize, initialize, engine.pack_groups, backend.take_optimizer_step
for stage, dtype in json.loads(sys.argv[1]):
    before, seen = held(), []
    policy = make_policy(model(SHAPE, getattr(torch, dtype)), tokenizer(), "random")
    learner = engine.DeepSpeedLearner(policy, None, OptimSettings(zero_stage=stage, dtype=dtype, micro_batch_tokens=64))
    # The optimizer's moments are there from the second step on.
    learner.step(rows(0, 4, 4, version=0), LossSettings(kl_coef=0.0))
    engine.pack_groups, backend.take_optimizer_step = watched(pack, seen, before), watched(step, seen, before)
    learner.step(rows(0, 4, 4, version=1), LossSettings(kl_coef=0.0))
    if backend.get_rank() == 0:
        print("HELD", json.dumps([backend.get_world_size(), stage, dtype, max(seen)]), flush=True)
    engine.pack_groups, backend.take_optimizer_step = pack, step
    # Kept, so that no memory of an earlier case is given back while a later one is measured.
    alive.append((policy, learner))
"""


def model(shape, dtype):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=1024,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config).to(dtype)


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_as_the_stock_model_has_them(tied):
    shape = replace(SHAPE, tied=tied)
    assert shape.parameters == sum(weight.numel() for weight in model(shape, torch.float32).parameters())


def test_known_models_have_the_sizes_that_their_cards_say():
    # https://huggingface.co/HuggingFaceTB: 135 million; /Qwen: 0.49, 1.54, 3.09, 7.61 and 14.7 billion.
    cards = (0.135, 0.49, 1.54, 3.09, 7.61, 14.7)
    assert [shape.parameters / 1e9 for shape in KNOWN_SHAPES.values()] == pytest.approx(cards, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_states_are_within_a_tenth_of_what_deepspeed_holds(tmp_path, ranks):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    launcher = (
        ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
        if ranks > 1
        else []
    )
    # ZeRO 3 last: it changes how modules are made as long as the process lives.
    alone, together = [[0, "float32"]], [[1, "float32"], [1, "bfloat16"], [3, "bfloat16"]]
    cases = [*alone, [2, "bfloat16"]] if ranks == 1 else [*together[:2], [2, "bfloat16"], *together[2:]]
    done = subprocess.run(
        [sys.executable, *launcher, str(script), json.dumps(cases)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [
        json.loads(line.removeprefix("HELD"))
        for line in done.stdout.splitlines()
        if line.startswith("HELD")
    ]
    assert [[stage, dtype] for _, stage, dtype, _ in found] == cases

    for world, stage, dtype, held in found:
        assert world == ranks
        settings = replace(PLAIN, ranks=ranks, zero_stage=stage, wide=dtype == "float32")
        # The buffer of gradients has the size that a GPU's has, whatever the model's; so it is compared apart.
        bucket = BUCKET * settings.size
        whole = held > bucket
        assert not whole or estimate_memory(SHAPE, settings).buffers == bucket
        assert whole or stage < 3
        planned = sum(state_bytes(SHAPE.parameters, settings))
        assert planned == pytest.approx(held - bucket * whole, rel=0.1), (stage, dtype)


@pytest.mark.parametrize("kv_heads", [2, 8])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_activations_are_within_a_tenth_of_what_autograd_keeps(kv_heads, checkpointing, dtype):
    shape = replace(SHAPE, kv_heads=kv_heads)
    stock = model(shape, dtype)
    scorer = ResponseScorer(stock)
    if checkpointing:
        stock.gradient_checkpointing_enable({"use_reentrant": False})
    stock.train()
    numbers = iter(range(100_000))
    drawn = [[next(numbers) % 512 for _ in range(30)] for _ in range(8)]
    prompts = [tuple(next(numbers) % 512 for _ in range(200)) for _ in range(2)]
    groups = [
        Group(prompt, tuple(map(tuple, drawn[at : at + 4])), tuple(range(at, at + 4)))
        for at, prompt in zip((0, 4), prompts, strict=True)
    ]
    packed = pack_groups(groups, torch.device("cpu"), dtype)

    own = {weight.untyped_storage().data_ptr() for weight in stock.parameters()}
    found: dict[int, int] = {}
    alive = []

    def keep(tensor):
        alive.append(tensor)
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scorer(packed, 1.0)
    real = sum(size for place, size in found.items() if place not in own)

    settings = replace(
        PLAIN,
        wide=dtype == torch.float32,
        micro_batch_tokens=packed.tokens.shape[1],
        scored=len(packed.targets),
        checkpointing=checkpointing,
    )
    planned = activation_bytes(shape, settings)
    if checkpointing:
        # The layer that is computed anew is no part of what the forward pass keeps.
        two, one = (
            activation_bytes(replace(shape, layers=layers), replace(settings, checkpointing=False))
            for layers in (2, 1)
        )
        planned -= two - one
    assert planned == pytest.approx(real, rel=0.1)


def test_ranks_and_stages_divide_what_they_say():
    seven = KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"]
    settings = replace(
        PLAIN, wide=False, reference=True, colocated=True, cache=6e9, micro_batch_tokens=4096, scored=768
    )
    settings = replace(settings, checkpointing=True, entropy=True)
    one = estimate_memory(seven, settings)
    assert not one.fits(141e9)
    assert estimate_memory(seven, replace(settings, ranks=2, zero_stage=2)).fits(141e9)
    assert not estimate_memory(seven, replace(settings, ranks=2, zero_stage=1)).fits(141e9)
    assert estimate_memory(seven, replace(settings, ranks=4, zero_stage=3)).fits(80e9)
    assert not estimate_memory(seven, replace(settings, ranks=4, zero_stage=2)).fits(80e9)
    assert estimate_memory(seven, replace(settings, offload=True)).host == one.optimizer
