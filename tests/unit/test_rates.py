"""Trials of learning rates as a table and a figure, and the marks of rows whose rate is at an edge."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.claims_evidence import evidence
from tests.claims_evidence import played as played_by
from threespo.errors import InputError
from threespo.paths import Paths, Run, trials_file
from threespo.pipeline.stages import ResultContext
from threespo.results.analysis.caveats import list_caveats
from threespo.results.analysis.comparisons import compare_methods
from threespo.results.analysis.rates import note_edges, rate_table, rows_at_edge, tuning_table
from threespo.results.claims.judging import judge_claims
from threespo.results.claims.rules import Above, read_claims
from threespo.results.paper.rate_figure import draw_rates
from threespo.results.paper_numbers import read_paper
from threespo.study.checks import edge_problems, find_problems
from threespo.study.config import Study
from threespo.study.confirmatory import Freeze
from threespo.study.load import parse_study
from threespo.tables import write_table

SPLITS = ("calibration", "confirmation")
GAMES = ("train", "calibration", "valid_seen", "valid_unseen", "confirmation")
METHODS = ("grpo", "threespo-literal")
# Games of ten that the base and each trial win, on calibration and on confirmation.
BASE = (4, 3)
WINS = {
    "grpo": {1e-4: ((5, 6), (7, 6)), 1e-3: ((8, 7), (9, 8)), 1e-2: ((0, 0), (0, 0))},
    "threespo-literal": {1e-5: ((5, 5), (6, 5)), 1e-4: ((3, 3), (3, 3)), 1e-3: ((0, 0), (0, 0))},
}
CHOSEN = {"grpo": 1e-3, "threespo-literal": 1e-5}


def tuned(**changes) -> Study:
    values = {
        "name": "tuned",
        "description": "a test",
        "seeds": [0, 1, 2],
        "alfworld": {"difficulty": "small", "max_steps": 6, "games": dict.fromkeys(GAMES, 10)},
        "policies": {"tiny-s": {"stands_for": "qwen2.5-1.5b-instruct"}},
        "methods": {
            "grpo": {"method": "grpo", "paper_row": "grpo"},
            "threespo-literal": {
                "method": "threespo",
                "paper_row": "3spo",
                "options": {"preset": "literal"},
            },
        },
        "tuning": {
            "learning_rates": [1e-4, 1e-3],
            "generations": 10,
            "seeds": [90, 91],
            "splits": list(SPLITS),
            "max_extensions": 1,
        },
        "training": {"generations": 100},
        "evaluation": {"splits": ["confirmation"]},
    }
    return parse_study(values | changes, "test")


def played(run: Run, wins: dict[str, int]) -> pd.DataFrame:
    rows = [
        {
            "env": run.env,
            "policy": run.policy,
            "method": run.method,
            "training_seed": run.seed,
            "split": split,
            "evaluation_seed": 123,
            "task_id": f"{split}-{game}",
            "success": game < won,
            "score": float(game < won),
        }
        for split, won in wins.items()
        for game in range(10)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def paths(tmp_path) -> Paths:
    """What the choices of both methods have left: 3SPO's best rate is the smallest, one beyond the grid."""
    paths = Paths(tmp_path)
    base = Run("alfworld", "tiny-s", "base", 0, 0.0)
    write_table(paths.run(base).evaluation, played(base, dict(zip(SPLITS, BASE, strict=True))))
    for method, rates in WINS.items():
        trials = [
            {
                "learning_rate": rate,
                "training_seed": seed,
                "split": split,
                "games": 10,
                "success": won / 10,
                "score": won / 10,
            }
            for rate, by_seed in rates.items()
            for seed, wins in zip((90, 91), by_seed, strict=True)
            for split, won in zip(SPLITS, wins, strict=True)
        ]
        found = {
            "learning_rate": CHOSEN[method],
            "at_edge": "lower" if method == "threespo-literal" else None,
            "equals_base": False,
            "extensions": [rate for rate in rates if rate not in (1e-4, 1e-3)],
            "trials": trials[::-1],
        }
        file = trials_file(paths, "alfworld", "tiny-s", method)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return paths


def test_every_trial_stands_beside_the_base_on_the_same_games(paths):
    rates = rate_table(tuned(), paths)
    assert len(rates) == 2 * 3 * 2 * 2
    assert list(dict.fromkeys(rates["method"])) == list(METHODS)
    one = rates[(rates["method"] == "grpo") & (rates["split"] == "confirmation")]
    assert one["learning_rate"].is_monotonic_increasing
    best = one[one["learning_rate"] == 1e-3].set_index("training_seed")["success"]
    assert best.to_dict() == {90: 70.0, 91: 80.0}
    assert dict(zip(one["split"], one["base_success"], strict=True)) == {"confirmation": 30.0}
    assert rates["score"].isna().all(), "ALFWorld has no score"
    assert set(rates.loc[~rates["in_grid"], "learning_rate"]) == {1e-2, 1e-5}
    assert set(rates.loc[rates["chosen"], "learning_rate"]) == {1e-3, 1e-5}
    # What was chosen by, is the calibration split alone.
    chosen_by = tuning_table(rates)
    assert len(chosen_by) == 12
    assert chosen_by.groupby(["method", "learning_rate"])["success"].mean()["grpo", 1e-4] == 60.0


