"""What all trained methods of a study have in common: their budget, their loss, their batches.

Values that the paper fixes name their source.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from threespo.settings import MAX_TEMPERATURE, MAX_TOKENS, Execution, Later, Settings

# Bounds far above any real run: they catch typos, which would cost hours before they show.
MAX_ROWS = 1_000_000
"""Of a mini-batch; the paper's epochs have some thousand rows."""
MAX_TASKS = 10_000_000
"""As many as an environment may have."""
MAX_RANKS = 1024
"""Of a run: thirty times what a model of 7B can make use of."""
MAX_COEFFICIENT = 1_000_000.0
"""Of rewards, penalties and coefficients, whose products must stay exact in 32 bits."""

Schedule = Literal["constant", "linear"]
"""Of a learning rate over a run."""

Generations = Annotated[int, Field(ge=1, le=1_000_000_000)]
"""The paper's longest row has 3.3 million; a billion would take GPUs for years."""

Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
"""The paper's runs have 400."""


class PolicyScale(Settings):
    """What a policy's size decides; ``null``: as for the study's other policies."""

    ranks_per_run: int | None = Field(default=None, ge=1, le=MAX_RANKS)
    """Processes of one training run, with a share of the optimizer's state and of every batch each."""
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """In the place of ``training.zero_stage``."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """In the place of ``training.micro_batch_tokens``."""
    gradient_checkpointing: bool | None = None
    """In the place of ``training.gradient_checkpointing``."""
    offload_optimizer: bool | None = None
    """In the place of ``training.offload_optimizer``."""


class TrainingSettings(Settings):
    """What all trained methods share, so that they are compared on equal terms: none of it can be set for one method."""

    # Terms of the comparison, and the budget.
    terms: Literal["equalised", "as_released"] = "equalised"
    """``equalised``: statistics of episode returns over trajectories, as the methods' papers have them.
    ``as_released``: over rows (steps), as the released code runs; there a long failure weighs more than
    a short success (docs/baselines.md)."""
    generations: Generations | None = None
    """The budget of a run in single-step generations, the same for every method. Every study has this or ``epochs``."""
    epochs: Epochs | None = None
    """The budget of a run in epochs (tab:hyperparams: 400), in every environment. The paper's methods
    have it in common, and so spend different numbers of generations."""
    # What an epoch plays.
    tasks_per_epoch: int = Field(default=16, ge=1, le=10_000)
    """Tasks drawn per epoch (verl-agent's scripts: 16)."""
    pool: int | None = Field(default=None, ge=1, le=MAX_TASKS)
    """Training games that tasks are drawn from (``null``: all). State statistics need repeated visits,
    and a small pool is visited often; the paper's 6,400 draws visit each of 3,553 games 1.8 times."""
    pool_by_seed: Annotated[bool, Later] = False
    """Each training seed draws a pool of its own, so that intervals over seeds cover the choice of games, too; equal seeds
    of all methods share one. False: one pool for all runs, of which no interval says how much hangs on it."""
    group_size: int = Field(default=8, ge=2, le=1024)
    """Rollouts per task of group methods; G_max, the most samples per state, of 3SPO (tab:hyperparams: 8)."""
    minibatch: int = Field(default=256, ge=1, le=MAX_ROWS)
    """Rows per optimizer step of the methods that play whole episodes (verl-agent: 256 on ALFWorld)."""
    # Rewards and loss (eq. 5).
    success_reward: float = Field(default=10.0, gt=0, le=MAX_COEFFICIENT)
    """Environment reward of a won episode for the baselines (verl-agent: 10); 3SPO's is in its eq. 2."""
    temperature: float = Field(default=1.0, gt=0, le=MAX_TEMPERATURE)
    kl_coef: float = Field(default=0.01, ge=0, le=MAX_COEFFICIENT)
    """tab:hyperparams: 0.01; k3 estimate, as a loss term."""
    entropy_coef: float = Field(default=0.0, ge=0, le=MAX_COEFFICIENT)
    """Weight of an entropy bonus in the policy's loss. Not in the paper; the released code's default is
    0.001. Its gradient keeps a pass's probabilities: tokens x vocabulary x 4 bytes of memory."""
    clip: float = Field(default=0.2, gt=0, le=MAX_COEFFICIENT)
    invalid_penalty: float = Field(default=0.1, ge=0, le=MAX_COEFFICIENT)
    """Subtracted where a response lacks well-formed tags (tab:hyperparams: 0.1)."""
    inadmissible_penalty: float = Field(default=0.0, ge=0, le=MAX_COEFFICIENT)
    """Subtracted from the advantage of responses with an inadmissible action. Not in the paper: a named
    option of the embedded studies, for every response that a method trains on. 3SPO trains on fewer (not
    on groups of equal rewards)."""
    # Optimizer, memory and ranks.
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    grad_clip: float = Field(default=1.0, gt=0, le=MAX_COEFFICIENT)
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """DeepSpeed ZeRO stage: what the ranks of a run share out; 1: optimizer state, 2: gradients too, 3:
    weights too. ``null``: 0 in float32, 1 in bfloat16 or with ``offload_optimizer``. In bfloat16 stage 0
    is refused: it adds up gradients in bfloat16 and counts its own start as Adam's first step."""
    micro_batch_tokens: int = Field(default=8192, ge=1, le=MAX_TOKENS)
    """Tokens per forward pass; changes memory and speed, not results beyond rounding."""
    gradient_checkpointing: bool = False
    """Compute activations a second time in the backward pass instead of keeping them: less memory, a third more work."""
    offload_optimizer: bool = False
    """Keep master weights and Adam's moments (12 bytes per parameter) in the host's memory and take the
    steps there; from ``zero_stage`` 1."""
    # What a run leaves, and how it is computed.
    checkpoint_every: Annotated[int, Execution] = Field(default=1, ge=1, le=1_000_000)
    """Epochs between checkpoints; an interrupted run replays what came after the last one, to the same bytes."""
    recorded_tasks: int = Field(default=8, ge=0, le=MAX_TASKS)
    """Games of the pool whose search trees are kept whenever they are drawn (3SPO; ``threespo view`` shows them)."""
    snapshots: int = Field(default=8, ge=0, le=100)
    """Equal parts of the budget at whose ends the weights are kept, for learning curves and ``probe``;
    0: none (trials). Parts that one epoch spends share a snapshot. The last one is the run's own
    weights, the other seven cost disk: 30 MB a run with tiny-s, 22 GB with a model of 1.5B in bfloat16,
    107 GB with one of 7B."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of a run; fixed here and not by the scheduler, so that the bytes do not depend on the
    machine's load. The bound is that of large machines: a study may be resolved where it does not run,
    so the cores here say nothing."""

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainingSettings":
        given = [name for name in ("generations", "epochs") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"{name} {getattr(self, name)}" for name in given) or "neither"
            raise ValueError(
                f"expected 'generations' or 'epochs', and the other one left out or null; found {found}"
            )
        return self

    @property
    def budget(self) -> int:
        """The budget's number, of generations or of epochs."""
        return self.generations or self.epochs or 0

    @property
    def budget_unit(self) -> Literal["generations", "epochs"]:
        """What the budget counts."""
        return "epochs" if self.generations is None else "generations"

    def spent_budget(self, *, epochs: int, generations: int) -> int:
        """Return what a run has spent of its budget, in the budget's own unit: ``spent / budget`` is the share.

        Args:
            epochs: completed epochs of the run.
            generations: generations of the run.
        """
        return epochs if self.generations is None else generations

    def max_generations_per_task(self, max_steps: int) -> int:
        """Return the most generations of a group of whole episodes of ``max_steps`` steps."""
        return self.group_size * max_steps
