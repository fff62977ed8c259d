"""What a run trains and samples with: learner, critic and sampler, from its settings."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from threespo.errors import InputError
from threespo.protocol import LocalSampler, Sample, SampleRequest
from threespo.runs.learning_rate import learning_rate
from threespo.runs.settings import TrainSettings
from threespo.runs.setup import load_run_policy, make_sampler

if TYPE_CHECKING:
    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of a run of which every rank has its own."""

    sampler: "ShardedSampler"
    learner: "DeepSpeedLearner"
    critic: "DeepSpeedCritic | None"


def make_run_parts(settings: TrainSettings, source: str, critic_rate: float | None) -> RunParts:
    """Return the parts of a run, by all its ranks together.

    Args:
        settings: of the run.
        source: folder or hub name of the weights that it begins with.
        critic_rate: the critic's learning rate as a multiple of the policy's; ``None`` for methods without a critic.
    """
    import torch

    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner
    from threespo.learner.optim import OptimSettings

    torch.set_num_threads(settings.threads)
    training = settings.training
    policy = load_run_policy(settings, source)
    # The reference of the KL penalty is the policy that the run begins with, as a copy of its own.
    reference = load_run_policy(settings, source) if training.kl_coef else None
    optim = OptimSettings(
        lr=learning_rate(settings) * settings.learning_rate_scale,
        weight_decay=training.weight_decay,
        grad_clip=training.grad_clip,
        zero_stage=training.zero_stage or 0,
        micro_batch_tokens=training.micro_batch_tokens,
        dtype=settings.sampling.dtype,
        temperature=training.temperature,
        gradient_checkpointing=training.gradient_checkpointing,
        offload_optimizer=training.offload_optimizer,
    )

    failed_updates = settings.paths.checkpoints(settings.run) / "failed-updates"
    learner = DeepSpeedLearner(policy, reference, optim, failed_updates)
    critic = None
    if critic_rate is not None:
        # A copy of its own: learner and critic share no weights.
        backbone = load_run_policy(settings, source)
        critic_optim = replace(optim, lr=optim.lr * critic_rate)
        critic = DeepSpeedCritic(backbone, critic_optim, failed_updates)
    sampler = ShardedSampler(make_sampler(settings.sampling, policy), learner)
    return RunParts(sampler, learner, critic)


class ShardedSampler:
    """Draws each rank's share of the requests there, from whole weights, and gives every rank all samples.

    A draw depends on the run's seed, the request's key and the sample's number (``protocol.Sampler``),
    so who draws it changes nothing.
    """

    def __init__(self, sampler: LocalSampler, learner: "DeepSpeedLearner") -> None:
        """``sampler`` draws from the weights that ``learner`` trains."""
        self._sampler = sampler
        self._learner = learner

    def forget(self) -> None:
        """Forget what earlier calls have left (``protocol.LocalSampler``)."""
        self._sampler.forget()

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order (``protocol.Sampler``).

        Raises:
            InputError: on all ranks, if the sampler of one refuses a request, or memory runs out there.
        """
        from threespo.learner import backend, checks

        numbers_of_rank = assign_requests(requests, backend.get_world_size())
        own_requests = tuple(requests[number] for number in numbers_of_rank[backend.get_rank()])
        replies: list[list[Sample]] = []
        refusal: str | None = None

        # At ZeRO 3 the weights are partitioned between passes; the ranks gather them even if one has
        # nothing to draw.
        has_own_copy = self._sampler.sync(self._learner.gathered_weights())
        weights = contextlib.nullcontext() if has_own_copy else self._learner.gather_weights()
        first_remedy = checks.LOWER_CACHE_FIRST if has_own_copy else ""
        with weights:
            try:
                with checks.explain_out_of_memory("sampling", self._learner.settings, first_remedy):
                    if own_requests:
                        replies = self._sampler.sample(own_requests, seed=seed, temperature=temperature)
            except InputError as error:
                refusal = str(error)

        # If any rank refuses, all do, with the same message.
        replies_of_rank = backend.gather_objects((replies, refusal))
        for _, rank_refusal in replies_of_rank:
            if rank_refusal is not None:
                raise InputError(rank_refusal)

        samples_of_request: dict[int, list[Sample]] = {}
        for numbers, (rank_replies, _) in zip(numbers_of_rank, replies_of_rank, strict=True):
            samples_of_request |= zip(numbers, rank_replies, strict=True)
        return [samples_of_request[number] for number in range(len(requests))]


def assign_requests(requests: Sequence[SampleRequest], ranks: int) -> list[list[int]]:
    """Return the numbers of the requests that each rank answers: all of one prompt at one rank, which reads it once.

    The prompt with most samples goes first, each to the rank with the fewest so far.
    """
    numbers_of_prompt: dict[str, list[int]] = {}
    samples_of_prompt: Counter[str] = Counter()
    for number, request in enumerate(requests):
        numbers_of_prompt.setdefault(request.prompt, []).append(number)
        samples_of_prompt[request.prompt] += request.count

    load = [0] * ranks
    assigned: list[list[int]] = [[] for _ in range(ranks)]
    for prompt in sorted(numbers_of_prompt, key=lambda prompt: -samples_of_prompt[prompt]):
        rank = load.index(min(load))
        load[rank] += samples_of_prompt[prompt]
        assigned[rank] += numbers_of_prompt[prompt]
    # In the order of the requests: with one rank its sampler sees what it was asked.
    return [sorted(numbers) for numbers in assigned]
