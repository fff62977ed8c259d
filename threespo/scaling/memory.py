"""Memory of one rank of a run, part by part, each by a named formula (docs/scaling.md).

Tests compare weights, gradients and optimizer state with DeepSpeed's own tensors at all ZeRO stages, and activations with
autograd's (tests/unit/test_scaling_memory.py). What only a GPU has (context, a server's cache) is computed, not compared.
"""

from dataclasses import dataclass
from typing import NamedTuple

from threespo.scaling.shapes import ModelShape

BUCKET = 500_000_000
"""Numbers in a buffer of gradients that are sent to other ranks (DeepSpeed's ``reduce_bucket_size``)."""

CONTEXT_BYTES = 1.5e9
"""Bytes of the CUDA context, libraries' workspaces, and memory lost to fragmentation: assumed, not measured."""

FREE_SHARE = 0.02
"""Share of a device's memory that an estimate leaves free."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings of a run that decide a rank's memory."""

    ranks: int
    zero_stage: int
    wide: bool
    """float32 weights; otherwise bfloat16, with float32 master weights and sums of gradients."""
    micro_batch_tokens: int
    scored: int
    """Response tokens among them, whose logits are computed."""
    checkpointing: bool
    offload: bool
    reference: bool
    """A frozen copy for the KL penalty."""
    critic: bool
    entropy: bool
    """Entropy has a gradient, which keeps a second tensor of the logits' size."""
    colocated: bool
    """The sampler has its own copy of the weights and its own cache (vLLM); otherwise it reads the learner's weights."""
    cache: float
    """Bytes of keys and values while sampling."""

    @property
    def stage(self) -> int:
        """The ZeRO stage that runs: in bfloat16 at least 1, since stage 0 would accumulate gradients in bfloat16."""
        return self.zero_stage if self.wide else max(1, self.zero_stage)

    @property
    def size(self) -> int:
        """Bytes of a weight."""
        return 4 if self.wide else 2


class StateBytes(NamedTuple):
    """Bytes of a rank's share of a model and of its training."""

    weights: float
    gradients: float
    optimizer: float


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank on its device."""

    weights: float
    gradients: float
    optimizer: float
    """Master weights and two moments."""
    reference: float
    critic: float
    sampler: float
    """A colocated sampler's weights and cache."""
    activations: float
    """What the backward pass of one micro-batch needs."""
    buffers: float
    context: float
    host: float
    """Not on the device: the optimizer's state where it is offloaded."""

    @property
    def total(self) -> float:
        """Bytes on the device at the peak of an update."""
        learner = self.weights + self.gradients + self.optimizer + self.activations + self.buffers
        return learner + self.reference + self.critic + self.sampler + self.context

    def fits(self, capacity: float) -> bool:
        """Return whether a device of ``capacity`` bytes is large enough."""
        return self.total <= capacity * (1 - FREE_SHARE)


def estimate_memory(shape: ModelShape, settings: MemorySettings, *, gpu: bool = True) -> RankMemory:
    """Return the memory of one rank at the peak of an update (formula ``memory``).

    Args:
        shape: of the model.
        settings: of the run.
        gpu: False leaves out the CUDA context, and DeepSpeed's buffers, which a CPU never touches.
    """
    state = state_bytes(shape.parameters, settings)
    model_copy = shape.parameters * settings.size
    partitioned = settings.stage == 3

    sampler_weights = 0.0
    if settings.colocated:
        sampler_weights = model_copy
    elif partitioned:
        # Drawing from partitioned weights gathers all of them first.
        sampler_weights = model_copy * (1 - 1 / settings.ranks)
    has_buffers = gpu and (settings.ranks > 1 or partitioned)
    return RankMemory(
        weights=state.weights,
        gradients=state.gradients,
        optimizer=0.0 if settings.offload else state.optimizer,
        reference=model_copy if settings.reference else 0.0,
        # A critic has its own weights. The policy's activations are freed before it needs its own.
        critic=sum(state) if settings.critic else 0.0,
        sampler=sampler_weights + settings.cache,
        activations=activation_bytes(shape, settings) + transient_bytes(shape, settings),
        buffers=BUCKET * settings.size if has_buffers else 0.0,
        context=CONTEXT_BYTES if gpu else 0.0,
        host=state.optimizer if settings.offload else 0.0,
    )


def state_bytes(parameters: int, settings: MemorySettings) -> StateBytes:
    """Return the bytes of weights, of gradients and of the optimizer at the moment of a step (formula ``state_bytes``).

    Stage 1 partitions the optimizer among the ranks, stage 2 the gradients as well, stage 3 the weights as well.
    """
    stage = settings.stage
    share = parameters / settings.ranks
    weights = settings.size * (share if stage == 3 else parameters)
    if settings.wide:
        gradients = settings.size * (parameters if stage <= 1 else share)
    elif stage == 1:
        # Stage 1 keeps its own bfloat16 gradients besides the float32 sums in which all are accumulated.
        gradients = (2 + 4) * parameters
    else:
        gradients = 4 * share
    # Two moments, and from stage 1 on float32 master weights, even where weights are float32.
    optimizer = 8 * parameters if stage == 0 else 12 * share
    return StateBytes(weights, gradients, optimizer)


def activation_bytes(shape: ModelShape, settings: MemorySettings) -> float:
    """Return the bytes that autograd keeps of a micro-batch's forward pass (formula ``activation_bytes``)."""
    size = settings.size
    tokens = settings.micro_batch_tokens
    layer = _layer_bytes_per_token(shape, size)
    kept_per_token = shape.layers * layer
    if settings.checkpointing:
        # A layer keeps its input alone; the backward pass recomputes one layer at a time.
        kept_per_token = shape.layers * (size * shape.hidden) + layer

    # After the layers: the last norm, and the head's input and logits of the tokens that are scored.
    norm_bytes = 8 if settings.wide else 6
    last = shape.hidden * (tokens * norm_bytes + settings.scored * size)
    logit_tensors = 2 if settings.entropy else 1
    logits = 4 * settings.scored * shape.vocabulary * logit_tensors
    return tokens * kept_per_token + last + logits


def transient_bytes(shape: ModelShape, settings: MemorySettings) -> float:
    """Return the bytes of tensors that live only within an operation (formula ``transient_bytes``)."""
    # The logits' gradient and the softmax that it is computed from, in float32.
    return 2 * 4 * settings.scored * shape.vocabulary


def _layer_bytes_per_token(shape: ModelShape, size: int) -> float:
    """Return the bytes that one layer keeps of one token, with numbers of ``size`` bytes."""
    # In bfloat16 norms compute in float32, four bytes more.
    norms = 0 if size == 4 else 4
    # With grouped queries, keys and values are repeated for the masked attention.
    hidden_tensors = 12 if shape.kv_heads < shape.heads else 11
    hidden = (hidden_tensors * size + norms) * shape.hidden
    feed_forward = 4 * size * shape.mlp
    # float32 statistics: of each head's softmax, and of two norms.
    statistics = 4 * (shape.heads + 2)
    return hidden + feed_forward + statistics
