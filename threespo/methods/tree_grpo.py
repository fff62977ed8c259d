"""Tree-GRPO (arXiv 2509.21240): episodes branch from randomly chosen steps; returns are compared within and between trees.

A node is a whole step of the agent. Where forking is free this is the plain alternative to a search by scores: branches
share their beginnings, so the same generations give more episodes.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.advantages import Groups, Steps, grpo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions, Tally
from threespo.methods.episodes import (
    Rollout,
    make_episode_rows,
    make_episode_update,
    play_episodes,
)
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, Request
from threespo.rng import generator

Tree = list[Rollout]
"""The episodes of one tree, each from the root to its end; branches share the turns before they part."""


class BranchPoint(NamedTuple):
    """A step of an episode from which a branch can part."""

    rollout: Rollout
    step: int


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
        self.options = options
        self.common = common

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        first_episodes = yield from play_episodes(epoch, starts, self.options.trees, tally)
        forests: list[list[Tree]] = [[[rollout] for rollout in group] for group in first_episodes]
        all_trees = [tree for forest in forests for tree in forest]
        for round_number in range(self.options.rounds):
            yield from self._add_branches(epoch, round_number, all_trees, tally)

        # Steps that branches share are rows of each, as the episodes are sequences of their own to the loss.
        groups = [[rollout for tree in forest for rollout in tree] for forest in forests]
        tree_sizes = [[len(tree) for tree in forest] for forest in forests]

        rows = make_episode_rows(
            groups, lambda steps: self._estimate_advantages(steps, tree_sizes), self.common
        )
        yield make_episode_update(rows, self.common, epoch)
        branches = sum(len(tree) - 1 for tree in all_trees)
        return tally.close_epoch({"branches": float(branches)})

    def _add_branches(
        self, epoch: int, round_number: int, trees: Sequence[Tree], tally: Tally
    ) -> Generator[Request, Any, None]:
        chosen: list[tuple[Tree, BranchPoint]] = []
        for index, tree in enumerate(trees):
            points = _find_branch_points(tree)
            # An episode of one step has no step to branch from.
            if not points:
                continue
            draw = generator(self.common.seed, "branches", epoch, round_number, index)
            chosen += [(tree, draw.choice(points)) for _ in range(self.options.branches)]

        starts = [point.rollout.turns[point.step].before for _, point in chosen]
        played = yield from play_episodes(epoch, starts, 1, tally, f"branch {round_number}")
        # Only after all branches are chosen and played does a tree grow: a round's branches do not branch from each other.
        for (tree, point), (branch,) in zip(chosen, played, strict=True):
            shared_turns = point.rollout.turns[: point.step]
            tree.append(Rollout(branch.episode, [*shared_turns, *branch.turns]))

    def _estimate_advantages(
        self, groups: Groups, tree_sizes: Sequence[Sequence[int]]
    ) -> list[list[list[float]]]:
        """Return GRPO's advantage within the tree plus that among all episodes of the task."""
        advantages = []
        for group, sizes in zip(groups, tree_sizes, strict=True):
            # The episodes of a group are those of its trees, one tree after the other.
            inter_tree = grpo_advantages(group, population=self.common.statistics)
            intra_tree: list[list[float]] = []
            for size in sizes:
                first = len(intra_tree)
                intra_tree += self._compare_within_tree(group[first : first + size])
            group_sums = []
            for within_tree, among_all in zip(intra_tree, inter_tree, strict=True):
                group_sums.append([a + b for a, b in zip(within_tree, among_all, strict=True)])
            advantages.append(group_sums)
        return advantages

    def _compare_within_tree(self, episodes: Sequence[Steps]) -> list[list[float]]:
        if len(episodes) == 1:
            # An episode alone in its tree has nothing to be compared with there.
            return [[0.0] * len(episodes[0].scores)]
        return grpo_advantages(episodes, population=self.common.statistics)


def _find_branch_points(tree: Tree) -> list[BranchPoint]:
    """Return the steps after the first and before the end of each episode; those that episodes share come once."""
    # Branches share the turn objects before they part, so a turn's identity is that of the step.
    points = {
        id(rollout.turns[step]): BranchPoint(rollout, step)
        for rollout in tree
        for step in range(1, len(rollout.turns))
    }
    return list(points.values())


METHOD = MethodEntry(TreeGrpo, TreeGrpoOptions)
