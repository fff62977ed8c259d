"""The page of search trees in a real browser: what is drawn, what a click shows, and that nothing else is loaded."""

from itertools import pairwise

import pytest
from playwright.sync_api import sync_playwright

from tests import browser as browsers
from tests.browser import FLAGS, REMEDY, find
from tests.trees import frame, small, tree
from threespo.results.report.viewer import render_trees

DEEP, BROAD = "heat an egg.", "look at a vase under the desklamp."

FRAME_BOUND = 500.0
"""Milliseconds: a shared machine may be slow, a quadratic redraw is slower."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    executable = find()
    if executable is None:
        pytest.fail(f"no browser to test the page in: {REMEDY}; `make test` gets one")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=executable,
            headless=True,
            args=list(FLAGS),
            viewport={"width": 1280, "height": 800},
        )
        yield context
        context.close()


@pytest.fixture
def show(browser, tmp_path):
    """Return a function that opens the page of a table; nothing but that file may be asked for, and no error may come."""
    pages, asked, errors = [], [], []

    def opened(table, scheme="light"):
        page = browser.new_page()
        page.emulate_media(color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if message.type == "error" else None
        )
        file = tmp_path / f"trees-{len(pages)}.html"
        file.write_text(render_trees(table, "Search trees"), encoding="utf-8")
        pages.append((page, file.as_uri()))
        page.goto(file.as_uri())
        return page

    yield opened
    for page, _ in pages:
        page.close()
    assert errors == []
    assert asked == [address for _, address in pages]


@pytest.fixture(scope="module")
def trees():
    """Return the rows of a small task with three recorded epochs, and of two tasks with two thousand nodes."""
    return {
        "small": [tree(20, epoch, deep=7) for epoch in (0, 2, 5)],
        "deep": [tree(2000, 1, "heat/trial-2", DEEP)],
        "broad": [tree(2000, 1, "look/trial-3", BROAD, deep=6)],
    }


@pytest.fixture
def page(show, trees):
    page = show(frame(*trees["small"], *trees["deep"], *trees["broad"]))
    _choose_task(page, trees["small"][0][0]["goal"])
    return page


def _choose_task(page, goal):
    page.select_option("#task", label=goal)


def _click(page, node):
    box, at = page.locator("#canvas").bounding_box(), page.evaluate("v => viewer.nodes[v]", node)
    page.mouse.click(box["x"] + at["x"], box["y"] + at["y"])


def _settled(page):
    """Wait until what was asked for has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture
