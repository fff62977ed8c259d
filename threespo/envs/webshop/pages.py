"""The pages of the shop as texts, and what can be clicked on them."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from threespo.envs.webshop.products import Product

PAGE_SIZE = 10
BASE_ADDRESS = "http://127.0.0.1:3000"
SESSION = "threespo"
"""Name of the session in addresses, where none is given."""
SEPARATOR = " [SEP] "
# The original's labels; an agent clicks on them in lower case.
SEARCH = "Search"
BACK = "Back to Search"
PREVIOUS = "< Prev"
NEXT = "Next >"
BUY = "Buy Now"
SUB_PAGES = ("description", "features", "reviews")
SEARCH_ACTION = "search[<your query>]"
_BLANKS = " \n\t\f\r"

Chosen = tuple[tuple[str, str], ...]
"""(option name, value), sorted by name."""


# The fields without a value, and the spelling "instuction", are those of the original's page.
_DONE = """
Thank you for shopping with us!|Your code:|None|(Paste it in your MTurk interface.)|Purchased|asin|{asin}|options|{options}|
attrs|None|category|None|query|None|product category|None|Target|asin|options|attrs|price upper|instuction text|category|
product category|query|Goal|None|Reward|Your score (min 0.0, max 1.0)|{score}|Reward Details|None
""".replace("\n", "").split("|")


class Node(NamedTuple):
    """A piece of text and what it is: text, button, label (of an option), or asin."""

    text: str
    kind: str = "text"
    name: str = ""
    """The name of a label's option, the product's number for an asin."""


class Page(NamedTuple):
    """What follows the instruction on a page, and its clickable texts."""

    nodes: tuple[Node, ...]
    text: str
    """Mode ``text``."""
    anchor: str
    admissible: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    """For each clickable option value, the names of its options, in order."""
    products: dict[str, int]
    """For each clickable asin in lower case, the product's number."""
    buttons: frozenset[str]


def make_page(nodes: Iterable[Node]) -> Page:
    """Return the page of the given nodes."""
    visible: list[Node] = []
    texts: list[str] = []
    buttons: list[str] = []
    products: dict[str, int] = {}
    options: dict[str, tuple[str, ...]] = {}

    for node in nodes:
        text, kind, name = node
        if not text or text.isspace():
            text = visible_text(text)
            if not text:
                continue
            node = Node(text, kind, name)

        visible.append(node)
        texts.append(text.strip())
        if kind == "button":
            buttons.append(text.lower())
        elif kind == "asin":
            products[text.lower()] = int(name)
        elif kind == "label":
            options[text] = (*options.get(text, ()), name)

    # As in the original, a text that can be clicked in two roles is one action: a dict keeps the first place of each.
    clickable = dict.fromkeys((*buttons, *products, *options))
    joined = SEPARATOR.join(texts)
    search = (SEARCH_ACTION,) if SEARCH.lower() in buttons else ()
    return Page(
        tuple(visible),
        joined,
        quoted(joined),
        (*search, *[f"click[{name}]" for name in clickable]),
        options,
        products,
        frozenset(buttons),
    )


def visible_text(text: str) -> str:
    """Return a text as the page's parser has it: blanks alone are one blank, or with a line break nothing."""
    if text.strip(_BLANKS):
        return text
    return "" if "\n" in text or not text else " "


def quoted(text: str) -> str:
    """Return the anchor of a text: each part in single quotes."""
    return "'" + text.replace(SEPARATOR, f"'{SEPARATOR}'") + "'"


def index_nodes() -> Iterator[Node]:
    """Yield the start page's nodes below the instruction."""
    yield Node(SEARCH, "button")


def results_nodes(
    page: int, total: int, hits: Iterable[tuple[int, tuple[str, str, str]]], more: bool
) -> Iterator[Node]:
    """Yield a result page.

    Args:
        page: its number, from 1.
        total: products that were found, on all pages.
        hits: number and (asin, title, price tag) of each product of the page.
        more: whether the button for the next page is there.
    """
    yield Node(BACK, "button")
    yield Node(f"Page {page} (Total results: {total})")
    if page > 1:
        yield Node(PREVIOUS, "button")
    # The original has this button on the last page, too, and an empty page behind it (``more`` is always true there).
    if more:
        yield Node(NEXT, "button")
    for number, (asin, title, tag) in hits:
        # The number travels as text, since a node's name is the name of an option elsewhere.
        yield Node(asin, "asin", str(number))
        yield Node(title)
        yield Node(tag)


