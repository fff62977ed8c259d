"""Settings of the jobs that make base policies, and the sizes of these. Adding a size is a line here (CONTRIBUTING.md)."""

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.job_settings import JobSettings
from threespo.policy.settings import SamplingSettings
from threespo.settings import Execution, Later, LearningRate, Seed, Settings

Weakness = Literal["planted", "early"]
"""Where the faults of a tiny base policy come from: ``planted``, a good clone was fine-tuned on a
careless expert; ``early``, the cloning was stopped early (no injected errors)."""


class PolicySize(Settings):
    """A size of a tiny Qwen2 model, and how its recipe differs from that of the smallest."""

    hidden: int
    layers: int
    heads: int
    mlp: int
    learning_rate: float = 1.0
    """Factor on the recipe's learning rates: larger networks take smaller steps."""
    effort: float = 1.0
    """Factor on the recipe's training tokens: a larger network learns more from a token, and takes longer over it."""
    base_success: float = 0.22
    """Success rate on calibration tasks at which the base policy is weak enough. A larger model loses
    the response format before it loses its skill."""


SIZES = {
    "s": PolicySize(hidden=128, layers=3, heads=4, mlp=384),
    "m": PolicySize(
        hidden=256, layers=3, heads=8, mlp=768, learning_rate=0.6, effort=0.75, base_success=0.25
    ),
}
"""``s`` stands in for the paper's 1.5B model, ``m`` (about four times larger) for its 7B."""


MICRO_BATCH_TOKENS = 2048
"""Tokens of a forward pass of a warm start. Longer ones are no faster, and their activations take gigabytes."""


class WarmStartSettings(Settings):
    """How a pretrained model gets its start: it imitates the environment's scripted expert on the paper's prompt and tags.

    A model that was never shown the environment wins nothing, and reinforcement learning has nothing to begin with.
    """

    examples: int = Field(ge=1, le=10_000_000)
    """Demonstrations, each a state and the careful expert's response in it; each is learned from once."""
    learning_rate: LearningRate = 2e-4
    """Peak of the rate: it rises over the first tenth of the steps and falls along a cosine to a twentieth."""
    batch: int = Field(default=8, ge=1, le=4096)
    """Demonstrations of an optimizer step."""
    noise: float = Field(default=1.0, ge=0, le=5)
    """Factor on the faults of the expert that plays, while the careful one is imitated in the states that this leads to.
    With 0 the careful one plays, and a clone never sees how to recover from a fault."""
    target: float = Field(default=0.1, ge=0, le=1)
    """Least success rate at temperature 1.0 on the measured tasks; a start that wins less is refused."""
    games: int = Field(default=24, ge=1, le=10_000)
    """Calibration tasks that the start is measured on, the first ones; all, where there are fewer."""
    seed: Seed = 20260101
    """Of demonstrations and their order; base number k of several (``bases``) has the seed that is k higher."""


class BasePolicySettings(JobSettings):
    """A base policy for an environment."""

    env: str
    policy: str
    kind: Literal["tiny", "pretrained", "endpoint"]
    size_name: str
    size: PolicySize
    weakness: Weakness
    bases: Annotated[int, Later] = 1
    """Base policies of so many cloning seeds; all but the first are built here."""
    source: str | None
    """A folder, a hub name, or the name of a model that comes in a package."""
    revision: str | None
    given: str | None
    """Digest of a local folder of weights (names and sizes of its files, and what the small ones say), or of the weights
    in a package."""
    tasks: SerializeAsAny[TaskSettings]
    episode: SerializeAsAny[EpisodeSettings]
    build: bool
    """Build a tiny policy even where a shipped one fits."""
    warm_start: Annotated[WarmStartSettings | None, Later] = None
    sampling: Annotated[SamplingSettings | None, Later] = None
    """How a policy with a warm start is loaded and sampled; ``None`` for others."""
    threads: Annotated[int | None, Later] = None
    """Of a warm start; the recipes of tiny policies have one thread."""
    code: Annotated[str, Execution] = ""
    """Digest of the job's code, which its key has besides: no warm start goes on from what other code has written."""
