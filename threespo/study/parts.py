"""The parts of a study: which of the paper's tables and figures show an entry, and where its runs are."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from threespo.settings import DistinctListOf, Name, Settings

Part = Literal["main", "ablation", "sensitivity", "figures"]
"""``main``: the table of main results; ``ablation``: the table of ablations; ``sensitivity``: the tables of α and of ξ
and ζ; ``figures``: the figures of the course of training, and the table of efficiency, which counts the same runs."""

MAIN_PART: tuple[Part, ...] = ("main",)
"""The parts of prompting agents, which are only in the main table."""

PARTS: tuple[Part, ...] = get_args(Part)


class Scope(Settings):
    """Where the entries of a part are run."""

    environments: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Environments of the study (``null``: all)."""
    policies: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Policies of the study (``null``: all that can be trained)."""

    def covers(self, env: str, policy: str) -> bool:
        """Return whether entries of the part are run in this environment with this policy."""
        has_environment = self.environments is None or env in self.environments
        has_policy = self.policies is None or policy in self.policies
        return has_environment and has_policy
