"""What reports show of the published miniature study."""

from pathlib import Path

import pandas as pd
import pytest

from threespo.errors import InputError
from threespo.results import published
from threespo.results.published import COLUMNS, beside, read_published
from threespo.study.load import load_study

ROOT = Path(__file__).resolve().parents[2]
SMOKE = load_study(ROOT / "config" / "studies" / "smoke.yaml")
MINI = load_study(ROOT / "config" / "studies" / "mini.yaml")


def row(method, mean, *, env="alfworld", split="valid_unseen", model="qwen2.5-1.5b-instruct", **more):
    given = {"env": env, "split": split, "stands_for": model, "method": method, "mean": mean, "seeds": 3, "commit": "abc"}
    return {**dict.fromkeys(COLUMNS), **given, **more}


def test_rows_stand_beside_those_of_the_same_method_split_and_model():
    theirs = pd.DataFrame(
        [
            row("grpo", 40.0, low=30.0, high=50.0, paper_mean=70.1),
            row("grpo", 90.0, split="valid_seen"),
            row("grpo", 60.0, model="qwen2.5-7b-instruct"),
            row("hgpo", 45.0),
            row("grpo", 75.0, env="webshop", split="test"),
        ]
    )
    alike = row("grpo", 56.0, split="valid_seen"), row("grpo", 77.0, env="webshop", split="test")
    ours = pd.DataFrame([row("grpo", 55.0), *alike])
    found = beside(SMOKE, ours, theirs)
    assert found["places"] == [{"env": "alfworld", "split": "valid_unseen"}, {"env": "webshop", "split": "test"}]
    shown = {
        (one["stands_for"][8:10], one["method"]): [cell and (cell["mean"], cell["here"]) for cell in one["cells"]]
        for one in found["rows"]
    }
    assert shown == {
        ("1.", "grpo"): [(40.0, 55.0), (75.0, 77.0)],
        ("7b", "grpo"): [(60.0, None), None],
        ("1.", "hgpo"): [(45.0, None), None],
    }
    assert (found["seeds"], found["commits"]) == (3, "abc")


def test_nothing_is_shown_beside_the_published_study_itself_or_where_nothing_is_published():
    rows = pd.DataFrame([row("grpo", 40.0)])
    assert beside(MINI, rows, rows) is None
    assert beside(SMOKE, rows, rows.iloc[:0]) is None


def test_the_file_in_the_repository_has_the_rows_of_the_study():
    """Every row of its main table, and no other; each has the paper's number where the paper prints one."""
    rows = read_published()
    trained = rows[rows["method"].isin(MINI.methods)]
    main = {name for name, entry in MINI.methods.items() if "main" in entry.parts}
    assert main <= set(trained["method"])
    assert set(trained["policy"]) == set(MINI.policies)
    assert set(rows["env"]) == {"alfworld", "webshop"}
    assert (trained["seeds"] == len(MINI.seeds)).all()
    assert rows["mean"].between(0, 100).all()


@pytest.mark.parametrize(("text", "says"), [("", "cannot be read"), ("env,split\n", "has no column 'policy'")])
def test_a_damaged_file_is_named(tmp_path, monkeypatch, text, says):
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "mini.csv")
    (tmp_path / "mini.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        read_published()
