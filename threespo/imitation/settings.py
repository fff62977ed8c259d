"""The settings of the jobs that make base policies."""

from typing import Literal

from pydantic import SerializeAsAny

from threespo.envs.settings import EpisodeSettings, TaskSettings
from threespo.job_settings import JobSettings


class BasePolicySettings(JobSettings):
    """A base policy for an environment."""

    env: str
    policy: str
    kind: Literal["tiny", "pretrained", "endpoint"]
    size_name: str
    size: PolicySize
    weakness: Weakness
    source: str | None
    revision: str | None
    given: str | None
    """Digest of a local folder of weights: names and sizes of its files, and what the small ones say."""
    tasks: SerializeAsAny[TaskSettings]
    episode: SerializeAsAny[EpisodeSettings]
    build: bool
    """Build a tiny policy even where a shipped one fits."""
