"""A model that comes in a package of the Python package index: fetched by pip, checked, dequantised, kept.

Such a package needs no account and no model hub: wherever packages can be installed, a study with a language model can
run. The model lies in it as one quantised GGUF file. Made of it, once, is a complete Hugging Face folder in float32 below
``HF_HOME``, beside the hub's models, and every later use is of that folder.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from threespo.errors import InputError
from threespo.files import replace_folder
from threespo.provenance.digests import file_digest
from threespo.settings import Settings

PIP_DOWNLOAD = (
    "-m", "pip", "download", "--disable-pip-version-check", "--no-input",
    # A wheel is only unpacked; a source archive would be run.
    "--no-deps", "--only-binary=:all:",
)  # fmt: skip

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal digits."""

ROUND_TRIP = 'You see a cabinet 12, a drawer 3 and "Über" <think> 7\n\n  go to: shelf 1 </think>\n<action>look</action>'
"""Encoded and decoded to see that a tokenizer loses nothing."""


class ModelPackage(Settings):
    """A package of the Python package index with a model in the form GGUF, quantised."""

    project: str
    version: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: Digest
    hub: str
    """The same model at the model hub, where it is not quantised."""
    file: str
    """The GGUF file's name in the wheel."""
    file_bytes: int
    file_sha256: Digest
    weights_sha256: Digest
    """Of the dequantised tensors: it holds libraries to the numbers that were tested."""
    folder_bytes: int
    """About the size of the folder that is made of it."""


def provide_packaged_model(name: str, package: ModelPackage) -> Path:
    """Return the folder of a model that comes in a package, after making it where it is not there yet.

    Args:
        name: of the model.
        package: what carries it.

    Raises:
        InputError: if the package cannot be fetched (names both other ways), is another file than the pinned one, or what
            libraries make of it is not the tested model. Nothing half-made stays.
    """
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # it is public, and not marked so

    folder = model_folder(name, package)
    if folder.is_dir():
        return folder

    folder.parent.mkdir(parents=True, exist_ok=True)
    # Jobs of several environments may begin at the same time: the first one makes the folder.
    with WeakFileLock(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            wheel = _provide_wheel(name, package)
            print(f"model {name}: unpacked and dequantised, once, into {folder}", file=sys.stderr)
            with replace_folder(folder) as temporary:
                _make_folder(wheel, package, temporary)
            print(f"model {name}: ready in {folder}", file=sys.stderr)
    return folder


def read_package(values: object, file: Path) -> ModelPackage:
    """Return the package that a policy's description in ``file`` names.

    Raises:
        InputError: if it is none.
    """
    try:
        return ModelPackage.model_validate(values)
    except ValidationError as error:
        raise InputError(
            f"{file}: no package of a model in it ({error.error_count()} fields are wrong). Remove its folder and run the "
            "study again: the policy stage makes it anew."
        ) from error


def model_folder(name: str, package: ModelPackage) -> Path:
    """Return where the folder of a packaged model lies; its name has the digest of its weights."""
    return _cache() / f"{name}-{package.weights_sha256[:12]}"


def _cache() -> Path:
    # As the hub's library has it, which takes a while to import.
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HF_HOME") or caches / "huggingface") / "threespo"


def _provide_wheel(name: str, package: ModelPackage) -> Path:
    """Return the package's file: one that somebody has put there, or what pip fetches."""
    wheel = _cache() / package.wheel
    if wheel.is_file():
        found = file_digest(wheel)
        if found != package.wheel_sha256:
            raise InputError(
                f"{wheel}: not the file that is pinned for {name} (SHA-256 {found}, expected {package.wheel_sha256}; "
                f"{wheel.stat().st_size:,} of {package.wheel_bytes:,} bytes). Remove it and run again: pip fetches it anew."
            )
        return wheel

    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix=".pip-") as work:
        print(
            f"model {name}: pip fetches {package.project} {package.version}, {package.wheel_bytes:,} bytes, once",
            file=sys.stderr,
            flush=True,
        )
        failure = _download(package, Path(work))
        fetched = Path(work) / package.wheel
        if not failure and not fetched.is_file():
            failure = f"the index has no {package.wheel}"
        if failure:
            raise InputError(
                f"{package.project} {package.version}: not fetched from the package index ({failure}). Run again when it "
                f"can be reached, put {package.wheel} into {wheel.parent} by hand, or give 'source: {package.hub}', the "
                "model at the hub"
            )
        found = file_digest(fetched)
        if found != package.wheel_sha256:
            raise InputError(
                f"{package.project} {package.version}: the package index gave a file with the SHA-256 {found}, and "
                f"{package.wheel_sha256} is pinned for {name}. It was deleted; run again with another index (PIP_INDEX_URL)."
            )
        # Complete and verified: only now it gets its name.
        fetched.replace(wheel)
    return wheel


