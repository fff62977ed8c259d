"""Performance profiles against shares counted by hand."""

import numpy as np
import pandas as pd

from threespo.results.analysis.profiles import LEVELS, performance_profiles


def episodes(success):
    """Return a hundred episodes for each (environment, method, seed): success in percent."""
    names = ("env", "method", "training_seed")
    rows = [
        {**dict(zip(names, key, strict=True)), "policy": "p", "split": "s", "success": game < percent}
        for key, percent in success.items()
        for game in range(100)
    ]
    return pd.DataFrame(rows)


def at(profiles, method, level):
    rows = profiles[(profiles["method"] == method) & np.isclose(profiles["level"], level)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_shares_are_of_runs_and_cells_with_equal_weight():
    runs = {("a", "x", 0): 20, ("a", "x", 1): 60, ("b", "x", 0): 80, ("b", "x", 1): 90}
    profiles = performance_profiles(episodes(runs))
    assert len(profiles) == len(LEVELS)
    # In a half of the runs reach 60 %, in b all of them.
    expected = {0: 1, 0.2: 1, 0.21: 0.75, 0.6: 0.75, 0.61: 0.5, 0.9: 0.25, 0.91: 0}
    assert {level: at(profiles, "x", level)["share"] for level in expected} == expected
    assert {*profiles["cells"], *profiles["seeds"]} == {2}


def test_a_method_that_was_not_run_everywhere_is_left_out():
    profiles = performance_profiles(episodes({("a", "x", 0): 20, ("b", "x", 0): 60, ("a", "y", 0): 99}))
    assert set(profiles["method"]) == {"x"}
