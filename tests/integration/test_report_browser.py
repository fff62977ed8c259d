"""The report in a real browser: nothing missing, nothing cut, nothing dead, on a phone, on a screen and on paper."""

import re
import shutil

import pytest
from playwright.sync_api import sync_playwright

from tests.browser import FLAGS, REMEDY, find
from tests.jobs import write_report, write_tables
from tests.unit.test_results_environments import draw, finish, study_with
from threespo.results.paper import layout
from threespo.study.catalogue import notebooks_of
from threespo.study.load import dump_study
from threespo.watch.index import write_index

WIDTHS = (400, 1400)
LIMITS = {"max_prompt_tokens": 1024, "max_response_tokens": 32}

CUT = "() => [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
DEAD = """() => [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))
    .filter(to => to.startsWith('#') && !document.getElementById(to.slice(1)))"""
TALL = """() => [...document.querySelectorAll('img.whole')].map(whole => [whole.naturalWidth / whole.naturalHeight,
    [...whole.parentElement.querySelectorAll('img.part')].map(part => part.clientWidth / part.clientHeight)])"""
PICTURES = "() => [...document.images].map(i => i.naturalWidth)"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    # Two environments and two policies: as many columns as any study has.
    larger = {"tiny-m": {"kind": "tiny", "size": "m", "stands_for": "qwen2.5-7b-instruct", **LIMITS}}
    study = study_with("alfworld", "webshop", policies=larger)
    paths = finish(study, tmp_path_factory.mktemp("results") / "study")
    write_tables(study, paths)
    with pytest.MonkeyPatch.context() as patch:
        # Paper is as short as a screen, so that some of so small a study's figures are taller.
        patch.setattr(layout, "PAGE_HEIGHT", 4.0)
        for name in notebooks_of(study):
            draw(name, paths)
    write_report(study, paths)
    paths.study.write_text(dump_study(study))
    return paths.report


@pytest.fixture(scope="module")
def index(report):
    """The list of studies: this one, and a copy of it by another name."""
    copy = report.parent.parent / "copy"
    shutil.copytree(report.parent, copy)
    return write_index(report.parent.parent)


@pytest.fixture(scope="module")
def browser():
    executable = find()
    if executable is None:
        pytest.fail(f"no browser to test the page in: {REMEDY}; `make test` gets one")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=executable, headless=True, args=list(FLAGS))


@pytest.fixture
def opened(browser, report):
    """Return a function that opens the report at a width; no error may come and no other file may be asked for."""
    pages, said = [], []

    def show(width, scheme="light", unfolded=False, file=report):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "console", lambda message: said.append(message.text) if message.type == "error" else None
        )
        page.on(
            "request",
            lambda request: said.append(request.url) if request.url.startswith("http") else None,
        )
        page.goto(file.as_uri())
        if unfolded:
            page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
        pages.append(page)
        return page

    yield show
    for page in pages:
        page.close()
    assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_missing_or_dead(opened, width, scheme):
    page = opened(width, scheme, unfolded=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT) == []
    assert page.evaluate(DEAD) == []
    assert min(page.evaluate(PICTURES)) > 50


def test_nothing_is_cut_on_paper(opened):
    # A4 across, less its margins, at 96 dots an inch.
    page = opened(1040, unfolded=True)
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == []
    assert page.locator("nav").is_hidden()


def test_the_report_prints_on_many_sheets_of_a4(opened):
    page = opened(1400, unfolded=True)
    file = page.pdf(format="A4", landscape=True, prefer_css_page_size=True)
    boxes = set(re.findall(rb"/MediaBox ?\[([\d. ]+)\]", file))
    sides = {tuple(sorted(float(side) for side in box.split()[2:])) for box in boxes}
    # A4, in points.
    assert [pytest.approx(sorted((595.3, 841.9)), abs=1.5)] == list(sides)
    height = page.evaluate("document.documentElement.scrollHeight")
    # A sheet holds a screen or two, and the report has many.
    assert len(re.findall(rb"/Type ?/Page\b", file)) > height / 2000 > 3


@pytest.mark.parametrize("width", WIDTHS)
def test_two_studies_stand_beside_each_other_and_lead_to_their_rows(opened, index, width):
    page = opened(width, file=index)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT) == []
    page.locator("#left").select_option("copy")
    page.locator("#right").select_option("study")
    row = page.locator("#rows tbody tr", has_text="ALFWorld, unseen rooms, tiny-s: GRPO")
    assert row.count() == 1
    links = [link.get_attribute("href") for link in row.locator("a").all()]
    assert links == [f"{name}/report.html#main-alfworld-tiny-s-grpo" for name in ("copy", "study")]
    row.locator("a").first.click()
    assert page.locator("#main-alfworld-tiny-s-grpo").is_visible()