def _download(package: ModelPackage, folder: Path) -> str:
    """Let pip fetch a package into a folder; return why it failed, or nothing.

    Pip knows the user's index, mirror, proxy and certificates, and resumes a transfer that breaks off.
    """
    if importlib.util.find_spec("pip") is None:
        return "this Python has no pip: python -m ensurepip"
    command = [
        *(sys.executable, *PIP_DOWNLOAD, "--dest", str(folder)),
        f"{package.project}=={package.version}",
    ]
    # Standard output has pip's progress, and belongs to the log.
    done = subprocess.run(
        command, stdout=2, stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
    reason = (errors or done.stderr.splitlines() or [f"pip ended with {done.returncode}"])[0]
    return reason.removeprefix("ERROR:").strip()[:300]


def _make_folder(wheel: Path, package: ModelPackage, folder: Path) -> None:
    """Write the Hugging Face folder of the model in a wheel, and make sure that it is the tested one."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gguf-") as work:
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(package.file, work))
        found = file_digest(file)
        if found != package.file_sha256:
            raise InputError(
                f"{wheel}: {package.file} in it has the SHA-256 {found}, expected {package.file_sha256}. Remove the wheel "
                "and run again: pip fetches it anew."
            )
        weights_sha256 = dequantise(file, folder)

    if weights_sha256 != package.weights_sha256:
        import gguf
        import transformers

        raise InputError(
            f"{package.file}: dequantised to other weights than the tested ones (SHA-256 {weights_sha256}, expected "
            f"{package.weights_sha256}) by transformers {transformers.__version__} and gguf "
            f"{getattr(gguf, '__version__', 'of unknown version')}. Install the versions of constraints.txt."
        )
    check_conversation(folder)


def dequantise(file: Path, folder: Path) -> str:
    """Write the model of a GGUF file as a Hugging Face folder in float32 with tokenizer; return the digest of its weights.

    Args:
        file: of a causal language model with a byte-level tokenizer.
        folder: is there, and empty.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    location: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    config = AutoConfig.from_pretrained(file.parent, **location)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    # Not ``from_pretrained``: what it reads from GGUF counts as quantised and refuses to be saved; and it asks for
    # accelerate, which, once installed, every import of transformers loads. A tied head is not in the file.
    weights = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    model.save_pretrained(folder)

    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **location)
    if _reads_digits_one_by_one(file):
        # transformers takes every byte-level tokenizer of a GGUF file for GPT-2's, which joins digits.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    return digest_weights(model.state_dict())


def _reads_digits_one_by_one(file: Path) -> bool:
    from gguf import GGUFReader

    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    return field is not None and field.contents() == "smollm"


def digest_weights(weights: Mapping[str, Any]) -> str:
    """Return the SHA-256 of tensors: of the name, shape, type and numbers of each, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().contiguous().numpy())
    return digest.hexdigest()


def check_conversation(folder: Path) -> None:
    """Check that a model's folder has a chat template, and a tokenizer that gives back what it was given.

    Raises:
        InputError: if it has not.
    """
    from threespo.policy.model import load_policy_without_model

    words = load_policy_without_model(str(folder))
    if words.template is None:
        raise InputError(
            f"{folder.name}: the tokenizer has no chat template, so a prompt has no place in it. Choose a model that "
            "follows instructions."
        )
    check_round_trip(words, [ROUND_TRIP])


def check_round_trip(words: Any, texts: list[str]) -> None:
    """Check that texts come back unchanged from a policy's tokenizer.

    Args:
        words: the policy; its weights are not needed.
        texts: responses, without the thought that the chat template opens.

    Raises:
        InputError: if one does not.
    """
    tokens = words.tokenizer(texts, add_special_tokens=False)["input_ids"]
    for text, decoded in zip(texts, words.decode(tokens), strict=True):
        if decoded != words.opening + text:
            raise InputError(
                f"{words.source}: the tokenizer does not give back what it is given: {text[:200]!r} comes back as "
                f"{decoded[:200]!r}, so actions could not be read. Choose a model with a byte-level tokenizer."
            )


def check_prompts(words: Any, prompts: list[str], rendered: list[str]) -> None:
    """Check that prompts survive a policy's tokenizer, white space apart.

    Args:
        words: the policy; its weights are not needed.
        prompts: what they say.
        rendered: the same, set into the chat template.

    Raises:
        InputError: if one does not.
    """
    tokens = words.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    texts = words.tokenizer.batch_decode(tokens, skip_special_tokens=False)
    for prompt, text in zip(prompts, texts, strict=True):
        # Some tokenizers write a blank beside a special token.
        if "".join(prompt.split()) not in "".join(text.split()):
            lost = next((word for word in prompt.split() if word not in text), prompt[:80])
            raise InputError(
                f"{words.source}: the tokenizer loses a part of the prompts ({lost!r}), so the model would not read it. "
                "Choose a model with a byte-level tokenizer."
            )