def no_browser(monkeypatch, tmp_path):
    """A machine without a browser, on which nothing can be downloaded or installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    tried = []
    monkeypatch.setattr(browsers, "_try", lambda command, _: tried.append(command[-1]))
    return tried


def test_without_a_browser_one_is_sought_and_then_one_line_says_what_to_do(no_browser, monkeypatch):
    assert find() is None
    monkeypatch.setattr(browsers, "_is_root", lambda: False)
    with pytest.raises(SystemExit, match=r"^tests: no browser .* apt install chromium"):
        browsers.ensure()
    assert no_browser == ["chromium"]


def test_root_gets_the_distributions_package_where_nothing_can_be_downloaded(no_browser, monkeypatch):
    monkeypatch.setattr(browsers, "_is_root", lambda: True)
    monkeypatch.setattr(
        browsers.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "apt-get" else None
    )
    with pytest.raises(SystemExit):
        browsers.ensure()
    assert no_browser == ["chromium", "update"], (
        "a package is installed only where the list could be read"
    )


def test_a_browser_that_does_not_start_is_none(no_browser, monkeypatch, tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    assert find() is None
    monkeypatch.setenv("CHROMIUM", str(broken))
    with pytest.raises(SystemExit, match=r"CHROMIUM is .*which does not start"):
        find()


def test_all_nodes_of_small_and_large_trees_are_drawn(page):
    for goal, nodes in (("put a mug in desk.", 20), (DEEP, 2000), (BROAD, 2000)):
        _choose_task(page, goal)
        _settled(page)
        assert page.evaluate("[viewer.nodes.length, viewer.drawn]") == [nodes, nodes]
        assert page.locator("#summary").inner_text().startswith(f"{nodes} nodes")


def test_there_is_ink_where_a_node_is(page):
    _settled(page)
    blank = page.evaluate("""() => viewer.nodes.filter(({ x, y, r }) => {
        const ratio = devicePixelRatio, side = Math.ceil(2 * r * ratio);
        const box = document.getElementById("canvas").getContext("2d")
            .getImageData((x - r) * ratio, (y - r) * ratio, side, side).data;
        return box.every((value, i) => value === 255);
    }).length""")
    assert blank == 0


@pytest.mark.parametrize("goal", ["put a mug in desk.", DEEP, BROAD])
def test_nodes_of_a_layer_never_overlap_where_the_view_has_room(page, goal):
    _choose_task(page, goal)
    page.evaluate("viewer.zoom(1e9)")
    layers = {}
    for node in page.evaluate("viewer.nodes"):
        layers.setdefault(node["layer"], []).append(node)
    for nodes in layers.values():
        for upper, lower in pairwise(sorted(nodes, key=lambda node: node["y"])):
            assert lower["row"] - upper["row"] >= 1 - 1e-6
            assert lower["y"] - upper["y"] > upper["r"] + lower["r"]


@pytest.mark.parametrize(
    "rows",
    [tree(1), tree(2), small(), tree(37, deep=4), tree(37), tree(500, deep=6), tree(500)],
    ids=lambda rows: len(rows),
)
def test_parents_stand_in_the_middle_of_their_children_who_keep_their_order(show, rows):
    placed = show(frame(rows)).evaluate("viewer.nodes")
    assert [node["layer"] for node in placed] == [row["depth"] - 1 for row in rows]
    children = {}
    for row in rows[1:]:
        children.setdefault(row["parent"], []).append(placed[row["node"]]["row"])
    for parent, below in children.items():
        assert below == sorted(below)
        assert placed[parent]["row"] == pytest.approx((below[0] + below[-1]) / 2)
    assert min(node["row"] for node in placed) == pytest.approx(0)


def test_a_long_chain_is_laid_out_on_one_line(page):
    made = page.evaluate(
        "(n => { const made = layout([-1, ...Array(n).keys()]); return [made.rows, made.layers]; })(30000)"
    )
    assert made == [0, 30000]


def test_a_click_shows_the_node(page, trees):
    rows = trees["small"][0]
    for row in (rows[0], rows[3], rows[17]):
        _click(page, row["node"])
        assert page.evaluate("viewer.chosen") == row["node"]
        assert page.locator("#observation").inner_text() == row["observation"]
        if row["node"]:
            assert page.locator("#action").inner_text() == row["action"]
            assert page.locator("#response").inner_text() == row["response"]
            shown = page.locator("#terms tr:last-child td").last.inner_text().replace("−", "-")
            assert float(shown) == pytest.approx(row["reward"], abs=6e-4)


def test_a_click_beside_the_nodes_chooses_none(page):
    _click(page, 3)
    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + 4, box["y"] + 4)
    assert page.evaluate("viewer.chosen") == -1


def test_the_slider_and_the_arrow_keys_change_the_tree(page, trees):
    assert page.locator("#when").inner_text() == "0 (1 of 3)"
    page.locator("#canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#when").inner_text() == "2 (2 of 3)"
    _click(page, 1)
    assert page.locator("#observation").inner_text() == trees["small"][1][1]["observation"]
    page.locator("#epoch").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#when").inner_text() == "5 (3 of 3)"
    page.locator("#canvas").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert page.locator("#when").inner_text() == "0 (1 of 3)"


def test_the_order_of_expansion_can_be_walked(page, trees):
    order = sorted(
        (row for row in trees["small"][0] if row["expanded"] >= 0), key=lambda row: row["expanded"]
    )
    page.locator("#canvas").focus()
    for row in order:
        page.keyboard.press("ArrowDown")
        assert page.evaluate("viewer.chosen") == row["node"]
    page.keyboard.press("ArrowUp")
    assert page.evaluate("viewer.chosen") == order[-2]["node"]


def test_dragging_moves_and_the_wheel_zooms_about_the_pointer(page):
    before = page.evaluate("viewer.nodes[5]")
    box = page.locator("#canvas").bounding_box()
    page.mouse.move(box["x"] + before["x"], box["y"] + before["y"])
    page.mouse.wheel(0, -300)
    page.wait_for_function("viewer.view.z > 1")
    zoomed = page.evaluate("viewer.nodes[5]")
    assert (zoomed["x"], zoomed["y"]) == pytest.approx((before["x"], before["y"]), abs=1)
    page.mouse.down()
    page.mouse.move(box["x"] + before["x"] + 60, box["y"] + before["y"] + 25)
    page.mouse.up()
    moved = page.evaluate("viewer.nodes[5]")
    assert (moved["x"] - zoomed["x"], moved["y"] - zoomed["y"]) == pytest.approx((60, 25), abs=1)
    assert page.evaluate("viewer.chosen") == -1
    page.click("#fit")
    assert page.evaluate("viewer.nodes[5]") == before


def test_a_state_is_followed_through_all_tasks_and_epochs(show):
    there, other = small(), [{**row, "epoch": 4, "task_id": "heat/trial-2"} for row in small()]
    there[1].update(state="same", visits=3.0, successes=1.0, score=0.5, expanded=1, rollouts=4)
    other[2].update(state="same", visits=7.0, successes=6.0, score=0.25, expanded=1, rollouts=2)
    page = show(frame(there, other))
    _choose_task(page, f"{there[0]['goal']} (pick/trial-1)")
    _click(page, 1)
    said = page.eval_on_selector_all(
        "#history svg", "charts => charts.map(chart => chart.getAttribute('aria-label'))"
    )
    assert said == [
        "N_total 3 in epoch 0, 7 in epoch 4; N_success 1 in epoch 0, 6 in epoch 4",
        "S(s) 0.5 in epoch 0, 0.25 in epoch 4",
        "n(s) 4 in epoch 0, 2 in epoch 4",
    ]
    assert "Met 2 times, in 2 epochs from 0 to 4." in page.locator("#history").inner_text()


def test_a_reward_that_its_terms_do_not_sum_to_shows_the_rest(show):
    rows = small()
    rows[1].update(reward=0.3, novelty=0.5, difference=-0.1, success=0.0)
    page = show(frame(rows))
    _click(page, 1)
    cells = "lines => lines.map(({ cells }) => [cells[0].textContent, cells[2].textContent.replace('−', '-')])"
    assert [(name, float(value)) for name, value in page.eval_on_selector_all("#terms tr", cells)] == [
        ("novelty", 0.5),
        ("difference of scores", -0.1),
        ("success", 0.0),
        ("penalty", -0.1),
        ("reward", 0.3),
    ]


def test_the_table_lists_every_node_and_chooses_from_the_keyboard(page, trees):
    page.click("#list")
    assert page.locator("#table tbody tr").count() == 20
    page.locator("#table tbody tr:nth-child(8) button").focus()
    page.keyboard.press("Enter")
    assert page.locator("#observation").inner_text() == trees["small"][0][7]["observation"]
    assert page.locator("#table tr.chosen td").first.inner_text() == "7"


def test_hostile_text_is_shown_and_does_nothing(show):
    hostile = (
        "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 1'> & <b>bold</b>"
    )
    names = ("observation", "action", "response", "goal", "task_type", "task_id", "state")
    page = show(frame([{**row, **dict.fromkeys(names, hostile)} for row in small()]))
    box, at = page.locator("#canvas").bounding_box(), page.evaluate("viewer.nodes[1]")
    page.mouse.move(box["x"] + at["x"], box["y"] + at["y"])
    assert hostile in page.locator("#tip").inner_text()
    _click(page, 1)
    page.click("#list")
    for place in ("#observation", "#action", "#response"):
        assert page.locator(place).inner_text() == hostile
    assert page.evaluate(
        "[window.owned, document.images.length, document.querySelectorAll('b').length]"
    ) == [None, 0, 0]


def test_the_page_follows_the_colour_scheme(show):
    corner = "[...document.getElementById('canvas').getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3)"
    lightness = {}
    for scheme in ("light", "dark"):
        page = show(frame(small()), scheme)
        _settled(page)
        lightness[scheme] = sum(page.evaluate(corner)) / 3
    assert lightness["light"] > 230
    assert lightness["dark"] < 40


def test_no_trees_are_said_plainly(show):
    page = show(frame(small()).head(0))
    assert page.locator("#empty").is_visible()
    assert not page.locator("main").is_visible()


@pytest.mark.parametrize("goal", [DEEP, BROAD])
@pytest.mark.parametrize("factor", [1, 5, 30])
def test_a_frame_of_two_thousand_nodes_takes_no_time(page, goal, factor, record_property):
    _choose_task(page, goal)
    page.evaluate(
        "factor => { const { x, y } = viewer.nodes[1000]; viewer.zoom(factor, x, y); }", factor
    )
    milliseconds = page.evaluate("viewer.time(10)")
    record_property("milliseconds a frame", milliseconds)
    print(
        f"{goal} at {factor}: {milliseconds:.2f} ms a frame, {page.evaluate('viewer.drawn')} nodes in view"
    )
    assert 0 < milliseconds < FRAME_BOUND