def test_a_row_at_an_edge_is_noted_and_named_in_the_caveats(paths):
    study = tuned()
    edges = rows_at_edge(rate_table(study, paths))
    assert edges == {("alfworld", "tiny-s", "threespo-literal"): "lower"}
    main = pd.DataFrame(
        [{"env": "alfworld", "policy": "tiny-s", "method": method, "note": ""} for method in METHODS]
    )
    noted = note_edges(main, edges).set_index("method")["note"]
    assert noted["grpo"] == ""
    assert noted["threespo-literal"].startswith("learning rate at the lower edge")
    caveats = " ".join(list_caveats(study, "", edges))
    assert "(tiny-s, lower)" in caveats
    assert "at the edge of what was tried" not in " ".join(list_caveats(study))


def test_in_a_confirmatory_study_a_row_at_an_edge_decides_nothing(paths):
    """3SPO wins nothing and GRPO everything: no doubt but that another rate might be better."""
    mark = Freeze(rule=2, commit="0" * 40, configuration="0" * 16, code="0" * 16)
    exploratory = tuned()
    confirmatory = exploratory.model_copy(update={"confirmatory": mark})
    edges = rows_at_edge(rate_table(exploratory, paths))
    episodes = played_by(exploratory, {"grpo": 39, "threespo-literal": 0}, seeds=(0, 1, 2))

    def verdicts(study, at_edge):
        return {one.verdict for one in compare_methods(study, episodes, at_edge)}

    assert verdicts(exploratory, edges) == verdicts(confirmatory, {}) == {"below"}
    assert verdicts(confirmatory, edges) == {"undecided"}
    withheld = compare_methods(confirmatory, episodes, edges)[0]
    assert withheld.estimate < -90
    assert withheld.seeds_needed() is None, "more seeds would not decide it"

    # Claims on the row say so, and in the confirmatory study they are undecided as well.
    claims = [one for one in read_claims() if all(isinstance(rule, Above) for rule in one.rule)]
    for study in (exploratory, confirmatory):
        found = evidence(study, read_paper(), episodes=episodes)
        plain = judge_claims(tuple(claims), found)
        marked = judge_claims(tuple(claims), replace(found, edges=edges))
        named = marked["detail"].str.contains("at an edge of what was tried: threespo-literal")
        assert named.any()
        assert marked[~named].equals(plain[~named])
        decided = set(marked.loc[named, "verdict"]) & {"holds", "fails"}
        assert bool(decided) == (study is exploratory)


def test_the_mark_of_a_study_names_rows_at_an_edge(paths):
    study = tuned()
    assert ResultContext(study, paths).fields["mark"] == ""
    mark = Freeze(rule=1, commit="0" * 40, configuration="0" * 16, code="0" * 16)
    said = ResultContext(study.model_copy(update={"confirmatory": mark}), paths).fields["mark"]
    assert "Not confirmatory are the rows alfworld/tiny-s/threespo-literal:" in said
    assert "grpo" not in said


def test_a_grid_that_is_not_extended_is_not_frozen():
    tuning = tuned().tuning
    assert tuning is not None
    assert list(edge_problems(tuned())) == []
    bare = tuned(tuning=tuning.model_dump() | {"max_extensions": 0})
    assert [problem.split(":")[0] for problem in edge_problems(bare)] == ["tuning.max_extensions"]
    # A study that has its mark already keeps it.
    assert find_problems(bare) == []


def test_the_figure_draws_means_with_the_base_and_the_choice(paths):
    figure, drawn = draw_rates(rate_table(tuned(), paths))
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "log"]
    assert list(dict.fromkeys(drawn["split"])) == ["calibration", "confirmation"]
    literal = drawn[(drawn["method"] == "threespo-literal") & (drawn["split"] == "confirmation")]
    assert literal["learning_rate"].tolist() == [1e-5, 1e-4, 1e-3]
    assert np.allclose(literal["mean"], [0.5, 0.3, 0.0])
    assert literal["chosen"].tolist() == [True, False, False]
    assert set(literal["at_edge"]) == {"lower"}
    assert np.allclose(literal["base"], 0.3)
    # The base is a horizontal line in each panel.
    heights = [axis.lines[0].get_ydata()[0] for axis in figure.axes]
    assert np.allclose(heights, [0.4, 0.3])


def test_a_study_without_tuning_says_nothing_of_rates(tmp_path):
    values = {"grpo": {"method": "grpo", "learning_rate": 1e-4}}
    rates = rate_table(tuned(tuning=None, methods=values), Paths(tmp_path))
    assert rates.empty
    assert tuning_table(rates).empty
    assert rows_at_edge(rates) == {}


def test_a_damaged_file_of_trials_is_named(paths):
    trials_file(paths, "alfworld", "tiny-s", "grpo").write_text("[]")
    with pytest.raises(InputError, match=r"grpo\.trials\.json: no trials of learning rates"):
        rate_table(tuned(), paths)
