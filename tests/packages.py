"""A tiny language model in a package, as the Python package index has them: quantised, in the form GGUF, in a wheel."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from tokenizers import pre_tokenizers

from threespo.policy.packaged_model import ModelPackage, dequantise

PROJECT = "llm-tiny"
VERSION = "0.0.3"
WHEEL = "llm_tiny-0.0.3-py3-none-any.whl"
FILE = "llm_tiny/tiny.gguf"

HIDDEN, HEADS, KV_HEADS, MLP, LAYERS = 64, 4, 2, 96, 2

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)

SPECIAL = ("<|endoftext|>", "<|start|>", "<|end|>")


def write_gguf(file: Path, *, template: str | None = TEMPLATE, seed: int = 0) -> dict[str, np.ndarray]:
    """Write a Llama of two layers, matrices in Q4_1, and return its tensors before they were quantised, by GGUF's names."""
    rng = np.random.default_rng(seed)
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ca", "12"]
    shapes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * HIDDEN // HEADS, HIDDEN),
        "attn_v": (KV_HEADS * HIDDEN // HEADS, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (MLP, HIDDEN),
        "ffn_up": (MLP, HIDDEN),
        "ffn_down": (HIDDEN, MLP),
    }
    tensors = {"token_embd.weight": rng.normal(0, 0.2, (len(words), HIDDEN))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = rng.normal(0, 0.2, shape)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = rng.normal(1, 0.1, HIDDEN)
    tensors["output_norm.weight"] = rng.normal(1, 0.1, HIDDEN)
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}

    writer = GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(words) - len(SPECIAL)))
    writer.add_token_merges(["c a", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    for name, tensor in tensors.items():
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor)
        else:
            kind = GGMLQuantizationType.Q4_1
            writer.add_tensor(name, quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def write_wheel(folder: Path, *, template: str | None = TEMPLATE) -> ModelPackage:
    """Write the wheel of a tiny model into a folder, and return what a catalogue would say of it."""
    model = folder / "tiny.gguf"
    write_gguf(model, template=template)
    about = f"{WHEEL.split('-py3')[0]}.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.write(model, FILE)
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {VERSION}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    (folder / "made").mkdir()
    weights = dequantise(model, folder / "made")
    return ModelPackage(
        project=PROJECT,
        version=VERSION,
        wheel=WHEEL,
        wheel_bytes=(folder / WHEEL).stat().st_size,
        wheel_sha256=sha256(folder / WHEEL),
        hub="Someone/Tiny",
        file=FILE,
        file_bytes=model.stat().st_size,
        file_sha256=sha256(model),
        weights_sha256=weights,
        folder_bytes=1,
    )


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
