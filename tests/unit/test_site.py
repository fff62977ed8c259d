"""The documentation's site: every Markdown file is a page of it, and what a page links to is there."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from tests.documents import ROOT, tracked

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The places of a page, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            (self.places if name == "id" else self.links if name in ("href", "src") else set()).add(
                value
            )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-c",
        "docs/site",
    ]
    done = subprocess.run(
        [*command, "-d", folder / "read", ".", folder / "site"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_every_document_is_a_page(site):
    # Texts of others beside reference data, and the directives of the table of contents.
    apart = ("tests/golden/", "docs/site/contents.md")
    documents = [name for name in tracked("*.md") if not name.startswith(apart)]
    assert len(documents) > 40
    assert [name for name in documents if not (site / name).with_suffix(".html").is_file()] == []


def test_sentences_of_attributes_are_not_taken_for_types(site):
    page = (site / "docs" / "site" / "interfaces.html").read_text(encoding="utf-8")
    assert "The current episode, an immutable value." in re.sub(r"<[^>]+>", "", page)
    assert 'Type<span class="colon">' not in page


def test_what_a_page_links_to_is_there(site):
    # The index of the sources, which sphinx makes, names Python's own types as a module.
    files = [file for file in site.rglob("*.html") if not {"_downloads", "_modules"} & set(file.parts)]
    pages = {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in files}
    links = 0
    for file, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, place = link.partition("#")
            target = (file.parent / unquote(path).split("?")[0]).resolve() if path else file
            assert target.is_file(), (file, link)
            assert not place or target not in pages or unquote(place) in pages[target].places, (
                file,
                link,
            )
            links += 1
    assert links > 2000
    assert 'url=README.html"' in (site / "index.html").read_text(encoding="utf-8")
