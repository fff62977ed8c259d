"""Settings of the documentation's site (``make site``): the Markdown files of the repository, each a page where it lies.

A new Markdown file belongs into ``contents.md``; that every link has a target is checked when the site is built.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

FOLDERS = ("benchmarks", "config", "docs", "examples", "notebooks", "workflow")

project = "threespo"
html_title = project
html_theme = "furo"
html_copy_source = False
# The first page is README.html, and index.html leads there.
html_extra_path = ["index.html"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["*.md", *(f"{folder}/**.md" for folder in FOLDERS), "tests/README.md"]
exclude_patterns = ["docs/site/contents.md", ".*", "build", "results", "tests/[!R]*", "threespo"]
# Anchors of headings as code hosts make them.
myst_heading_anchors = 6
autodoc_default_options = {"members": True, "member-order": "bysource"}


def _with_contents(app: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        # Kept out of README.md, where readers of the repository would see the directives themselves.
        source[0] += "\n" + (app.confdir / "contents.md").read_text(encoding="utf-8")


def _as_google(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    # For an attribute the extension napoleon takes what stands before a colon for its type; ours are sentences.
    what = "method" if what in ("attribute", "data", "property") else what
    lines[:] = GoogleDocstring(lines, what=what, name=name, obj=thing, options=options).lines()


def setup(app: Sphinx) -> None:
    """Give the first page the table of contents, and read docstrings in Google's form."""
    app.connect("source-read", _with_contents)
    app.connect("autodoc-process-docstring", _as_google)
