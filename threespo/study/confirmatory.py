"""The mark of a confirmatory study: what it was when it was frozen, before it ran."""

from typing import Annotated

from pydantic import Field

from threespo.settings import Settings

MIN_SEEDS = 3
"""Fewest training seeds (or clusters of tasks) that an interval is computed from; with fewer nothing is decided."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]


RULE = 2
"""How the digest of the code is computed. By the first rule it was one of whole modules, without those of study files."""


class Freeze(Settings):
    """Written by ``threespo study NAME --freeze``; whoever changes the study or its code afterwards loses the mark."""

    rule: Annotated[int, Field(ge=1, le=RULE)] = 1
    """How ``code`` was computed; marks without this field are of the first rule, and are checked at their commit."""

    commit: Digest
    """The commit at which nothing was left to be chosen."""
    configuration: Digest
    """Of all fields of the study that results depend on, and of the labels that say what is compared."""
    code: Digest
    """Of all code that makes its data, policies, runs, evaluations and tables, and of the rules that decide claims;
    comments, documentation and names of local variables do not count."""
