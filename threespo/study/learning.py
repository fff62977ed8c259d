"""How learning curves are made: on which games the snapshots of a run are played."""

from pydantic import Field

from threespo.settings import Name, Seeds, Settings

MOST_GAMES = 50
"""Games of a curve where the study gives no number: with eight snapshots and one seed about a tenth of a run's time."""


class LearningSettings(Settings):
    """The games that every snapshot plays, once per seed, with the temperature of the evaluation (figures 3a and 3d).

    Nothing of it is read by training, so another choice evaluates the same snapshots again.
    """

    split: Name | None = None
    """Any split but ``train`` (``null``: the last of ``evaluation.splits``). An environment that has no such split uses the
    last one that it is evaluated on."""
    games: int | None = Field(default=None, ge=1, le=10_000_000)
    """The first games of the split in an order by hash, so that task types mix; ``null``: 50, or all of a smaller split."""
    seeds: Seeds = (123,)
    """Evaluation seeds: each one plays all the games."""
