"""A page of the shop as a person reads it in a terminal: what is text, what can be clicked, and what has been chosen."""

import textwrap
from collections.abc import Iterator, Sequence

from threespo.envs.webshop.pages import Node
from threespo.envs.webshop.shop import WebShop
from threespo.envs.webshop.state import ShopState

WIDTH = 100


def page_for_person(shop: WebShop, state: ShopState) -> str:
    """Return the state's page in lines: buttons in brackets, products with their prices, options with the chosen marked."""
    if state.done:
        asin, title, tag = shop.catalogue.head(state.product)
        chosen = ", ".join(f"{name}: {value}" for name, value in state.chosen) or "no options"
        return f"Bought [{asin}] {title}, {tag} ({chosen})."
    return "\n".join(_lines(shop.page(state).nodes, dict(state.chosen)))


def _lines(nodes: Sequence[Node], chosen: dict[str, str]) -> Iterator[str]:
    """Yield lines; nodes of one kind share them: buttons, the values of an option, a product with its title and price."""
    buttons: list[str] = []
    place = 0
    while place < len(nodes):
        node = nodes[place]
        place += 1
        if node.kind == "button":
            buttons.append(f"[{node.text}]")
            continue

        if node.kind == "asin":
            title = nodes[place].text
            price = nodes[place + 1].text
            place += 2
            yield from _wrapped(f"[{node.text}] {title} - {price}", "  ")
        elif place < len(nodes) and nodes[place].kind == "label":
            values = []
            while place < len(nodes) and nodes[place].kind == "label":
                marked = chosen.get(nodes[place].name.lower()) == nodes[place].text
                values.append(f"[{'*' if marked else ''}{nodes[place].text}]")
                place += 1
            yield from _wrapped(f"{node.text}: {' '.join(values)}", "  ")
        else:
            yield from _wrapped(node.text.strip(), "")
    yield " ".join(buttons)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "    ") or [""]
