"""Credit audits on decision trees, where the worth of an action is computed and not sampled."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.jobs import settings_of
from tests.toy import common
from tests.unit.test_results_environments import draw
from threespo.decision_trees.tabular import TabularPolicy
from threespo.envs.episode import EpisodeSetup
from threespo.envs.tree import TreeEnv, TreeTask, success_probabilities, tree_prompt
from threespo.methods.registry import METHODS, has_critic
from threespo.paths import Paths, credit_folder
from threespo.protocol import LossSettings, Row, Sample, SampleRequest, UpdateRequest
from threespo.results.analysis.credit import (
    COLUMNS,
    credit_table,
    largest_alignment,
    measure_alignment,
    value_differences,
)
from threespo.results.labels import looks_of_study
from threespo.results.report.captions import caption
from threespo.runs.credit import PASS_COLUMNS, ROW_COLUMNS, CreditAudit, RecordingLearner
from threespo.runs.observed_states import ObservingSampler, find_step
from threespo.runs.probe import EpisodePlayer
from threespo.runs.settings import CreditSettings
from threespo.study.catalogue import notebooks_of, read_catalogue
from threespo.study.load import load_study
from threespo.study.matrix import credit_audits
from threespo.tables import write_table

STUDIES = Path(__file__).resolve().parents[2] / "config" / "studies"
DEPTH = 3
TASKS = [TreeTask(number, depth=DEPTH, branching=2, solutions=3) for number in range(24)]
POLICY = TabularPolicy(2, 0.0, torch.tensor([0.4, -0.4]))
ALL = CreditSettings(tasks=24, passes=2, rows=100_000, continuations=6)
AUDITED = [method for method in METHODS if not has_critic(method)]
SEARCHES = [
    {"preset": preset} for preset in ("literal", "calibrated", "narrow", "improved", "authors-gui")
]
"""Options of 3SPO."""


def probabilities_of_trees():
    """Return p(s) of every node of every tree, by task id."""

    def choose(task):
        return lambda look: dict(
            zip("01", POLICY.probabilities(tree_prompt(task.goal, look)), strict=True)
        )

    return {task.task_id: success_probabilities(task, choose(task)) for task in TASKS}


TRUTH = probabilities_of_trees()


def audit(method, options=None, settings=ALL, seed=5, **over):
    """Return the rows of an audit on the trees, with the exact Q - V of each, and the passes."""
    made = CreditAudit(method, options or {}, common(**over), EpisodePlayer(POLICY, seed, 1.0), settings)
    exact = []

    def find_step_with_truth(setup, draw):
        step = find_step(setup, draw)
        truth = TRUTH[step.before.task.task_id]
        exact.append(truth[step.outcome.episode.state.node] - truth[step.before.state.node])
        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("threespo.runs.credit.find_step", find_step_with_truth)
        passes = made.run(EpisodeSetup(TreeEnv(), DEPTH, 0), TASKS)
    rows = pd.DataFrame([row for one in passes for row in one.rows])
    return rows.assign(exact=exact), [one.summary for one in passes]


def exact_alignment(rows, credit="credit"):
    """Return g in percentage points from the exact Q - V."""
    weight, advantage = rows["weight"], rows[credit]
    product = (weight * advantage * rows["exact"]).sum()
    return 100 * product / math.sqrt(weight.sum() * (weight * advantage**2).sum())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((method, {}) for method in AUDITED if method != "threespo"),
        *(("threespo", one) for one in SEARCHES),
    ],
)
def test_the_estimate_agrees_with_the_exact_value(method, options):
    """Given the rows, the estimate differs from the exact g by the chance of the continuations alone, which is known."""
    rows, _ = audit(method, options)
    found = measure_alignment(rows, "credit", "alfworld")
    exact = exact_alignment(rows)

    # Of A Delta, with a share's variance of at most 1 / 4 after and before. Rows share states, so the errors of a tree may
    # all add up.
    scale = math.sqrt(rows["weight"].sum() * (rows["weight"] * rows["credit"] ** 2).sum())
    by_tree = (rows["weight"] * rows["credit"].abs()).groupby(rows["task_id"]).sum()
    error = 100 * math.sqrt((by_tree**2).sum() / 2 / ALL.continuations) / scale
    assert abs(found.estimate - exact) < 4 * error
    assert found.low < exact < found.high
    # Q - V of single rows, too: their mean error is that of shares.
    errors = value_differences(rows) - rows["exact"]
    assert abs(errors.mean()) < 4 * math.sqrt(0.5 / ALL.continuations / len(TASKS))


def test_the_product_of_rloos_credit_is_the_variance_of_success():
    """A closed form, of the draws of the method and of the continuations together.

    Without a baseline's chance E[A | s, a] = 10 (Q - V(root)), and the mean of V(root) (Q - V) is 0. So the sum over an
    episode of E[A (Q - V)] is 10 times the sum of the variances of Q, which telescopes to that of success, p (1 - p).
    """
    expected = np.mean([10 * (values := TRUTH[task.task_id])[()] * (1 - values[()]) for task in TASKS])
    sums = []
    for seed in range(5):
        rows, passes = audit("rloo", seed=seed)
        product = (rows["credit"] * value_differences(rows)).sum()
        sums.append(product / (len(TASKS) * 8))
        assert passes[0]["groups"] == len(TASKS)
    error = np.std(sums, ddof=1) / math.sqrt(len(sums))
    assert abs(np.mean(sums) - expected) < 4 * error
    assert error < expected / 4, "precise enough to tell the closed form from 0"


@pytest.fixture(scope="module")
def valued():
    """Rows of GRPO with many continuations."""
    return audit("grpo", settings=ALL.model_copy(update={"continuations": 30}))[0]


def test_the_true_advantage_has_the_largest_value_and_others_have_less(valued):
    # Where the action makes no difference, the true advantage is 0 and its row is none to learn from.
    valued = valued[valued["exact"] != 0.0]
    exactly = exact_alignment(valued.assign(ideal=valued["exact"]), "ideal")
    rms = 100 * math.sqrt(np.average(valued["exact"] ** 2, weights=valued["weight"]))
    assert exactly == pytest.approx(rms)
    assert largest_alignment(valued) == pytest.approx(rms, rel=0.15)

    ideal = measure_alignment(valued.assign(ideal=3.0 * valued["exact"]), "ideal", "alfworld")
    assert ideal.low < rms < ideal.high
    assert measure_alignment(valued, "credit", "alfworld").estimate < ideal.estimate


def test_shuffled_credit_gains_nothing_and_turned_credit_loses_as_much(valued):
    found = measure_alignment(valued, "credit", "alfworld")
    assert found.low > 0
    turned = measure_alignment(valued.assign(credit=-valued["credit"]), "credit", "alfworld")
    assert (turned.estimate, turned.low, turned.high) == pytest.approx(
        (-found.estimate, -found.high, -found.low)
    )
    scaled = measure_alignment(valued.assign(credit=7.0 * valued["credit"]), "credit", "alfworld")
    assert scaled.estimate == pytest.approx(found.estimate)

    covered = 0
    for seed in range(40):
        shuffled = valued["credit"].sample(frac=1.0, random_state=seed).to_numpy()
        one = measure_alignment(valued.assign(credit=shuffled), "credit", "alfworld")
        covered += one.low < 0 < one.high
    assert covered >= 34, "of 40, at 95 %: fewer by chance once in ten thousand"


def test_the_interval_is_that_of_a_hand_made_ratio():
    """With one A in all rows g is a mean, and so is its interval."""
    rows = pd.DataFrame(
        {
            "task_id": list("abcd"), "weight": 1.0, "credit": 2.0, "ends": False,
            "wins_after": [3, 1, 2, 4], "wins_before": [1, 1, 2, 2], "continuations": 4,
        }
    )  # fmt: skip
    found = measure_alignment(rows, "credit", "alfworld")
    # Delta is 50, 0, 0 and 50 points: mean 25, standard deviation 28.87, t with 3 degrees of freedom 3.182.
    half = 3.1824463 * 28.8675135 / 2
    assert (found.estimate, found.low, found.high) == pytest.approx((25, 25 - half, 25 + half))
    heavy = rows.assign(weight=[3.0, 1.0, 1.0, 1.0], credit=[1.0, -1.0, 2.0, 0.0])
    # Without the last row: (3 · 0.5) / sqrt(5 · (3 + 1 + 4)).
    assert measure_alignment(heavy, "credit", "alfworld").estimate == pytest.approx(
        100 * 1.5 / math.sqrt(5 * 8)
    )
    assert math.isnan(measure_alignment(rows.assign(credit=0.0), "credit", "alfworld").estimate)


class Drawn:
    """A sampler whose responses are given."""

    def __init__(self, responses):
        self.responses = responses

    def sample(self, requests, *, seed, temperature):
        assert all(type(request.prompt) is str for request in requests)
        return [[Sample(tokens, (0.0,) * len(tokens), "", True, 0)] for tokens in self.responses]


def test_rows_weigh_as_in_the_loss():
    """By hand: 3SPO averages over a response, then over rows by weight; others over all tokens of the step."""

    def weights(aggregation):
        sampler = ObservingSampler(Drawn([(1,), (1, 2), (1, 2, 3, 4)]))
        requests = tuple(SampleRequest(text, 1, (text,)) for text in "xyz")
        tokens = [sample.tokens for (sample,) in sampler.sample(requests, seed=0, temperature=1.0)]
        learner = RecordingLearner(sampler)
        rows = tuple(
            Row("", drawn, (0.0,) * len(drawn), (credit,) * len(drawn), weight, 0)
            for drawn, credit, weight in zip(tokens, (1.0, 1.0, 2.0), (0.5, 0.5, 1.0), strict=True)
        )
        assert learner.update(UpdateRequest((rows,), LossSettings(aggregation=aggregation))) == []
        assert [row.credit for row in learner.rows] == [1.0, 1.0, 2.0]
        assert [row.draw.request.key for row in learner.rows] == [("x",), ("y",), ("z",)]
        return [row.weight for row in learner.rows]

    assert weights("token-mean") == pytest.approx([1 / 7] * 3)
    assert weights("seq-mean-token-mean") == pytest.approx([1 / 4, 1 / 8, 1 / 8])


def test_the_studys_penalty_is_apart_from_the_methods_own_credit():
    """In a tree every action is admissible; a third action of the policy is not, changes nothing, and costs 0.2."""
    made = CreditAudit(
        "grpo",
        {},
        common(inadmissible_penalty=0.2),
        EpisodePlayer(TabularPolicy(3, 0.0, torch.zeros(3)), 5, 1.0),
        ALL,
    )
    (one,) = made.run(EpisodeSetup(TreeEnv(), 5, 0), TASKS)
    rows = pd.DataFrame(one.rows)
    difference = rows["credit"] - rows["penalised_credit"]
    assert difference.to_numpy() == pytest.approx(0.2 * ~rows["admissible"].to_numpy(), abs=1e-12)
    assert set(rows["admissible"]) == {True, False}
    assert (rows["credit"] != 0.0).all()


def test_passes_of_a_search_have_its_counts_and_groups_are_its_states():
    rows, passes = audit("threespo", {"preset": "literal"})
    assert [one["pass"] for one in passes] == [1, 2]
    assert set(rows["pass"]) <= {1, 2}
    assert all(one["groups_with_signal"] <= one["groups"] for one in passes)
    # A state that was won gets one sample as printed, one that was not counted yet gets eight.
    samples = [one["generations"] / one["groups"] for one in passes]
    assert samples[0] == 8 > samples[1]


def test_a_method_that_waits_for_a_batch_plays_on():
    """Groups of a policy that always takes the same way are all won or all lost: DAPO waits, as long as it may."""
    hopeless = TabularPolicy(2, 0.0, torch.tensor([40.0, -40.0]))
    made = CreditAudit("dapo", {}, common(), EpisodePlayer(hopeless, 5, 1.0), ALL)
    (one,) = made.run(EpisodeSetup(TreeEnv(), DEPTH, 0), TASKS)
    assert (one.summary["epochs"], one.summary["groups_with_signal"], one.rows) == (10, 0, [])
    _, (played,) = audit("dapo")
    assert 1 <= played["epochs"] < 10
    assert played["groups"] == played["epochs"] * len(TASKS)


def test_rows_are_drawn_within_the_limit_and_again_the_same():
    few = ALL.model_copy(update={"rows": 20})
    first, passes = audit("grpo", settings=few)
    assert len(first) == passes[0]["rows_valued"] == 20 < passes[0]["rows_with_signal"]
    assert first.equals(audit("grpo", settings=few)[0])
    everything, _ = audit("grpo")
    assert set(zip(first["task_id"], first["credit"], strict=True)) <= set(
        zip(everything["task_id"], everything["credit"], strict=True)
    )
    # GRPO's rows have equal shares; one that was drawn stands for those that were not.
    assert first["weight"].sum() == pytest.approx(everything["weight"].sum())


def test_an_audit_depends_on_no_rate_and_no_budget():
    def key(**change):
        study = load_study(STUDIES / "credit-audit.yaml", change)
        return settings_of("credit", study, "alfworld/tiny-s-early/rloo/seed-600/base").key()

    assert key() == key(training={"generations": 777, "pool": 8})
    assert key() == key(methods={"rloo": {"learning_rate": 0.5}})
    assert key() != key(credit_audit={"tasks": 3})
    assert key() != key(training={"temperature": 0.5})


def test_every_method_without_a_critic_is_audited_and_only_trained_ones_at_their_end():
    study = load_study(STUDIES / "credit-audit.yaml", {"webshop": None})
    audits = [(run.method, at) for run, at in credit_audits(study)]
    assert audits == [*((method, "base") for method in study.methods), ("grpo", "final")]
    with_critic = {"ppo": {"method": "ppo", "learning_rate": 1e-4}}
    other = load_study(STUDIES / "credit-audit.yaml", {"webshop": None, "methods": with_critic})
    assert [(run.method, at) for run, at in credit_audits(other)] == [
        *((method, "base") for method in study.methods),
        ("grpo", "final"),
    ]


def valued_rows(credits, wins_after, **same):
    """Rows of an audit by hand: six continuations each, V estimated as a half, tasks of layouts of their own."""
    return [
        {
            "pass": 1, "task_id": f"pick-{number}/trial", "task_type": "pick", "depth": 1, "valid": True, "admissible": True,
            "credit": credit, "penalised_credit": credit - 0.5, "weight": 1.0, "ends": False, "wins_after": wins,
            "wins_before": 3, "continuations": 6, **same,
        }
        for number, (credit, wins) in enumerate(zip(credits, wins_after, strict=True))
    ]  # fmt: skip


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A study of three seeds whose audits have known rows."""
    monkeypatch.chdir(STUDIES.parents[1])
    change = {
        "webshop": None,
        "seeds": [1, 2, 3],
        "methods": {"grpo": {}, "threespo-literal": {}},
        "keep": {"methods": ["grpo", "threespo-literal"]},
        "credit_audit": {"seeds": 3, "passes": 2, "continuations": 6},
    }
    study, paths = load_study(STUDIES / "credit-audit.yaml", change), Paths(tmp_path)
    for run, at in credit_audits(study):
        files = credit_folder(paths, run, at)
        searches = run.method != "grpo"
        summary = {
            "tasks": 4, "epochs": 1, "generations": 50, "groups": 20, "groups_with_signal": 5,
            "rows_with_signal": 9, "rows_valued": 4,
        }  # fmt: skip
        write_table(
            files.passes,
            [{"pass": number, **summary} for number in (1, 2)[: 1 + searches]],
            PASS_COLUMNS,
        )
        # In points: 50, 50, -50 and 0; a trained policy's grow with its seed.
        wins = [6, 6, 0, 3] if at == "base" else [3 + run.seed - 1, 3, 3, 3]
        rows = [] if searches else valued_rows([1.0, 1.0, -1.0, 1.0], wins)
        write_table(files.rows, rows, ROW_COLUMNS)
    return study, paths


