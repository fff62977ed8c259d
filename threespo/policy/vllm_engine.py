"""The vLLM engine: started in this process, beside the learner on the same device, and asked for responses.

All that depends on vLLM's version is here. It gets its architecture from the policy in memory and its weights from
``threespo.policy.weight_sync``: it reads no model folder, no tokenizer and no generation defaults.
"""

import contextlib
import importlib.metadata
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from threespo.errors import InputError
from threespo.policy.model import Policy, text_config
from threespo.policy.settings import MAX_BATCH_ROWS, default_kv_cache_bytes

TESTED_VERSION = "0.32.0"
"""The version that `make test-vllm` runs: weights are overwritten in place, which no version promises to allow."""

_REMEDY = "Install the tested one (pip install -c constraints.txt -e '.[gpu]'), or set sampler: torch for the policy."

_ENVIRONMENT = {
    # The engine's model must be in this process, where the learner's tensors are.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # Threads are the study's business: they decide the bytes of a run.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """Responses that are asked for: ``count`` to one prompt; response i is drawn with the seed ``seed`` + i."""

    prompt: list[int]
    count: int
    seed: int


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """A response: its tokens, the natural-log probability of each where it was drawn, and whether it ended by itself."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


class Engine(Protocol):
    """What the sampler needs of an inference engine."""

    @property
    def model(self) -> nn.Module:
        """The model that it computes with; ``load_weights`` of it knows where a policy's tensors belong."""
        ...

    def generate(self, asked: Sequence[EngineRequest], temperature: float) -> list[list[EngineResponse]]:
        """Return ``count`` responses to each prompt, in order."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Forget all prompts that were read; return whether that was possible."""
        ...


def check_vllm_installed() -> None:
    """Check that vLLM is there, in the tested version, without importing it.

    Raises:
        InputError: if not.
    """
    homes = importlib.metadata.packages_distributions().get("vllm", [])
    if not homes:
        raise InputError(f"sampler: vllm, but vLLM is not installed. {_REMEDY}")
    version = importlib.metadata.version(homes[0])
    if version.partition("+")[0] != TESTED_VERSION:
        raise InputError(
            f"sampler: vllm, but vLLM {version} is installed, and {TESTED_VERSION} is what was tested. {_REMEDY}"
        )


class VllmEngine:
    """An engine for the architecture of a policy; its weights are random until they are synced (``Engine``)."""

    def __init__(
        self,
        policy: Policy,
        max_new_tokens: int,
        max_prompt_tokens: int,
        kv_cache_memory_bytes: int | None = None,
        memory_share: float | None = None,
    ) -> None:
        """Start the engine on the device that the policy is on.

        Args:
            policy: gives architecture, type of the weights, device and the tokens that end a response.
            max_new_tokens: responses are cut at this length.
            max_prompt_tokens: no prompt is longer.
            kv_cache_memory_bytes: of the cache; ``None``: as many as ``default_cache`` says.
            memory_share: instead, share of the device's memory for the engine's weights, activations and cache together.

        Raises:
            InputError: if vLLM is missing, is of another version, or cannot start (most often: for lack of memory).
        """
        check_vllm_installed()
        self._stop, self._max_new_tokens = sorted(policy.eos_ids), max_new_tokens
        length = max_prompt_tokens + max_new_tokens
        if memory_share is None:
            memory = {
                "kv_cache_memory_bytes": kv_cache_memory_bytes or kv_cache_bytes(policy, length),
                # The engine wants so much of the device to be free at its start, whatever is said of the cache.
                "gpu_memory_utilization": 0.01,
            }
        else:
            memory = {"gpu_memory_utilization": memory_share}

        on_cpu = policy.device.type == "cpu"
        if on_cpu:
            # Chunks of prompts would rewind the random numbers of a response, which generators of a CPU cannot do.
            memory |= {
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(8192, length),
                "enforce_eager": True,
            }

        os.environ |= {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            self._llm = _start(policy, length, on_cpu, memory)
        # Lack of memory is a ValueError of the engine's own count, or torch's OutOfMemoryError, a RuntimeError.
        except (ValueError, RuntimeError) as error:
            raise InputError(
                f"vLLM cannot start for {policy.source} ({str(error).strip().splitlines()[0]}). Change "
                "kv_cache_memory_bytes or memory_share in the policy's section 'vllm', or set sampler: torch."
            ) from error

        (self._model,) = self._llm.apply_model(lambda model: model)
        if on_cpu:
            check_weights_not_repacked(self._model)

    @property
    def model(self) -> nn.Module:
        model: nn.Module = self._model
        return model

    def generate(self, asked: Sequence[EngineRequest], temperature: float) -> list[list[EngineResponse]]:
        from vllm import SamplingParams

        # At temperature 0 all responses to a prompt are the same one, and the engine refuses to repeat itself.
        greedy = temperature == 0.0
        params = [
            SamplingParams(
                n=1 if greedy else one.count,
                seed=None if greedy else one.seed,
                temperature=temperature,
                max_tokens=self._max_new_tokens,
                stop_token_ids=self._stop,
                logprobs=0,
                detokenize=False,
            )
            for one in asked
        ]
        prompts = [{"prompt_token_ids": one.prompt} for one in asked]
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        replies = [[_reply(part, greedy) for part in output.outputs] for output in outputs]
        return [part * one.count if greedy else part for part, one in zip(replies, asked, strict=True)]

    def reset_prefix_cache(self) -> bool:
        return bool(self._llm.reset_prefix_cache())


def kv_cache_bytes(policy: Policy, length: int) -> int:
    """Return the bytes of the cache for a policy and ``length`` tokens, where the study gives no number."""
    config = text_config(policy.model.config)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = next(policy.model.parameters()).element_size()
    # Blocks hold 16 tokens on a GPU and up to 128 on a CPU; a sequence does not fill its last one.
    token = 2 * int(config.num_hidden_layers * heads * width) * size
    return int(default_kv_cache_bytes(token, length + 128))


def check_weights_not_repacked(model: nn.Module) -> None:
    """Check that a model on a CPU computes with its weights and not with repacked copies, which a sync would not reach.

    Raises:
        InputError: if not.
    """
    packed = [
        name
        for name, part in model.named_modules()
        if getattr(part, "cpu_linear", F.linear) is not F.linear
    ]
    if packed:
        raise InputError(
            f"vLLM computes with repacked weights ({packed[0]} and {len(packed) - 1} more). {_REMEDY}"
        )


def _start(policy: Policy, length: int, on_cpu: bool, memory: dict[str, Any]) -> Any:
    set_threads = torch.set_num_threads
    from vllm import LLM

    with (
        tempfile.TemporaryDirectory() as folder,
        _plain_layers() if on_cpu else contextlib.nullcontext(),
    ):
        policy.model.config.save_pretrained(folder)  # type: ignore[operator, union-attr]
        engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            # Else sampling would follow the model's own defaults (top-p, repetition penalty).
            generation_config="vllm",
            # Of the distribution that is drawn from: raw ones leave out the temperature.
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            dtype=str(next(policy.model.parameters()).dtype).removeprefix("torch."),
            max_model_len=length,
            max_num_seqs=MAX_BATCH_ROWS,
            seed=0,
            **memory,
        )
    # The CPU worker replaces it by a function that does nothing.
    torch.set_num_threads = set_threads
    return engine


@contextlib.contextmanager
def _plain_layers() -> Iterator[None]:
    import vllm.model_executor.layers.utils as layers

    original = layers.dispatch_cpu_unquantized_gemm
    layers.dispatch_cpu_unquantized_gemm = _plain_linear
    try:
        yield
    finally:
        layers.dispatch_cpu_unquantized_gemm = original


def _plain_linear(layer: nn.Module, remove_weight: bool) -> None:
    """Let a layer on a CPU compute with its own weight, where vLLM would pack a copy of it."""
    layer.cpu_linear = F.linear  # type: ignore[assignment]


def _reply(output: Any, greedy: bool) -> EngineResponse:
    tokens = tuple(output.token_ids)
    if greedy:
        # Certain, as the distribution at temperature 0 has it.
        return EngineResponse(tokens, (0.0,) * len(tokens), output.finish_reason == "stop")
    logprobs = tuple(place[token].logprob for place, token in zip(output.logprobs, tokens, strict=True))
    return EngineResponse(tokens, logprobs, output.finish_reason == "stop")
