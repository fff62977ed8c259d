"""Tree-GRPO (arXiv 2509.21240): episodes branch from randomly chosen steps; returns are compared within and between trees.

A node is a whole step of the agent. Where forking is free this is the plain alternative to a search by scores: more
episodes for the same generations, since branches share their beginnings.
"""

from collections.abc import Generator, Sequence
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.advantages import Groups, grpo_advantages
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    MethodOptions,
    Tally,
    make_loss_settings,
    split_into_minibatches,
)
from threespo.methods.episodes import Rollout, make_episode_rows, play_episodes
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, Request, UpdateRequest
from threespo.rng import generator

Tree = list[Rollout]
"""The episodes of one tree, each from the root to its end; branches share the turns before they part."""


class TreeGrpoOptions(MethodOptions):
    """Options of Tree-GRPO."""

    trees: int = Field(default=4, ge=1, le=1024)
    """Trees of a task, each begun by one episode (M)."""
    branches: int = Field(default=1, ge=1, le=1024)
    """Branches that a round adds to a tree, each from a step chosen at random (N)."""
    rounds: int = Field(default=1, ge=0, le=1024)
    """Rounds (L): a task has trees x (1 + branches x rounds) episodes, by default eight."""


class TreeGrpo(RemembersStates):
    """Tree-GRPO."""

    critic_rate = None

    def __init__(self, options: TreeGrpoOptions, common: CommonSettings) -> None:
        super().__init__()
        self.options, self.common = options, common

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        begun = yield from play_episodes(number, starts, self.options.trees, tally)
        forests: list[list[Tree]] = [[[rollout] for rollout in group] for group in begun]
        for turn in range(self.options.rounds):
            yield from self._grow(number, turn, [tree for forest in forests for tree in forest], tally)

        # Steps that branches share are rows of each, as the episodes are sequences of their own to the loss.
        groups = [[rollout for tree in forest for rollout in tree] for forest in forests]
        sizes = [[len(tree) for tree in forest] for forest in forests]

        rows = make_episode_rows(groups, lambda steps: self._advantages(steps, sizes), self.common)
        batches = split_into_minibatches(rows, self.common.minibatch, self.common.seed, number)
        yield UpdateRequest(tuple(batches), make_loss_settings(self.common, "token-mean"))
        return tally.close(
            {"branches": float(sum(len(tree) - 1 for forest in forests for tree in forest))}
        )

    def _grow(
        self, number: int, turn: int, trees: Sequence[Tree], tally: Tally
    ) -> Generator[Request, Any, None]:
        """Add a round's branches to every tree."""
        chosen: list[tuple[Tree, Rollout, int]] = []
        for place, tree in enumerate(trees):
            nodes = self._nodes(tree)
            draw = generator(self.common.seed, "branches", number, turn, place)
            chosen += [(tree, *draw.choice(nodes)) for _ in range(self.options.branches if nodes else 0)]

        starts = [rollout.turns[step].before for _, rollout, step in chosen]
        played = yield from play_episodes(number, starts, 1, tally, f"branch {turn}")
        for (tree, rollout, step), (branch,) in zip(chosen, played, strict=True):
            tree.append(Rollout(branch.episode, [*rollout.turns[:step], *branch.turns]))

    def _nodes(self, tree: Tree) -> list[tuple[Rollout, int]]:
        """Return the places, after the first step and before the last, from which a branch can part; shared ones once."""
        places = {
            id(rollout.turns[step]): (rollout, step)
            for rollout in tree
            for step in range(1, len(rollout.turns))
        }
        return list(places.values())

    def _advantages(self, groups: Groups, sizes: Sequence[Sequence[int]]) -> list[list[list[float]]]:
        """Return GRPO's advantage within the tree plus that among all episodes of the task."""
        result = []
        for group, trees in zip(groups, sizes, strict=True):
            inter = grpo_advantages(group, population=self.common.statistics)
            intra: list[list[float]] = []
            for size in trees:
                tree = group[len(intra) : len(intra) + size]
                # An episode alone in its tree has nothing to be compared with there.
                alone = [[0.0] * len(episode.scores) for episode in tree]
                intra += grpo_advantages(tree, population=self.common.statistics) if size > 1 else alone
            result.append(
                [
                    [a + b for a, b in zip(one, other, strict=True)]
                    for one, other in zip(intra, inter, strict=True)
                ]
            )
        return result


METHOD = MethodEntry(TreeGrpo, TreeGrpoOptions)