def test_the_table_has_a_row_for_each_pass_with_intervals_over_tasks_or_seeds(finished):
    study, paths = finished
    table = credit_table(study, paths)
    assert tuple(table.columns) == COLUMNS
    names = table[["at", "method", "pass", "interval", "seeds"]].to_numpy().tolist()
    assert names == [
        ["base", "grpo", 1, "clusters of tasks", 3],
        ["base", "threespo-literal", 1, "clusters of tasks", 3],
        ["base", "threespo-literal", 2, "clusters of tasks", 3],
        ["final", "grpo", 1, "training seeds", 3],
    ]
    base, first, second, final = table.to_dict("records")
    counts = (
        base["groups"],
        base["groups_with_signal"],
        base["rows"],
        base["tasks"],
        base["continuations"],
    )
    assert counts == (60, 15, 12, 4, 6)
    assert base["share"] == 25.0
    # (50 + 50 + 50 + 0) / 4; with -0.5 the credits are 0.5, 0.5, -1.5 and 0.5, and their mean square 0.75.
    assert base["estimate"] == pytest.approx(37.5)
    assert base["penalised"] == pytest.approx((25 + 25 + 75) / 4 / math.sqrt(0.75))
    assert base["low"] < 37.5 < base["high"]
    # Nothing carried a signal.
    assert first["groups"] == second["groups"] == 60
    assert np.isnan([first["estimate"], first["low"], second["penalised"], second["largest"]]).all()
    # Seeds give 0, 100 / 6 / 4 and twice that; t with two degrees of freedom is 4.303.
    step = 100 / 6 / 4
    assert final["estimate"] == pytest.approx(step)
    assert final["high"] - final["low"] == pytest.approx(2 * 4.30265 * step / math.sqrt(3), rel=1e-5)


def test_the_figure_has_a_line_for_each_row_of_the_table(finished):
    study, paths = finished
    assert "credit" in notebooks_of(study)
    write_table(paths.table("credit"), credit_table(study, paths))
    write_table(paths.table("rows"), looks_of_study(study))
    (figure,) = draw("credit", paths)
    base, final = figure.axes
    assert [text.get_text() for text in base.get_yticklabels()] == [
        "GRPO",
        "3SPO as printed, pass 1",
        "3SPO as printed, pass 2",
    ]
    dots = [line.get_xdata() for line in base.lines if line.get_markersize() == 5]
    assert dots[0] == pytest.approx([37.5])
    assert [text.get_text() for text in final.texts] == ["25 %"]
    assert (paths.figures / "credit.svg").is_file()
    (item,) = [item for item in read_catalogue().items if item.name == "credit"]
    assert caption(study, item)[1].endswith(
        "Seeds of a row: 3; tasks: 32; episodes for each Q and V: 6."
    )
