"""Settings of the jobs that make base policies, and the sizes of these. Adding a size is a line here (CONTRIBUTING.md)."""

from typing import Annotated, Literal

from pydantic import SerializeAsAny

from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.job_settings import JobSettings
from threespo.settings import Later, Settings

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
    revision: str | None
    given: str | None
    """Digest of a local folder of weights: names and sizes of its files, and what the small ones say."""
    tasks: SerializeAsAny[TaskSettings]
    episode: SerializeAsAny[EpisodeSettings]
    build: bool
    """Build a tiny policy even where a shipped one fits."""
