"""GraphGPO on graphs whose distances and advantages are known: by hand, by Floyd and Warshall, by definition."""

import itertools
import math
import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from threespo.methods.advantages import Steps, grpo_advantages
from threespo.methods.graphgpo import SUCCESS, distances_to_success, graphgpo_advantages
from threespo.methods.registry import make_method


@dataclass(frozen=True)
class Place:
    """A state that looks like its name without the number."""

    name: str

    @property
    def observation(self) -> str:
        return self.name.rstrip("0123456789")


def episode(path, won, penalties=()):
    """An episode through states that are named in ``path``, the last of which no action was taken in."""
    states = [Place(name) for name in path]
    penalties = penalties or [0.0] * (len(path) - 1)
    reward = 10.0 * won
    scores = [reward - penalty for penalty in penalties]
    keys = [state.observation for state in states[:-1]]
    return Steps(keys, scores, scores, reward, penalties=penalties, states=states, won=won)


def step_part(group, **options):
    """The advantages without GRPO's."""
    pairs = zip(graphgpo_advantages(group, **options), grpo_advantages(group), strict=True)
    return [[whole - own for whole, own in zip(*pair, strict=True)] for pair in pairs]


def test_distances_by_hand():
    edges = [
        ("a", "b"),
        ("b", SUCCESS),
        ("a", "c"),
        ("c", "c"),
        ("c", "a"),
        ("x", "y"),
        ("y", "x"),
        ("b", "z"),
    ]
    assert distances_to_success(edges) == {SUCCESS: 0, "b": 1, "a": 2, "c": 3, "x": 4, "y": 4, "z": 4}
    assert distances_to_success([("a", "b"), ("b", "a")]) == {}


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 8)), max_size=25))
def test_distances_are_those_of_floyd_and_warshall(pairs):
    """Nodes 0 to 7; 8 is success."""
    edges = [(source, SUCCESS if target == 8 else target) for source, target in pairs]
    nodes = set(itertools.chain(*edges))
    length = {
        (a, b): 0.0 if a == b else 1.0 if (a, b) in set(edges) else math.inf
        for a in nodes
        for b in nodes
    }
    for middle, a, b in itertools.product(nodes, repeat=3):
        length[a, b] = min(length[a, b], length[a, middle] + length[middle, b])
    found = {node: length[node, SUCCESS] for node in nodes} if SUCCESS in nodes else {}
    furthest = max((value for value in found.values() if value < math.inf), default=0)
    assert distances_to_success(edges) == {
        node: furthest + 1 if value == math.inf else value for node, value in found.items()
    }


def test_advantages_by_hand():
    """d: b 1, a 2, c 3, and the end of the lost episode, from which nobody went on, 4. Out of a the steps are worth 10 * 0.1
    (to b) and 10 * 0.001 (to c), out of c 10 * 0.01 (to a) and 10 * 0.0001 (to the end); b has one step. Two values are
    1 / sqrt(2) standard deviations from their mean, up to the constant in the divisor."""
    group = [episode("acabg", True), episode("ace", False)]
    half = 1 / math.sqrt(2)
    (first, second) = step_part(group)
    # Out of a: to c, to b; to c: 0.01, 1, 0.01, with mean 0.34 and standard deviation 0.99 / sqrt(3).
    a_far, a_near = -0.33 / (0.99 / math.sqrt(3)), 0.66 / (0.99 / math.sqrt(3))
    assert first == pytest.approx([a_far, half, a_near, 0.0], abs=2e-5)
    assert second == pytest.approx([a_far, -half], abs=2e-5)
    assert graphgpo_advantages(group)[0][3] == pytest.approx(half, abs=1e-6), (
        "GRPO's part alone: 5 / (10 / sqrt(2))"
    )


def test_the_constant_in_the_divisor_silences_what_is_far_away():
    """Seven and eight steps from success two values differ by 9e-7 out of 1e-6: far below the constant."""
    group = [episode("abcdefghs", True), episode("xa", False), episode("xb", False)]
    gap = 10 * (0.1**7 - 0.1**8)
    worth = gap / 2 / (gap / math.sqrt(2) + 1e-6)
    assert [values[0] for values in step_part(group)] == pytest.approx([0.0, -worth, worth], rel=1e-9)
    assert worth < 0.3
    (printed,) = step_part(group, reward=1.0)[2]
    assert printed == pytest.approx(gap / 20 / (gap / 10 / math.sqrt(2) + 1e-6), rel=1e-9)


