"""Memory of one rank of a run, part by part, each by a named formula (docs/scaling.md).

Weights, gradients and optimizer state were compared with DeepSpeed's own tensors at all ZeRO stages, kept activations with
what autograd keeps (tests/unit/test_scaling_memory.py). What only a GPU has (context, a server's cache) is computed.
"""

from dataclasses import dataclass

from threespo.scaling.shapes import ModelShape

BUCKET = 500_000_000
"""Numbers in a buffer of gradients on their way to other ranks (DeepSpeed's ``reduce_bucket_size``)."""

CONTEXT = 1.5e9
"""CUDA context, libraries' workspaces, and what the allocator cannot hand out, in bytes: assumed, not measured."""

LEFT_FREE = 0.02
"""Of a device's memory: what a plan leaves unused."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What of a study decides a rank's memory."""

    ranks: int
    zero_stage: int
    wide: bool
    """float32 weights; else bfloat16 with float32 master weights and sums of gradients."""
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
    """The sampler has a copy of the weights and a cache of its own (vLLM); else it reads the learner's weights."""
    cache: float
    """Bytes of keys and values while sampling."""

    @property
    def stage(self) -> int:
        """The stage that runs: in bfloat16 at least 1, since stage 0 would add gradients up in bfloat16."""
        return self.zero_stage if self.wide else max(1, self.zero_stage)

    @property
    def size(self) -> int:
        """Bytes of a weight."""
        return 4 if self.wide else 2


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
        """Return whether a device of ``capacity`` bytes holds this."""
        return self.total <= capacity * (1 - LEFT_FREE)


def estimate_memory(shape: ModelShape, settings: MemorySettings, *, gpu: bool = True) -> RankMemory:
    """Return the memory of one rank at the peak of an update (formula ``estimate_memory``).

    Args:
        shape: of the model.
        settings: of the run.
        gpu: whether there is a CUDA context; buffers that a CPU never touches take none of its memory.
    """
    weights, gradients, optimizer = state_bytes(shape.parameters, settings)
    copy = shape.parameters * settings.size
    at_zero_3 = settings.stage == 3
    return RankMemory(
        weights=weights,
        gradients=gradients,
        optimizer=0.0 if settings.offload else optimizer,
        reference=copy if settings.reference else 0.0,
        # The critic has a body of its own and no head; its activations come after the policy's and take their place.
        critic=sum(state_bytes(shape.parameters, settings)) if settings.critic else 0.0,
        # Drawing from scattered weights gathers all of them first; the copy of an engine gets them one by one.
        sampler=(copy if settings.colocated else copy * (1 - 1 / settings.ranks) if at_zero_3 else 0.0)
        + settings.cache,
        activations=activation_bytes(shape, settings) + transient_bytes(shape, settings),
        buffers=BUCKET * settings.size if gpu and (settings.ranks > 1 or at_zero_3) else 0.0,
        context=CONTEXT if gpu else 0.0,
        host=optimizer if settings.offload else 0.0,
    )


def state_bytes(parameters: int, settings: MemorySettings) -> tuple[float, float, float]:
    """Return the bytes of weights, of gradients and of the optimizer at the moment of a step (formula ``state_bytes``).

    Stage 1 shares the optimizer among the ranks, stage 2 the gradients as well, stage 3 the weights as well. Above stage 0
    the optimizer has float32 master weights, whatever the weights are; in bfloat16 gradients are added up in float32.
    """
    stage, ranks, size = settings.stage, settings.ranks, settings.size
    share = parameters / ranks
    weights = size * (share if stage == 3 else parameters)
    gradients = size * (parameters if stage <= 1 else share)
    if not settings.wide:
        # Stage 1 keeps its own bfloat16 gradients beside the float32 sums of all of them.
        gradients = (2 + 4) * parameters if stage == 1 else 4 * share
    optimizer = 8 * parameters if stage == 0 else 12 * share
    return weights, gradients, optimizer


def activation_bytes(shape: ModelShape, settings: MemorySettings) -> float:
    """Return the bytes that autograd keeps of a micro-batch's forward pass (formula ``activation_bytes``).

    A layer keeps about twelve tensors of the hidden size and four of the feed-forward size for each token (in bfloat16
    norms compute in float32, four bytes more); with gradient checkpointing its input alone.
    """
    size, tokens = settings.size, settings.micro_batch_tokens
    layer = _layer(shape, size)
    per_token = shape.layers * (size * shape.hidden if settings.checkpointing else layer)
    # Checkpointing computes one layer at a time anew, with all that it keeps.
    once = layer if settings.checkpointing else 0
    # Behind the layers: the last norm, and the head's input and logits of the tokens that are scored.
    last = shape.hidden * (tokens * (8 if size == 4 else 6) + settings.scored * size)
    logits = 4 * settings.scored * shape.vocabulary * (2 if settings.entropy else 1)
    return tokens * (per_token + once) + last + logits


def transient_bytes(shape: ModelShape, settings: MemorySettings) -> float:
    """Return the bytes of tensors that live only within an operation on the logits (formula ``transient_bytes``): its gradient and
    the softmax that this comes from, in float32."""
    return 2 * 4 * settings.scored * shape.vocabulary


def _layer(shape: ModelShape, size: int) -> float:
    """Return the bytes that one layer keeps of one token."""
    norms = 0 if size == 4 else 4
    repeated = 12 if shape.kv_heads < shape.heads else 11
    return (repeated * size + norms) * shape.hidden + 4 * size * shape.mlp + 4 * (shape.heads + 2)
