"""The vLLM sampler: continuous batching and prefix caching on the learner's own device, with the learner's own weights.

Before a batch of requests is answered, the weights are synced if the learner has stepped since the last sync: once per tick
of a search, since a tick is one batch of requests. The random numbers of response i depend on (run seed, request key, i)
only; the rounding of its probabilities may depend on what is computed in the same batch.
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

_SEED_LIMIT = 2**62
"""Seeds are smaller: the engine adds a response's number to the seed of its request, in a 63-bit integer."""


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
        """Version of the weights that the engine has; ``None``: none of the policy's."""

    def set_policy(self, policy: Policy) -> None:
        """Sample from another policy of the same architecture, with the same engine."""
        self.policy = policy
        self.version = None

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order (``protocol.Sampler``).

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
        # Requests for no samples are left out: the engine refuses them.
        engine_requests = [
            EngineRequest(
                encoded[request.prompt], request.count, derive(seed, *request.key) % _SEED_LIMIT
            )
            for request in requests
            if request.count
        ]
        if not engine_requests:
            return [[] for _ in requests]

        self.sync()
        version = self.policy.version
        responses = iter(self._engine.generate(engine_requests, temperature))
        # Responses drawn while the weights change would belong to no version.
        if self.policy.version != version:
            raise SyncError(
                f"the learner went from step {version} to {self.policy.version} while responses were drawn"
            )
        return [self._make_samples(next(responses)) if request.count else [] for request in requests]

    def sync(self, weights: Iterable[tuple[str, Tensor]] | None = None) -> bool:
        """Give the engine the policy's current weights, compare every bit, and forget what was read with earlier ones.

        Args:
            weights: by name (``protocol.LocalSampler``); ``None``: the policy's own, where they are complete.

        Raises:
            SyncError: if the weights differ afterwards, or the engine cannot forget.
        """
        if self.version == self.policy.version:
            return True
        # Until all is copied the engine's weights have no version.
        self.version = None
        if self._plan is None:
            self._plan = self._make_plan()
        self._plan.sync(self.policy.model.named_parameters() if weights is None else weights)
        self.forget()
        self.version = self.policy.version
        return True

    def forget(self) -> None:
        """Forget the prompts that were read: the cache influences rounding, and outlives the weights that filled it.

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

    def _make_samples(self, responses: list[EngineResponse]) -> list[Sample]:
        texts = self.policy.decode([response.tokens for response in responses])
        return [
            Sample(response.tokens, response.logprobs, text, response.finished, self.version)
            for response, text in zip(responses, texts, strict=True)
        ]