def test_without_a_success_it_is_grpo():
    group = [episode("aba", False, [0.1, 0.0]), episode("acc", False)]
    assert graphgpo_advantages(group) == grpo_advantages(group) == [[-0.1, 0.0], [0.0, 0.0]]


def test_a_lost_episode_is_credited_where_another_shows_the_way():
    """The lost one goes the right way first (credit) and turns back then (blame)."""
    group = [episode("abg", True), episode("aba", False), episode("aa", False)]
    _, lost, idle = step_part(group)
    assert lost[0] > 0 > lost[1]
    assert idle[0] < 0


def test_equal_observations_are_one_node_and_states_are_not():
    """What looks like n was met twice, in different states: one step leads from it to b, the other back to c."""
    group = [
        episode(["a", "n1", "b", "g"], True),
        episode(["c", "n2", "c"], False),
        episode(["a", "b", "g"], True),
    ]
    by_looks, by_state = (step_part(group, nodes=nodes) for nodes in ("observation", "state"))
    assert by_looks[0][1] > 0 > by_looks[1][1], "from what looks alike one goes to b, one to c"
    assert (by_state[0][1], by_state[1][1]) == (0.0, 0.0), "each is the only step from its state"
    assert by_looks[0][0] == pytest.approx(by_state[0][0]), "a is a in both"


PATHS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a1", "a2", "b", "c", "d", "e"]), min_size=2, max_size=6),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)


@given(PATHS, st.sampled_from(["observation", "state"]), st.floats(0.05, 0.9))
def test_advantages_are_those_of_the_definition(paths, nodes, omega):
    """Distances by trying all lengths in turn, statistics by the standard library."""
    group = [episode(path, won) for path, won in paths]
    steps = []
    for place, (path, won) in enumerate(paths):
        names = [name if nodes == "state" else name.rstrip("12") for name in path]
        names[-1] = "success" if won else names[-1]
        steps += [(place, step, *pair) for step, pair in enumerate(itertools.pairwise(names))]

    distance = {"success": 0}
    for length in range(1, len(steps) + 1):
        ways = {source for _, _, source, target in steps if distance.get(target) == length - 1}
        distance |= {node: length for node in ways if node not in distance}
    beyond = max(distance.values()) + 1

    got = step_part(group, nodes=nodes, omega=omega)
    for place, step, source, _ in steps:
        worths = {
            (i, j): 10 * omega ** distance.get(to, beyond) for i, j, node, to in steps if node == source
        }
        wanted = 0.0
        if any(won for _, won in paths) and len(worths) > 1:
            spread = statistics.stdev(worths.values())
            wanted = (worths[place, step] - statistics.fmean(worths.values())) / (spread + 1e-6)
        assert got[place][step] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "factor"), [({}, 10.0), ({"worth": "printed"}, 1.0), ({"step_weight": 0.5}, 10.0)]
)
def test_the_method_gives_rows_these_advantages(options, factor):
    """Of s1 one step wins and one stays; both are penalised alike by nothing. Distances: s1 is 1 from success."""
    task = make_task({"s1": {"win": "s2"}}, {"s2"}, "s1")
    method = make_method("graphgpo", options, common(group_size=2))
    choose = lambda request: [answer("win" if request.key[3] == 0 else "stay")]  # noqa: E731
    _, updates, _ = drive(method.train_epoch(0, [start(task, 1)]), choose)
    got = sorted(row.advantages[0] for batch in updates for row in batch)
    gap = 0.9 * factor
    step = gap / 2 / (gap / math.sqrt(2) + 1e-6)
    whole = 5 / (10 / math.sqrt(2) + 1e-6) + options.get("step_weight", 1.0) * step
    assert got == pytest.approx([-whole, whole], rel=1e-9)