def item_nodes(product: Product) -> Iterator[Node]:
    """Yield a product's page."""
    yield Node(BACK, "button")
    yield Node(PREVIOUS, "button")
    for name, values in product.options:
        yield Node(name)
        for value in values:
            yield Node(value, "label", name)
    yield Node(product.title)
    yield Node(f"Price: {product.price_tag}")
    yield Node("Rating: N.A.")
    for button in (*SUB_PAGES, BUY):
        yield Node(button if button == BUY else button.capitalize(), "button")


def sub_nodes(product: Product, sub_page: str, longest: int | None = None) -> Iterator[Node]:
    """Yield description, features or reviews of a product; there are no reviews.

    Args:
        product: the product.
        sub_page: one of ``SUB_PAGES``.
        longest: texts are cut after this many characters; None keeps them whole.
    """
    yield Node(BACK, "button")
    yield Node(PREVIOUS, "button")
    if sub_page == "description":
        yield Node(product.description[:longest])
    elif sub_page == "features":
        for bullet in product.bullets:
            yield Node(f" {bullet[:longest]}")


def with_chosen(page: Page, chosen: Chosen) -> Page:
    """Return a page as the repaired shop shows it: what is chosen is the last part in mode ``text``."""
    # The original shows no choice in mode ``text``, so two states that differ in it read alike there.
    choices = ", ".join([f"{name}: {value}" for name, value in chosen])
    joined = f"{page.text}{SEPARATOR}Chosen: {choices}"
    return page._replace(text=joined, anchor=quoted(joined))


def item_address(query: str, chosen: Chosen) -> str:
    """Return the part of an item page's address that holds quotes in the original.

    Args:
        query: the search that led to the page.
        chosen: options that are chosen.
    """
    return f"{query.replace(' ', '+')}/{json.dumps(dict(chosen))}"


def address(session: str, kind: str, asin: str, query: str, number: int, chosen: Chosen) -> str:
    """Return the address of a page, as the original's simulated server writes it: nothing is escaped.

    Args:
        session: name of the session.
        kind: index, results, item, description, features, reviews, or done.
        asin: of the product, where the page has one.
        query: the search that led to the page.
        number: of the result page.
        chosen: options, in the order in which they were first chosen: JSON on an item page, Python's form elsewhere.
    """
    words = query.replace(" ", "+")
    options = dict(chosen)
    if kind == "index":
        return f"{BASE_ADDRESS}/{session}"
    if kind == "results":
        return f"{BASE_ADDRESS}/search_results/{session}/{words}/{number}"
    if kind == "item":
        return f"{BASE_ADDRESS}/item_page/{session}/{asin}/{words}/{number}/{json.dumps(options)}"
    if kind == "done":
        return f"{BASE_ADDRESS}/done/{session}/{asin}/{options}"
    return (
        f"{BASE_ADDRESS}/item_sub_page/{session}/{asin}/{words}/{number}/{kind.capitalize()}/{options}"
    )


def done_text(asin: str, chosen: Chosen, score: float) -> str:
    """Return the text after a purchase; most fields of the original's page are empty.

    Args:
        asin: of the product.
        chosen: its options as they are chosen.
        score: the reward, in [0, 1].
    """
    options = json.dumps(dict(chosen), sort_keys=True)
    # The original's template escapes these characters of JSON (Jinja's ``tojson``).
    for character in "<>&'":
        options = options.replace(character, f"\\u{ord(character):04x}")
    return SEPARATOR.join(_DONE).format(asin=asin, options=options, score=score)


def rich_text(nodes: Iterable[Node], clicked: Iterable[Node]) -> str:
    """Return mode ``text_rich``: a line for each text, buttons marked, and what was clicked before all else.

    Args:
        nodes: of the page, in order.
        clicked: those of them that are shown as clicked.
    """
    marked = set(clicked)
    lines: list[str] = []
    before: list[str] = []
    for node in nodes:
        state = "clicked button" if node in marked else "button"
        if node.kind == "text":
            lines.append(node.text)
        else:
            indent = {"button": "", "label": "  ", "asin": "\n"}[node.kind]
            lines.append(f"{indent}[{state}] {node.text} [{state}_]")
            if node.kind == "label" and node in marked:
                # The original puts each such line before all earlier ones, so the last option comes first.
                before.insert(0, f"You have clicked {node.text}.")
    return "".join(f"{line}\n" for line in (*before, *lines))
