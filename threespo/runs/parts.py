"""What a run trains and samples with: learner, critic and sampler, from its settings."""

import contextlib
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

    inspect = settings.paths.checkpoints(settings.run) / "failed-updates"
    learner, critic = DeepSpeedLearner(policy, reference, optim, inspect), None
    if critic_rate is not None:
        backbone = load_run_policy(settings, source)
        critic = DeepSpeedCritic(backbone, replace(optim, lr=optim.lr * critic_rate), inspect)
    return RunParts(ShardedSampler(make_sampler(settings.sampling, policy), learner), learner, critic)


class ShardedSampler:
    """Draws each rank's share of the requests there, from whole weights, and gives every rank all samples.

    A draw depends on the run's seed, the request's key and the sample's number (``protocol.Sampler``), so who draws it
    changes nothing.
    """

    def __init__(self, sampler: LocalSampler, learner: "DeepSpeedLearner") -> None:
        """``sampler`` draws from the weights that ``learner`` trains."""
        self._sampler, self._learner = sampler, learner

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
        from threespo.learner import backend, memory

        numbers = assign_requests(requests, backend.get_world_size())
        own = tuple(requests[number] for number in numbers[backend.get_rank()])
        replies: list[list[Sample]] = []
        refused: str | None = None
        # At ZeRO 3 the weights are scattered between passes; the ranks gather them even if one has nothing to draw.
        copied = self._sampler.sync(self._learner.gathered_weights())
        with contextlib.nullcontext() if copied else self._learner.gather_weights():
            try:
                with memory.explain_out_of_memory(
                    "sampling", self._learner.settings, memory.LOWER_CACHE_FIRST if copied else ""
                ):
                    replies = (
                        self._sampler.sample(own, seed=seed, temperature=temperature) if own else []
                    )
            except InputError as error:
                refused = str(error)

        gathered = backend.gather_objects((replies, refused))
        if refusals := [refusal for _, refusal in gathered if refusal is not None]:
            raise InputError(refusals[0])
        placed: dict[int, list[Sample]] = {}
        for share, (drawn, _) in zip(numbers, gathered, strict=True):
            placed |= zip(share, drawn, strict=True)
        return [placed[number] for number in range(len(requests))]


def assign_requests(requests: Sequence[SampleRequest], ranks: int) -> list[list[int]]:
    """Return the numbers of the requests that each rank answers: all of one prompt at one rank, which reads it once.

    The prompt with most samples goes first, each to the rank with the fewest so far.
    """
    of_prompt: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        of_prompt.setdefault(request.prompt, []).append(number)

    load, result = [0] * ranks, [list[int]() for _ in range(ranks)]
    counts = {
        prompt: sum(requests[number].count for number in numbers)
        for prompt, numbers in of_prompt.items()
    }
    for prompt in sorted(of_prompt, key=lambda one: -counts[one]):
        rank = load.index(min(load))
        load[rank] += counts[prompt]
        result[rank] += of_prompt[prompt]
    # In the order of the requests: with one rank its sampler sees what it was asked.
    return [sorted(numbers) for numbers in result]
