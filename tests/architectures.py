"""Tiny configurations of every causal architecture of the installed transformers, with random weights."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tests.models import tokenizer

SIZES = {
    24: "d_inner dim_ff decoder_ffn_dim encoder_ffn_dim expert_ffn_hidden_size ffn_dim ffn_hidden_size",
    48: "intermediate_size mlp_dim moe_intermediate_size n_inner shared_expert_intermediate_size",
    32: "d_model dim emb_dim embedding_size hidden_dim hidden_size lru_width n_embd",
    16: "pronunciation_embed_dim shape_embed_dim word_embed_proj_dim dff shared_intermediate_size",
    8: "head_dim attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim index_head_dim linear_key_head_dim "
    "linear_value_head_dim q_lora_rank kv_lora_rank gated_norm_rank adapter_rank laurel_rank hidden_size_per_layer_input "
    "mamba_dt_rank",
    4: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads num_key_value_heads "
    "linear_num_value_heads index_n_heads num_experts num_local_experts n_routed_experts moe_num_experts n_experts "
    "num_hidden_layers n_layer n_layers num_layers",
    2: "num_experts_per_tok moe_topk moe_k linear_num_key_heads zero_expert_num num_experts_per_token decoder_layers "
    "encoder_layers num_decoder_layers num_encoder_layers",
    64: "max_position_embeddings n_positions n_ctx max_seq_len max_target_positions context_length",
    80: "vocab_size vocab_size_per_layer_input pronunciation_vocab_size shape_vocab_size encoder_hash_byte_group_vocab",
    0: "pad_token_id num_kv_shared_layers",
    1: "bos_token_id n_group topk_group",
    3: "eos_token_id",
}
"""What configurations call their sizes."""

SMALL = {name: size for size, names in SIZES.items() for name in names.split()}

_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8}
_ZAMBA = {
    "num_hidden_layers": 6,
    "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2,
}
_INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8}
_BUDGET = {"indexer_budget": 64, "indexer_compress_ratio": 4}
_ROPE = {"rope_theta": 10_000.0, "rope_type": "default"}
_ROPES = {
    kind: {**_ROPE, "mrope_section": [1, 1, 2]} for kind in ("full_attention", "sliding_attention")
}
_HALF_LINEAR = {"layer_types": ["linear_attention", "full_attention"] * 2}

OWN: dict[str, dict[str, Any]] = {
    "bamba": {**_MAMBA, "attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": _ROPES},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {"n_shared_experts": 1},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {**_HALF_LINEAR, "linear_head_dim": 8, "linear_num_heads": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1},
    "mimo_v2_flash": {"head_dim": 24, "num_key_value_heads": 2},
    "nemotron_h": {
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "qwen4_exp_text": {**_HALF_LINEAR, "hc_lowrank": 8, "ple_embed_dim": 32, **_INDEXER, **_BUDGET},
    "reformer": {
        "is_decoder": True,
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "feed_forward_size": 48,
    },
    "xlstm": {"embedding_dim": 32, "num_blocks": 4},
    "zamba": {**_ZAMBA, "attn_layer_period": 3, "attn_layer_offset": 2},
    "zamba2": _ZAMBA,
    "zaya": {"num_experts_per_tok": 1},
}
"""Fields that belong together in an architecture's own way."""

CONFIGURATIONS: dict[str, type[PretrainedConfig]] = {
    kind.model_type: kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING
}


def tiny(kind: type[PretrainedConfig]) -> PretrainedConfig:
    """Return a configuration with a few thousand weights."""
    usual = kind()
    fields: dict[str, Any] = {name: SMALL[name] for name in vars(usual) if name in SMALL}
    own = OWN.get(kind.model_type, {})
    nested = {
        name: type(value) for name, value in vars(usual).items() if isinstance(value, PretrainedConfig)
    }
    parts = {name: tiny(part).to_dict() for name, part in nested.items() if name not in own}
    return kind(**{**fields, **parts, **own})


def save(kind: type[PretrainedConfig], folder: Path) -> None:
    """Write a model of an architecture with random weights, and a tokenizer, into a folder."""
    torch.manual_seed(0)
    config = tiny(kind)
    model: Any = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, float(parameter.detach().mean()), 0.1)
        else:
            nn.init.normal_(parameter, 0.0, 0.2)
    model.save_pretrained(folder)
    # A model of a nested configuration may have written its inner part alone, which is another kind.
    config.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def save_stub(kind: type[PretrainedConfig], folder: Path) -> None:
    """Write a folder of an architecture whose model cannot be made here: configuration, tokenizer and a weight."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind.model_type}))
    save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
    tokenizer().save_pretrained(folder)