def test_numbers_of_all_tables_lead_to_the_row_of_their_method_and_rows_to_what_they_are_made_of(
    opened, report
):
    page = opened(1400, unfolded=True)
    for table in ("#task-types", "#efficiency", "#costs"):
        rows = page.locator(f"{table} + .scroll tbody tr").all()
        assert rows
        for row in rows:
            link = row.locator("td a").first
            target = page.locator(link.get_attribute("href"))
            # The same method of the same policy: the row's id has both.
            assert target.locator("td").first.inner_text() == link.inner_text()
            assert f"-{row.locator('td').nth(1).inner_text()}-" in target.get_attribute("id")
    assert page.locator("#runs + details a", has_text="settings").count() == 0, (
        "no job left a record of these runs"
    )


def test_on_paper_a_tall_figure_is_its_pages(opened):
    page = opened(1040)
    page.emulate_media(media="print")
    before = page.evaluate("document.images.length")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    shapes = page.evaluate(TALL)
    assert shapes, "no figure of this report is taller than a page"
    for whole, parts in shapes:
        assert len(parts) > 1
        # As wide as each other in the picture, and together as tall as the whole, whose pages they are.
        assert sum(1 / part for part in parts) == pytest.approx(1 / whole, rel=0.01)
        assert min(parts) > 0.7, "a page is no taller than paper"
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.images.length") == before


def test_links_to_files_lead_to_files(opened, report):
    page = opened(1400)
    links = page.evaluate(
        "() => [...document.querySelectorAll('#runs + details a')].map(a => a.getAttribute('href'))"
    )
    folders = [link for link in links if link.startswith("runs/")]
    assert folders
    assert all((report.parent / link).is_dir() for link in folders)


def test_the_number_of_a_claim_leads_to_the_row_of_its_method(opened):
    page = opened(1400, unfolded=True)
    links = page.evaluate(
        "() => [...document.querySelectorAll('[data-claims] td.ours a')].map(a => a.getAttribute('href'))"
    )
    presets = [link.rpartition("threespo-")[2] for link in links]
    assert set(presets) == {"calibrated"}
    rows = page.locator(links[0])
    assert rows.count() == 1
    assert "3SPO" in rows.locator("td").first.inner_text()


def test_on_a_phone_every_number_has_the_name_of_its_column(opened):
    page = opened(400)
    cell = page.locator("#main-alfworld-tiny-s-grpo td").nth(3)
    label = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert label == '"seen rooms: paper"'
    assert cell.inner_text() == "72.8 ± 3.6"


def test_tables_sort_by_number_in_both_directions(opened):
    page = opened(1400)
    head = page.locator("#outcome ~ .scroll").first.locator("thead th").nth(1)
    column = page.locator("#outcome ~ .scroll").first.locator("tbody td:nth-child(2)")

    def shown():
        return [float(text.split()[0]) for text in column.all_inner_texts() if text]

    before = shown()
    head.click()
    assert shown() == sorted(before)
    head.click()
    assert shown() == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"


def test_claims_are_filtered_by_verdict_and_by_words(opened):
    page = opened(1400)
    rows = page.locator("[data-verdicts]")
    everything = sum(rows.nth(place).is_visible() for place in range(rows.count()))
    page.get_by_role("button", name="fails", exact=True).click()
    left = [rows.nth(place) for place in range(rows.count()) if rows.nth(place).is_visible()]
    assert 0 < len(left) < everything
    assert all("fails" in row.get_attribute("data-verdicts") for row in left)
    page.get_by_label("words in a claim").fill("regret")
    words = [
        rows.nth(place).inner_text() for place in range(rows.count()) if rows.nth(place).is_visible()
    ]
    assert 0 < len(words) < len(left)
    assert all("regret" in text.lower() for text in words)


def test_a_link_into_a_folded_part_opens_it(opened):
    page = opened(1400)
    target = page.locator("#runs-alfworld-tiny-s-grpo")
    assert target.is_hidden()
    page.locator("#main-alfworld-tiny-s-grpo a").click()
    target.wait_for(state="visible", timeout=5000)
