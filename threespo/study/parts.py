"""The parts of a study: which tables and figures of the paper its entries stand in, and where (environments, policies)."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from threespo.settings import DistinctListOf, Name, Settings

Part = Literal["main", "ablation", "sensitivity", "figures"]
"""``main``: the table of main results; ``ablation``: the table of ablations; ``sensitivity``: the tables of α and of ξ
and ζ; ``figures``: the figures of the course of training, and the table of efficiency, which counts the same runs."""

MAIN_PART: tuple[Part, ...] = ("main",)
"""Where prompting agents stand."""

PARTS: tuple[Part, ...] = get_args(Part)


class Scope(Settings):
    """Where the entries of a part are run."""

    environments: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Environments of the study (``null``: all)."""
    policies: Annotated[DistinctListOf[Name], Field(min_length=1)] | None = None
    """Policies of the study (``null``: all that can be trained)."""

    def covers(self, env: str, policy: str) -> bool:
        """Return whether entries of the part are run in this environment with this policy."""
        there = self.environments is None or env in self.environments
        return there and (self.policies is None or policy in self.policies)
