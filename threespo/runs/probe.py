"""Does the score measure what it claims? State scores against the success probability of a frozen policy.

Episodes are immutable, so many can go on from one state. The share of them that is won, with the weights
of a snapshot, estimates p(s), the probability of winning from the state. Scores use the method's
statistics at the time of the snapshot.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threespo.agents.rollout import continue_episodes
from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup, start_episode, take_action
from threespo.errors import InputError
from threespo.methods.registry import make_method
from threespo.methods.scorer import Node, SearchMethod, StateScorer
from threespo.methods.states import normalise_observation, state_id
from threespo.protocol import Counters, Sampler
from threespo.rng import derive
from threespo.runs.settings import ProbeRunSettings, ProbeSettings
from threespo.runs.setup import episode_setup, iterate_samplers, load_tasks
from threespo.runs.snapshots import Snapshot, read_snapshot_index
from threespo.runs.train import choose_pool, common_settings
from threespo.runs.training_settings import TrainingSettings
from threespo.tables import write_table

COLUMNS = (
    "snapshot", "epoch", "task_id", "task_type", "depth", "state", "continuations", "successes", "visits",
    "counted_successes", "score", "gated", "score_without_gate", "sharing_games", "sharing_histories", "alpha",
)  # fmt: skip


def probe(settings: ProbeRunSettings) -> None:
    """Write ``probe.parquet``: one row for each probed state of each snapshot that is probed; ``snapshot`` is its number.

    ``successes`` of ``continuations`` episodes that go on from the state are won; ``visits`` and
    ``counted_successes`` are N_total and N_success. ``sharing_games`` counts the probed games in which
    an equal state key was met, and ``sharing_histories`` the different histories that led to it. Rows
    with one ``state`` and different p(s) are aliased.

    Raises:
        InputError: if the run has left no snapshot.
    """
    import torch

    torch.set_num_threads(settings.threads)
    run = settings.run
    folder = settings.paths.run(run)
    # Of the games that the run was trained on, since the score's statistics are of these.
    pool = choose_pool(load_tasks(settings, "train"), settings.training, run.seed)
    games = pool[: settings.probe.games]
    snapshots = nearest_snapshots(
        read_snapshot_index(folder), settings.probe.snapshots, settings.training
    )

    rows: list[dict[str, Any]] = []
    samplers = iterate_samplers(settings, (str(snapshot.weights(folder)) for snapshot in snapshots))
    for snapshot, sampler in zip(snapshots, samplers, strict=True):
        scorer = _make_scorer(settings, snapshot)
        player = EpisodePlayer(sampler, derive(run.seed, "probe"), settings.training.temperature)
        state_rows = probe_states(episode_setup(settings), games, scorer, player, settings.probe)
        rows += [{"snapshot": snapshot.number, "epoch": snapshot.epoch, **row} for row in state_rows]

        successes = sum(row["successes"] for row in state_rows)
        continuations = sum(row["continuations"] for row in state_rows)
        print(
            f"probe {run.run_id} snapshot {snapshot.number}: {len(state_rows)} states, "
            f"p(s) {successes / max(1, continuations):.1%} on average",
            file=sys.stderr,
        )

    if not rows:
        raise InputError(
            f"{folder.snapshots}: no snapshot; raise training.snapshots or training.generations"
        )
    write_table(folder.probe, rows, COLUMNS)


def nearest_snapshots(
    snapshots: Sequence[Snapshot], parts: int, training: TrainingSettings
) -> list[Snapshot]:
    """Return the snapshots nearest to the middles of ``parts`` equal parts of the budget, each once."""
    if not snapshots:
        return []

    def spent(snapshot: Snapshot) -> int:
        return training.spent_budget(epochs=snapshot.epoch, generations=snapshot.generations)

    chosen = []
    for part in range(parts):
        middle = training.budget * (2 * part + 1) / (2 * parts)
        distances = {snapshot: abs(spent(snapshot) - middle) for snapshot in snapshots}
        chosen.append(min(snapshots, key=distances.__getitem__))
    return list(dict.fromkeys(chosen))


def _make_scorer(settings: ProbeRunSettings, snapshot: Snapshot) -> StateScorer:
    """Return a scorer with the method's statistics at the time of a snapshot."""
    # No pool: it only says which search trees are recorded.
    method = make_method(settings.method, settings.options, common_settings(settings, []))
    assert isinstance(method, SearchMethod), "only methods that search are probed"
    method.restore(snapshot.memory(settings.paths.run(settings.run)))
    return method.scorer_at_epoch(snapshot.epoch)


