"""What CONTRIBUTING.md promises: a reward term is added in two places, and everything that shows terms has it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.toy_term import PLACES
from threespo.scoring.reward import RewardTerms

SEARCH = """
import json
import pandas as pd
from tests.toy import answer, common, drive, make_task, start
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.methods.tree_table import COLUMNS
from threespo.results.paper import case_study
from threespo.results.report.viewer import render_trees

options = ThreespoOptions(novelty="none", difference=False, normalise=False)
task = make_task({"s1": {"a": "s2"}}, set(), "s1")
method = Threespo(options, common(group_size=2, recorded=frozenset({task.task_id})))
samples = [answer("a"), answer("nowhere")]
result, updates, _ = drive(method.train_epoch(0, [start(task, 1)]), lambda request: samples)
trees = pd.DataFrame(result.trees).assign(epoch=0)[list(COLUMNS)]
page = render_trees(trees, "toy")
print(json.dumps({
    "nodes": [(row["reward"], row["change"]) for row in result.trees[1:]],
    "advantages": [row.advantages[0] for rows in updates for row in rows],
    "metric": result.details["change_term"],
    "case_study": case_study.COLUMNS[-1],
    "page": '["change","change"]' in page,
}))
"""


@pytest.fixture
def copied_package(tmp_path):
    """Return a folder with the package and the toy term in it."""
    package = tmp_path / "threespo"
    package.mkdir()
    edited = {Path(name).parts[0] for name in PLACES}
    for entry in (ROOT / "threespo").iterdir():
        if entry.name in edited:
            shutil.copytree(entry, package / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (package / entry.name).symlink_to(entry)
    for name, (before, after) in PLACES.items():
        text = (package / name).read_text()
        assert text.count(before) == 1, f"{name}: expected {before!r} once"
        (package / name).write_text(text.replace(before, after))
    return tmp_path


def test_a_toy_term_is_in_rewards_metrics_trees_case_study_and_viewer(copied_package):
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        cwd=copied_package,
        env={**os.environ, "PYTHONPATH": f"{copied_package}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # Only the first action leads to another state.
    assert json.loads(done.stdout) == {
        "nodes": [[0.125, 0.125], [0.0, 0.0]],
        "advantages": [0.0625, -0.0625],
        "metric": 0.0625,
        "case_study": "change",
        "page": True,
    }


def test_a_total_is_the_sum_of_the_terms_from_left_to_right():
    terms = RewardTerms(0.1, 0.2, 0.3)
    assert terms.total == 0.1 + 0.2 + 0.3
