"""The vLLM sampler: continuous batching and prefix caching on the learner's own device, with the learner's own weights.

Before a batch of requests is answered, the weights are synced if the learner has stepped since the last sync: once per tick
of a search, since a tick is one batch of requests. The random numbers of response i depend on (run seed, request key, i)
only; the rounding of its probabilities may depend on what is computed beside it.
"""

from collections.abc import Iterable

from torch import Tensor

from threespo.errors import InputError
from threespo.policy.model import Policy
from threespo.policy.sampler import check_temperature, encode_prompts, limit_prompt_tokens
from threespo.policy.settings import VLLM_TEMPERATURES, is_vllm_temperature
from threespo.policy.vllm_engine import Engine, EngineRequest, EngineResponse
from threespo.policy.weight_sync import CopyPlan, SyncError
from threespo.protocol import Sample, SampleRequest
from threespo.rng import derive

_SEEDS = 2**62
"""Seeds are below it: the engine adds a response's number to that of its request, and counts in 63 bits."""


class VllmSampler:
    """Samples from an engine that holds a policy's weights (``protocol.LocalSampler``)."""

    def __init__(
        self, policy: Policy, engine: Engine, max_new_tokens: int, max_prompt_tokens: int
    ) -> None:
        """Prepare sampling; the first call of ``sample`` brings the weights.

        Args:
            policy: model, tokenizer and the version of the weights, which the learner counts. Where ZeRO 3 scatters its
                parameters, ``sync`` must bring them whole before ``sample`` is called.
            engine: started for the policy's architecture, with the same limits.
            max_new_tokens: responses are cut at this length.
            max_prompt_tokens: longer prompts are refused.

        Raises:
            InputError: if a limit is not positive or both together exceed the model's context.
        """
        self.policy = policy
        self.max_prompt_tokens = limit_prompt_tokens(policy, max_new_tokens, max_prompt_tokens)
        self._engine = engine
        self._plan: CopyPlan | None = None
        self.version: int | None = None
        """Of the weights that the engine holds; ``None``: none of the policy's."""

    def set_policy(self, policy: Policy) -> None:
        """Sample from another policy of the same architecture from now on, with the engine that is there."""
        self.policy, self.version = policy, None

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order.

        Args:
            requests: prompts with their numbers of samples; common beginnings of prompts are read once.
            seed: seed of the run; with a request's key and a sample's number it decides the draws.
            temperature: of the softmax; 0 means the most probable token.

        Raises:
            InputError: if a prompt is too long, or the temperature is one that vLLM does not draw at.
            SyncError: if the engine's weights are not the policy's.
        """
        check_temperature(temperature)
        if not is_vllm_temperature(temperature):
            raise InputError(
                f"temperature: found {temperature}; {VLLM_TEMPERATURES}, or set sampler: torch for the policy"
            )
        encoded = encode_prompts(self.policy, requests, self.max_prompt_tokens)
        wanted = [request for request in requests if request.count]
        if not wanted:
            return [[] for _ in requests]

        self.sync()
        present = self.policy.version
        asked = [
            EngineRequest(encoded[one.prompt], one.count, derive(seed, *one.key) % _SEEDS)
            for one in wanted
        ]
        replies = iter(self._engine.generate(asked, temperature))
        if self.policy.version != present:
            raise SyncError(
                f"the learner went from step {present} to {self.policy.version} while responses were drawn"
            )
        return [self._samples(next(replies)) if request.count else [] for request in requests]

    def sync(self, weights: Iterable[tuple[str, Tensor]] | None = None) -> bool:
        """Give the engine the policy's present weights, compare every bit, and forget what was read with earlier ones.

        Args:
            weights: by name (``protocol.LocalSampler``); ``None``: the policy's own, where they are whole.

        Raises:
            SyncError: if the weights differ afterwards, or the engine cannot forget.
        """
        if self.version == self.policy.version:
            return True
        # Until all is done the engine holds weights of no version.
        self.version = None
        if self._plan is None:
            self._plan = self._make_plan()
        self._plan.sync(self.policy.model.named_parameters() if weights is None else weights)
        self.forget()
        self.version = self.policy.version
        return True

    def forget(self) -> None:
        """Forget the prompts that were read: what is in the cache moves roundings, and outlives the weights that read it.

        Raises:
            SyncError: if the engine cannot, since it is at work.
        """
        if not self._engine.reset_prefix_cache():
            raise SyncError(
                "the engine did not reset its prefix cache: parts of it are in use, and belong to older weights"
            )

    def _make_plan(self) -> CopyPlan:
        try:
            return CopyPlan(self._engine.model, self.policy.model.named_parameters())
        except SyncError as error:
            message = f"{self.policy.source}: vLLM cannot take its weights in place: {error}. Set sampler: torch."
            raise InputError(message) from error

    def _samples(self, replies: list[EngineResponse]) -> list[Sample]:
        texts = self.policy.decode([reply.tokens for reply in replies])
        return [
            Sample(reply.tokens, reply.logprobs, text, reply.finished, self.version)
            for reply, text in zip(replies, texts, strict=True)
        ]