@dataclass(frozen=True, slots=True)
class EpisodePlayer:
    """What plays, and from which random numbers."""

    sampler: Sampler
    seed: int
    temperature: float

    def play(self, starts: Sequence[Episode], keys: Sequence[Counters]) -> list[Episode]:
        """Play on from every state in ``starts`` and return the last states; ``keys`` tell their random numbers apart."""
        played = continue_episodes(
            starts, self.sampler, seed=self.seed, temperature=self.temperature, keys=keys
        )
        return [record.episode for record in played]


def probe_states(
    setup: EpisodeSetup,
    pool: Sequence[Task],
    scorer: StateScorer,
    player: EpisodePlayer,
    settings: ProbeSettings,
) -> list[dict[str, Any]]:
    """Play every task of ``pool`` once and probe some of the states on the way.

    Args:
        setup: how episodes run.
        pool: the tasks.
        scorer: scores states with the statistics of a snapshot.
        player: the snapshot's policy.
        settings: how many states are probed, and with how many episodes each.

    Returns:
        A row for each probed state, with ``COLUMNS`` from the third on.
    """
    starts = [start_episode(setup, task) for task in pool]
    walks = player.play(starts, [("walk", task.task_id) for task in pool])
    states = [state for walk in walks for state in _states_before(walk)]

    # Over all states that were met, not only those that are chosen below.
    games_of_key = {(scorer.state_key(state), state.task.task_id) for state in states}
    histories_of_key = {(scorer.state_key(state), _history_key(state)) for state in states}
    sharing_games = Counter(key for key, _ in games_of_key)
    sharing_histories = Counter(key for key, _ in histories_of_key)

    # In the order of a hash, so that the choice mixes games and depths and stays the same when
    # ``states`` grows.
    shuffled = sorted(
        states, key=lambda state: derive("probe", player.seed, state.task.task_id, state.steps)
    )
    chosen = shuffled[: settings.states]
    successes = _count_successes(player, chosen, settings.continuations)

    rows = []
    for state, state_successes in zip(chosen, successes, strict=True):
        key = scorer.state_key(state)
        # A state is scored as the end of its path.
        path = (*(scorer.state_key(earlier) for earlier in _states_before(state)), key)
        node = Node(state, path)
        score = scorer.score(node)
        score_without_gate = scorer.score(node, gate=False)
        visits, counted_successes = scorer.table.get(key)

        rows.append(
            {
                "task_id": state.task.task_id,
                "task_type": state.task.task_type,
                "depth": state.steps + 1,
                "state": state_id(key),
                "continuations": settings.continuations,
                "successes": state_successes,
                "visits": visits,
                "counted_successes": counted_successes,
                "score": score.score,
                "gated": score.gated,
                "score_without_gate": score_without_gate.score,
                "sharing_games": sharing_games[key],
                "sharing_histories": sharing_histories[key],
                "alpha": scorer.constants.alpha,
            }
        )
    return rows


def _count_successes(player: EpisodePlayer, states: Sequence[Episode], continuations: int) -> list[int]:
    """Return for each state how many of ``continuations`` episodes that go on from it are won."""
    # All continuations of all states in one call: the sampler fills its batches.
    starts: list[Episode] = []
    keys: list[Counters] = []
    for state in states:
        for number in range(continuations):
            starts.append(state)
            keys.append(("fork", state.task.task_id, state.steps, number))
    ends = player.play(starts, keys)

    successes = []
    for first in range(0, len(ends), continuations):
        successes.append(sum(end.won for end in ends[first : first + continuations]))
    return successes


def _states_before(last: Episode) -> list[Episode]:
    """Return the states on the way to ``last``, from the start of its episode, without it."""
    states = []
    episode = start_episode(last.setup, last.task)
    for _, action in last.history:
        states.append(episode)
        episode = take_action(episode, action)
    return states


def _history_key(state: Episode) -> tuple[str, ...]:
    """Return the observations and actions that led to a state, as the statistics tell observations apart."""
    return tuple(f"{normalise_observation(seen)} > {action}" for seen, action in state.history)
