"""The page of search trees: what is refused, what reaches the page, and that no text of a tree can leave its place."""

import html.parser
import json
import math

import pandas as pd
import pytest

from tests.trees import frame, small, tree
from threespo import cli
from threespo.errors import InputError
from threespo.methods.tree_table import COLUMNS, read_trees
from threespo.results.report.viewer import render_trees, write_view
from threespo.tables import write_table

HOSTILE = "</script><script>owned=1</script><!-- <img src=x onerror=owned=1> & \u2028 \u2029 ' \" \\ \U0001f600 ]]>"


class _Scripts(html.parser.HTMLParser):
    """Collects the elements of a page, and what its script elements hold."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.held, self.inside = [], {}, None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("script", "title", "h1"):
            self.inside = dict(attrs).get("id", tag)

    def handle_data(self, data):
        if self.inside:
            self.held[self.inside] = self.held.get(self.inside, "") + data

    def handle_endtag(self, tag):
        self.inside = None


def _written(tmp_path, rows):
    file = tmp_path / "trees.parquet"
    write_table(file, rows if isinstance(rows, pd.DataFrame) else frame(rows))
    return file


def _data(page):
    return json.loads(_Scripts(page).held["data"])


def test_every_node_reaches_the_page_with_all_its_values(tmp_path):
    rows = tree(60) + tree(40, epoch=3) + tree(30, epoch=1, task="heat/trial-2", goal="heat an egg.")
    data = _data(render_trees(read_trees(_written(tmp_path, rows)), "trees"))
    found = {}
    for task in data["tasks"]:
        for one in task["trees"]:
            for v, node in enumerate(one["node"]):
                found[one["epoch"], task["id"], node] = (task, one, v)
    assert len(found) == len(rows)
    for row in rows:
        task, one, v = found[row["epoch"], row["task_id"], row["node"]]
        assert (task["goal"], task["type"]) == (row["goal"], row["task_type"])
        assert (one["node"][one["parent"][v]] if row["node"] else one["parent"][v]) == row["parent"]
        for name in ("state", "action", "response", "observation"):
            assert data["texts"][one[name][v]] == row[name]
        for name in set(COLUMNS) & set(one) - {
            "epoch",
            "parent",
            "state",
            "action",
            "response",
            "observation",
        }:
            if isinstance(row[name], float) and math.isnan(row[name]):
                assert one[name][v] is None
            else:
                assert one[name][v] == (
                    pytest.approx(row[name], rel=1e-5) if isinstance(row[name], float) else row[name]
                )


def test_rows_may_come_in_any_order(tmp_path):
    table = frame(tree(50), tree(50, epoch=1))
    mixed = table.sample(frac=1, random_state=3)
    assert render_trees(mixed, "trees") == render_trees(table, "trees")


def test_each_text_is_there_once(tmp_path):
    data = _data(render_trees(frame(small(), [{**row, "epoch": 4} for row in small()]), "trees"))
    assert len(data["texts"]) == len(set(data["texts"]))


def test_small_scores_keep_their_digits():
    rows = small()
    rows[1]["score"] = 1.23456789e-9
    (task,) = _data(render_trees(frame(rows), "trees"))["tasks"]
    assert task["trees"][0]["score"][1] == 1.23457e-9


@pytest.mark.parametrize(
    "name", ["observation", "response", "action", "goal", "task_type", "task_id", "state"]
)
def test_no_text_of_a_tree_can_leave_the_data(name, tmp_path):
    plain = _Scripts(render_trees(frame(small()), "trees"))
    page = render_trees(
        read_trees(_written(tmp_path, [{**row, name: HOSTILE} for row in small()])), "trees"
    )
    parsed = _Scripts(page)
    assert parsed.tags == plain.tags
    assert parsed.held["script"] == plain.held["script"]
    assert json.dumps(HOSTILE) in json.dumps(json.loads(parsed.held["data"]))


def test_the_title_is_escaped():
    parsed = _Scripts(render_trees(frame(small()), HOSTILE))
    assert parsed.tags == _Scripts(render_trees(frame(small()), "trees")).tags
    assert parsed.held["title"] == parsed.held["h1"] == HOSTILE


def test_the_page_names_nothing_outside_itself():
    page = render_trees(frame(small()), "trees")
    assert "default-src 'none'" in page
    assert [word for word in page.split('"') if word.startswith(("http", "//"))] == [
        "http://www.w3.org/2000/svg"
    ]


def test_no_trees_make_a_page_that_says_so(tmp_path):
    file = tmp_path / "trees.parquet"
    write_table(file, [], COLUMNS)
    page = render_trees(read_trees(file), "trees")
    data = _data(page)
    assert (data["tasks"], data["texts"]) == ([], [])
    assert "There is no search tree here." in page


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop(columns="observation"), ("'observation'", "missing")),
        (lambda table: table.drop(columns=["score", "gated", "end"]), ("'end'", "as are 2 others")),
        (
            lambda table: pd.concat([table, table.tail(1)]),
            ("'node'", "node 3 of task 'pick/trial-1'", "is there twice"),
        ),
        (
            lambda table: table.assign(parent=[-1, 0, 9, 1]),
            ("'parent'", "node 2", "in epoch 0 has parent 9"),
        ),
        (
            lambda table: table.assign(parent=[-1, 3, 0, 1]),
            ("'parent'", "node 1", "has parent 3; expected an earlier node"),
        ),
        (
            lambda table: table.assign(parent=[-1, 0, -1, 1]),
            ("'parent'", "node 2", "expected -1 for node 0 only"),
        ),
        (lambda table: table[table["node"] > 0], ("'parent'", "node 1", "has parent 0")),
        (lambda table: table.assign(depth=[1, 2, 3, 3]), ("'depth'", "node 2", "has 3")),
        (lambda table: table.assign(depth=[0, 1, 1, 2]), ("'depth'", "node 0", "has 0")),
        (lambda table: table.assign(end="lost"), ("'end'", "'lost'", "'limit'")),
        (lambda table: table.assign(expanded=[0.5, -1, -1, -1]), ("'expanded'", "integers")),
        (lambda table: table.assign(gated="no"), ("'gated'", "true or false")),
        (lambda table: table.assign(visits="many"), ("'visits'", "expected numbers")),
        (lambda table: table.assign(score=[math.nan, 1, 1, 1]), ("'score'", "nan in 1 rows")),
        (lambda table: table.assign(reward=[math.nan, math.inf, 0, 0]), ("'reward'", "inf in 1 rows")),
        (lambda table: table.assign(action=["", None, "look", "look"]), ("'action'", "not text")),
    ],
)
def test_what_is_no_tree_is_refused(change, said, tmp_path):
    file = _written(tmp_path, change(frame(small())))
    with pytest.raises(InputError) as refused:
        read_trees(file)
    message = str(refused.value)
    assert str(file) in message
    assert "train the run again" in message
    for words in said:
        assert words in message


def test_equal_numbers_in_other_trees_are_no_duplicates(tmp_path):
    rows = (
        small()
        + [{**row, "epoch": 1} for row in small()]
        + [{**row, "task_id": "other"} for row in small()]
    )
    assert len(read_trees(_written(tmp_path, rows))) == 12


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "trees.parquet").write_text("not parquet")
    with pytest.raises(InputError, match="not a readable table"):
        read_trees(tmp_path / "trees.parquet")


def test_one_task_can_be_asked_for(tmp_path):
    file = _written(tmp_path, small() + [{**row, "task_id": "heat/trial-2"} for row in small()])
    write_view(file, tmp_path / "page.html", "trees", task="heat/trial-2")
    (task,) = _data((tmp_path / "page.html").read_text(encoding="utf-8"))["tasks"]
    assert task["id"] == "heat/trial-2"
    with pytest.raises(
        InputError, match="no tree of task 'nowhere'; recorded are 'heat/trial-2', 'pick/trial-1'"
    ):
        write_view(file, tmp_path / "other.html", "trees", task="nowhere")
    assert not (tmp_path / "other.html").exists()


@pytest.mark.parametrize("of_file", [False, True])
def test_the_command_writes_beside_the_table_and_says_where(of_file, tmp_path, capsys):
    run = tmp_path / "runs" / "alfworld" / "tiny-s" / "threespo" / "seed-0"
    run.mkdir(parents=True)
    file = _written(run, small())
    assert cli.main(["view", str(file if of_file else run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "trees.html")
    page = (run / "trees.html").read_text(encoding="utf-8")
    assert _Scripts(page).held["title"] == "Search trees of alfworld/tiny-s/threespo/seed-0"


def test_the_command_writes_where_it_is_told(tmp_path, capsys):
    _written(tmp_path, small())
    out = tmp_path / "elsewhere" / "page.html"
    assert cli.main(["view", str(tmp_path), "--out", str(out), "--task", "pick/trial-1"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.is_file()


def test_a_run_without_trees_is_told_how_to_record_them(tmp_path, capsys):
    assert cli.main(["view", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    for words in (
        str(tmp_path / "trees.parquet"),
        "training.recorded_tasks",
        "3SPO",
        "train the run again",
    ):
        assert words in message
