"""The value types that the packages exchange: an outline of the whole system.

A *method* (``methods/``) is a generator: it yields requests and receives replies. The run loop (``runs/``) answers
sample requests with a sampler (``policy/``), update requests with a learner, and value requests with a critic
(``learner/``). Post-step and post-trajectory optimization differ only in where a method yields its update.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Counters = tuple[int | str, ...]
"""Identifies a draw of a run, e.g. ("train", epoch, task id, node): the key from which randomness is derived."""

Aggregation = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Ask for ``count`` responses to one prompt. Response i is drawn from the stream of the run's seed, ``key`` and i."""

    prompt: str
    count: int
    key: Counters


@dataclass(frozen=True, slots=True)
class Sample:
    """One response of the policy."""

    tokens: tuple[int, ...]
    """Response token ids, the end-of-sequence token included if it was drawn."""
    logprobs: tuple[float, ...]
    """Natural-log probability of each token under the sampling distribution (temperature included)."""
    text: str
    finished: bool
    """False if the length limit cut the response."""
    version: int | None = None
    """Optimizer steps behind the weights that it was drawn from; ``None`` where they are unknown (a closed model)."""
    thought: str | None = None
    """The thought that a server has split off the text; ``None`` where it has split off nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One response with its training signal: all that a learner needs."""

    prompt: str
    tokens: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    """log pi_old of each token, (len(tokens),), as the sampler saw it when it drew the response."""
    advantages: tuple[float, ...]
    """Advantage of each token, (len(tokens),)."""
    weight: float = 1.0
    """Relative weight of the row in sequence-mean aggregations (eq. 5: 1/n per sample, groups equally)."""
    version: int | None = None
    """Version of the sample: pi_old is the policy of this version, whatever was learned since. Learners refuse ``None``."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The clipped surrogate with a KL penalty (eq. 5; clip, KL estimator and entropy bonus as verl-agent has them)."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    clip_dual: float = 3.0
    """Dual clip: for negative advantages the loss is at most ``-A * clip_dual``."""
    kl_coef: float = 0.01
    """Weight of the k3 estimate of KL(pi || pi_ref), capped at 10 per token (tab:hyperparams: 0.01)."""
    aggregation: Aggregation = "token-mean"
    entropy_coef: float = 0.0
    """Weight of the entropy bonus: of the tokens' mean entropy, aggregated as the policy's loss, subtracted from it."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """Ask for exactly one optimizer step on each batch, in order. Rows of one prompt may share its forward pass.

    pi_old of a row is the policy that drew it. Where that is the policy as it is when the request arrives, the learner
    computes log pi_old itself, before the first step; of older rows it takes the sampler's.
    """

    batches: tuple[tuple[Row, ...], ...]
    loss: LossSettings


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Numbers of one optimizer step; means are over response tokens."""

    loss: float
    policy_loss: float
    kl: float
    entropy: float
    clip_fraction: float
    approx_kl: float
    grad_norm: float
    ratio: float
    """Mean of pi / pi_old, before the step."""
    staleness: float
    """Mean number of optimizer steps between the draw of a token and this step."""
    oldest: int
    """The largest such number."""
    sampler_gap: float
    """Mean absolute difference between the sampler's and the learner's log-probability of a token under the same weights;
    over the ``recomputed`` tokens, 0 if there are none."""
    recomputed: int
    """Tokens whose log pi_old the learner computed itself."""
    tokens: int


@dataclass(frozen=True, slots=True)
class ValueRequest:
    """Ask the critic for the value of every position of these responses: before each token, and after the last one."""

    responses: tuple[tuple[str, tuple[int, ...]], ...]
    """(prompt, response token ids) of each; the reply has len(tokens) + 1 values for each."""


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One response with the values that the critic is trained towards."""

    prompt: str
    tokens: tuple[int, ...]
    old_values: tuple[float, ...]
    """V before each token, (len(tokens),), as it was when the advantages were computed."""
    returns: tuple[float, ...]
    """Target of each, (len(tokens),)."""


@dataclass(frozen=True, slots=True)
class ValueUpdateRequest:
    """Ask for exactly one optimizer step of the critic on each batch, in order."""

    batches: tuple[tuple[ValueRow, ...], ...]
    clip: float
    """A value may leave its old one by this much before its loss stops falling."""


@dataclass(frozen=True, slots=True)
class ValueStats:
    """Numbers of one optimizer step of the critic; means are over response tokens."""

    loss: float
    clip_fraction: float
    grad_norm: float
    tokens: int


Request = tuple[SampleRequest, ...] | UpdateRequest | ValueRequest | ValueUpdateRequest
"""A tuple of sample requests is one batch; its reply is a list with one list of samples per request, in order.
The reply to an update is a list with the statistics of each step, that to a ``ValueRequest`` a list of lists of values."""

MethodSteps = Generator[Request, Any, "EpochResult"]


@dataclass(slots=True)
class EpochResult:
    """Numbers of one epoch that only the method knows; the run loop counts generations and optimizer steps itself."""

    env_steps: int = 0
    completed_paths: int = 0
    """Episodes (or root-to-leaf paths of a search) that ended in success, failure or at the step limit."""
    successes: int = 0
    invalid_format: int = 0
    """Generations without well-formed <think> and <action> tags."""
    inadmissible: int = 0
    """Generations whose parsed action is not admissible (logged apart from format validity)."""
    nothing_happens: int = 0
    """Environment steps answered by "Nothing happens."."""
    details: dict[str, float] = field(default_factory=dict)
    """The method's own numbers, e.g. the histogram of n(s); each becomes a column of the metrics table."""
    by_type: dict[str, dict[str, float]] = field(default_factory=dict)
    """The same numbers and counts for the tasks of each type, where they can be separated."""
    trees: list[dict[str, Any]] = field(default_factory=list)
    """Nodes of the search trees of ``CommonSettings.recorded`` tasks (columns: ``threespo/methods/tree_table.py``)."""


class Sampler(Protocol):
    """Answers sample requests with the current policy."""

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order.

        Args:
            requests: the prompts, each with its number of samples and the key of its draws.
            seed: seed of the run; a draw depends on it, the request's key and the sample's number only.
            temperature: of the softmax; 0 means the most probable token.
        """
        ...


class LocalSampler(Sampler, Protocol):
    """A sampler of weights that are in this process, and may be learned between its calls."""

    def forget(self) -> None:
        """Drop all caches of earlier calls: the next call answers like the first one."""
        ...

    def sync(self, weights: Iterable[tuple[str, Any]]) -> bool:
        """Copy the learner's weights into the sampler's own, and return whether it has any.

        Args:
            weights: tensors by name, each valid until the next one is taken. Not iterated where there is nothing to copy.

        Returns:
            False if it has no copy, and reads the learner's own weights while it draws.
        """
        ...


class Learner(Protocol):
    """Takes optimizer steps on rows."""

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Take exactly one optimizer step on each batch."""
        ...


class Critic(Protocol):
    """Predicts the return from each position of a response, and learns to."""

    def values(self, request: ValueRequest) -> list[list[float]]:
        """Return len(tokens) + 1 values for each response."""
        ...

    def update(self, request: ValueUpdateRequest) -> list[ValueStats]:
        """Take exactly one optimizer step on each batch."""
        ...
