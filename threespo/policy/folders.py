"""Folders of a model, and those that hold parts of one: what is missing, and the command that makes a model of them."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from threespo.errors import InputError, format_names

_REQUIRED: dict[str, tuple[str, ...]] = {
    "model configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
}

MERGED = "merged"
"""What the commands call the folder that they write."""


class _Parts(NamedTuple):
    """Files that are no model by themselves."""

    pattern: str
    what: str
    command: Callable[[Path, str], str]
    """From the folder and the found file's name to the command that makes a model of it."""


def check_model_folder(folder: Path) -> None:
    """Check that a folder holds a whole model.

    Raises:
        InputError: if a part is missing, or the folder holds an adapter or shards: with the command that merges them.
    """
    adapted = folder / "adapter_config.json"
    lacking = [
        what
        for what, names in _REQUIRED.items()
        if not any(next(folder.glob(name), None) for name in names)
    ]
    if not lacking and not adapted.is_file():
        return

    for kind in _KINDS:
        if (found := next(iter(sorted(folder.glob(kind.pattern))), None)) is not None:
            name = found.relative_to(folder).as_posix()
            raise InputError(
                f"{folder}: {kind.what} ({name}), and no whole model. Merge first: {kind.command(folder, name)} and give "
                f"the folder {MERGED!r}, with the tokenizer's files in it."
            )
    names = ", ".join(_REQUIRED[lacking[0]])
    there = format_names(sorted(path.name for path in folder.iterdir())[:8])
    raise InputError(
        f"{folder}: no {lacking[0]} in this model folder (looked for {names}; there is: {there}). "
        "Give a complete Hugging Face folder, as save_pretrained writes it for model and tokenizer."
    )


def suggest_remedy(error: Exception, is_folder: bool) -> str:
    """Return what helps where a model cannot be loaded.

    Args:
        error: why.
        is_folder: whether it is in a folder, or a name on a hub.
    """
    import transformers

    words = str(error)
    if isinstance(error, ImportError):
        return "Install what it asks for, or choose another model."
    if "does not recognize this architecture" in words or "Unrecognized configuration class" in words:
        return f"transformers {transformers.__version__} has no such causal language model; choose another one."
    if "quantiz" in words.lower():
        return "Give weights that are not quantized: they are trained here."
    if is_folder:
        return f"Restore the folder; if it is whole, transformers {transformers.__version__} does not run this model."
    return "Check the name and the network, or give a local folder."


def _of_adapter(folder: Path, _: str) -> str:
    try:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))[
            "base_model_name_or_path"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        base = None
    words = (
        folder
        if any(next(folder.glob(name), None) for name in _REQUIRED["tokenizer"])
        else base or "BASE_MODEL"
    )
    lines = (
        "from peft import AutoPeftModelForCausalLM as M; from transformers import AutoTokenizer as T; "
        f"M.from_pretrained({str(folder)!r}).merge_and_unload().save_pretrained({MERGED!r}); "
        f"T.from_pretrained({str(words)!r}).save_pretrained({MERGED!r})"
    )
    return f"python -c {shlex.quote(lines)}"


def _of_gguf(folder: Path, name: str) -> str:
    lines = (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        f"[K.from_pretrained({str(folder)!r}, gguf_file={name!r}).save_pretrained({MERGED!r}) for K in (M, T)]"
    )
    return f"python -c {shlex.quote(lines)}"


def _of_zero(folder: Path, name: str) -> str:
    # DeepSpeed leaves its script beside the folder that the shards lie in.
    place = folder if "/" in name or name == "zero_to_fp32.py" else folder.parent
    script = place / "zero_to_fp32.py"
    run = shlex.quote(str(script)) if script.is_file() else "-m deepspeed.utils.zero_to_fp32"
    return f"python {run} {shlex.quote(str(place))} {MERGED} --safe_serialization"


def _of_verl(backend: str) -> Callable[[Path, str], str]:
    def command(folder: Path, _: str) -> str:
        place = shlex.quote(str(folder))
        return f"python -m verl.model_merger merge --backend {backend} --local_dir {place} --target_dir {MERGED}"

    return command


def _of_distributed(folder: Path, name: str) -> str:
    return f"accelerate merge-weights {shlex.quote(str((folder / name).parent))} {MERGED}"


_KINDS = (
    _Parts("adapter_config.json", "an adapter (LoRA)", _of_adapter),
    _Parts("model_world_size_*_rank_*.pt", "shards of FSDP, as verl writes them", _of_verl("fsdp")),
    _Parts("dist_ckpt", "shards of Megatron, as verl writes them", _of_verl("megatron")),
    _Parts("zero_to_fp32.py", "shards of ZeRO", _of_zero),
    _Parts("*zero_pp_rank_*_optim_states.pt", "shards of ZeRO", _of_zero),
    _Parts("*/*zero_pp_rank_*_optim_states.pt", "shards of ZeRO", _of_zero),
    _Parts("*.distcp", "shards of FSDP", _of_distributed),
    _Parts("*/*.distcp", "shards of FSDP", _of_distributed),
    _Parts("*.gguf", "weights in the form GGUF", _of_gguf),
)
"""What people have in the place of a model, the first that fits."""
