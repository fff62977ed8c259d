"""Model folders: what is missing in one, and the command that makes a model of an adapter or of shards."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from threespo.errors import InputError, format_names

_REQUIRED_FILES: dict[str, tuple[str, ...]] = {
    "model configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
}

MERGED_FOLDER = "merged"
"""The folder that the commands write."""


class _PartialModel(NamedTuple):
    """Files that are no model by themselves."""

    pattern: str
    description: str
    merge_command: Callable[[Path, str], str]
    """From the folder and the name of the file that was found to the command that makes a model of it."""


def check_model_folder(folder: Path) -> None:
    """Check that a folder holds a complete model.

    Raises:
        InputError: if a part is missing, or the folder holds an adapter or shards: with the command that merges them.
    """
    # An adapter's folder may have configuration and tokenizer of its base, so that nothing seems to be missing.
    missing = [part for part, patterns in _REQUIRED_FILES.items() if not _has_any(folder, patterns)]
    if not missing and not (folder / "adapter_config.json").is_file():
        return

    for kind in _PARTIAL_MODELS:
        files = sorted(folder.glob(kind.pattern))
        if files:
            name = files[0].relative_to(folder).as_posix()
            command = kind.merge_command(folder, name)
            raise InputError(
                f"{folder}: {kind.description} ({name}), and no whole model. Merge first: {command} and give "
                f"the folder {MERGED_FOLDER!r}, with the tokenizer's files in it."
            )

    expected = ", ".join(_REQUIRED_FILES[missing[0]])
    present = format_names(sorted(path.name for path in folder.iterdir())[:8])
    raise InputError(
        f"{folder}: no {missing[0]} in this model folder (looked for {expected}; there is: {present}). "
        "Give a complete Hugging Face folder, as save_pretrained writes it for model and tokenizer."
    )


def _has_any(folder: Path, patterns: tuple[str, ...]) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in patterns)


def suggest_remedy(error: Exception, is_folder: bool) -> str:
    """Return what helps where a model cannot be loaded.

    Args:
        error: why.
        is_folder: whether it is in a folder, or a name on a hub.
    """
    import transformers

    message = str(error)
    if isinstance(error, ImportError):
        return "Install what it asks for, or choose another model."
    if (
        "does not recognize this architecture" in message
        or "Unrecognized configuration class" in message
    ):
        return f"transformers {transformers.__version__} has no such causal language model; choose another one."
    if "quantiz" in message.lower():
        return "Give weights that are not quantized: they are trained here."
    if is_folder:
        return f"Restore the folder; if it is whole, transformers {transformers.__version__} does not run this model."
    return "Check the name and the network, or give a local folder."


def _merge_adapter(folder: Path, _: str) -> str:
    tokenizer_source = str(folder)
    if not _has_any(folder, _REQUIRED_FILES["tokenizer"]):
        tokenizer_source = str(_read_adapter_base(folder) or "BASE_MODEL")
    code = (
        "from peft import AutoPeftModelForCausalLM as M; from transformers import AutoTokenizer as T; "
        f"M.from_pretrained({str(folder)!r}).merge_and_unload().save_pretrained({MERGED_FOLDER!r}); "
        f"T.from_pretrained({tokenizer_source!r}).save_pretrained({MERGED_FOLDER!r})"
    )
    return f"python -c {shlex.quote(code)}"


def _read_adapter_base(folder: Path) -> str | None:
    """Return the model that an adapter was trained on; ``None`` if its configuration does not say."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base: str | None = config["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return base


def _convert_gguf(folder: Path, name: str) -> str:
    code = (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        f"[K.from_pretrained({str(folder)!r}, gguf_file={name!r}).save_pretrained({MERGED_FOLDER!r}) for K in (M, T)]"
    )
    return f"python -c {shlex.quote(code)}"


def _merge_zero_shards(folder: Path, name: str) -> str:
    # DeepSpeed writes its script into the parent of the folder with the shards.
    checkpoint = folder if "/" in name or name == "zero_to_fp32.py" else folder.parent
    script = checkpoint / "zero_to_fp32.py"
    program = shlex.quote(str(script)) if script.is_file() else "-m deepspeed.utils.zero_to_fp32"
    return f"python {program} {shlex.quote(str(checkpoint))} {MERGED_FOLDER} --safe_serialization"


def _merge_verl_fsdp(folder: Path, _: str) -> str:
    return _merge_verl_shards(folder, "fsdp")


def _merge_verl_megatron(folder: Path, _: str) -> str:
    return _merge_verl_shards(folder, "megatron")


def _merge_verl_shards(folder: Path, backend: str) -> str:
    source = shlex.quote(str(folder))
    return f"python -m verl.model_merger merge --backend {backend} --local_dir {source} --target_dir {MERGED_FOLDER}"


def _merge_distributed(folder: Path, name: str) -> str:
    return f"accelerate merge-weights {shlex.quote(str((folder / name).parent))} {MERGED_FOLDER}"


_PARTIAL_MODELS = (
    _PartialModel("adapter_config.json", "an adapter (LoRA)", _merge_adapter),
    _PartialModel(
        "model_world_size_*_rank_*.pt", "shards of FSDP, as verl writes them", _merge_verl_fsdp
    ),
    _PartialModel("dist_ckpt", "shards of Megatron, as verl writes them", _merge_verl_megatron),
    _PartialModel("zero_to_fp32.py", "shards of ZeRO", _merge_zero_shards),
    _PartialModel("*zero_pp_rank_*_optim_states.pt", "shards of ZeRO", _merge_zero_shards),
    _PartialModel("*/*zero_pp_rank_*_optim_states.pt", "shards of ZeRO", _merge_zero_shards),
    _PartialModel("*.distcp", "shards of FSDP", _merge_distributed),
    _PartialModel("*/*.distcp", "shards of FSDP", _merge_distributed),
    _PartialModel("*.gguf", "weights in the form GGUF", _convert_gguf),
)
"""What a folder may contain instead of a model; the first pattern that matches counts."""
