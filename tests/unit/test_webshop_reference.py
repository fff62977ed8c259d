"""Against episodes, searches and rewards of the original program; its texts may not be in the repository."""

import pytest

from threespo.verify import reward, search, webshop


@pytest.fixture(scope="module")
def files(shared):
    return shared / "golden", shared / "data" / "webshop_1k"


def test_episodes_equal_the_original(files):
    golden, catalogue = files
    report = webshop.verify(golden / "webshop_traces.jsonl.xz", catalogue=catalogue)
    assert (report.cases, report.mismatches) == (59, 0)
    assert report.details == {"excluded_edge_url": 1, "ranking_only": 0, "goals_drawn_alike": 59}


def test_searches_equal_lucene(files):
    golden, catalogue = files
    report = search.verify(golden / "webshop_search.jsonl.xz", catalogue=catalogue)
    assert (report.cases, report.mismatches) == (200, 0)


def test_rewards_equal_the_original(files):
    golden, catalogue = files
    report = reward.verify(golden / "webshop_reward.jsonl.xz", catalogue=catalogue)
    assert (report.cases, report.mismatches) == (300, 0)
    assert report.details["equal_with_own_nouns"] >= 0.98
