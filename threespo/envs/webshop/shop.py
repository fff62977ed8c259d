"""The shop as an environment: pure functions from a state and an action to the next state."""

import functools
import random
import re
from dataclasses import replace
from typing import Any, Literal, get_args

from threespo import rng
from threespo.envs.base import Transition
from threespo.envs.webshop import pages
from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.bm25 import MAX_HITS
from threespo.envs.webshop.catalogue import Catalogue
from threespo.envs.webshop.goals import ShopGoal, draw_prices, highest_price
from threespo.envs.webshop.nouns import pattern_nouns
from threespo.envs.webshop.pages import Chosen, Node, Page
from threespo.envs.webshop.reward import Nouns, Reward, purchase_reward
from threespo.envs.webshop.state import ShopState
from threespo.envs.webshop.text import TEXT
from threespo.errors import InputError

Mode = Literal["text", "text_rich", "url"]
Fidelity = Literal["original", "repaired"]

# The original's pattern. Greedy and not anchored at the end: of "click[a] click[b]" the verb is "click[a] click".
_ACTION = re.compile(r"(.+)\[(.+)\]")
MAX_TEXT_LENGTH = 3_000
"""Characters that the repaired shop shows of a description or a feature; some go on for 16,000, which no prompt holds."""

_MAX_CACHED_PAGES = 1 << 12


class WebShop:
    """The shop. Holds no episode: every method is a function of its arguments and of what the shop was opened with.

    Args:
        catalogue: what is for sale.
        mode: what is observed: ``text``, ``text_rich``, or ``url``, the page's address.
        fidelity: ``original`` with all quirks, or ``repaired`` (docs/webshop.md lists them).
        price_seed: the seed from which the original's prices are drawn, for goals that name no worker of their own; the
            repaired shop has no random price.
        nouns: the noun tagger.
        session: its name in addresses (mode ``url``); the original draws ten letters where none is given.
    """

    name = "webshop"
    text = TEXT

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        mode: Mode = "text",
        fidelity: Fidelity = "repaired",
        price_seed: int = 0,
        nouns: Nouns = pattern_nouns,
        session: str = pages.SESSION,
    ) -> None:
        for field_name, value, allowed in (
            ("mode", mode, get_args(Mode)),
            ("fidelity", fidelity, get_args(Fidelity)),
        ):
            if value not in allowed:
                raise InputError(
                    f"webshop: field {field_name!r} is {value!r}; expected one of {', '.join(allowed)}"
                )
        self.catalogue = catalogue
        self.mode = mode
        self.fidelity = fidelity
        self.price_seed = price_seed
        if not isinstance(session, str) or not session:
            raise InputError(
                f"webshop: field 'session' is {session!r}; expected a text that is not empty"
            )
        self._nouns = nouns
        self.session = session

        # Patterns, stemmer and lexicon load at their first use, which would distort the time of the first steps.
        terms("caf\u00e9s")
        nouns("shop of unheardofs")
        self._repaired = fidelity == "repaired"
        self._rich = mode == "text_rich"
        self._url = mode == "url"

        self._page = functools.lru_cache(maxsize=_MAX_CACHED_PAGES)(self._make_page)
        # Training and test goals of the original order have a worker each.
        self._prices = functools.lru_cache(maxsize=2)(self._draw_prices)

    def __reduce__(self) -> tuple[Any, ...]:
        # Caches and memory-mapped files do not travel between processes.
        return _reopen, (
            self.catalogue,
            self.mode,
            self.fidelity,
            self.price_seed,
            self._nouns,
            self.session,
        )

    def _draw_prices(self, seed: int) -> list[float]:
        return draw_prices(self.catalogue, random.Random(seed))

    def initial(self, task: ShopGoal) -> ShopState:
        """Return the start page."""
        return self._with_texts(ShopState(task))

    def step(self, state: ShopState, action: str) -> Transition[ShopState]:
        """Return what ``action`` leads to; whatever is no action on this page leaves it as it is."""
        after = self._take_action(state, action)
        return Transition(after, after.observation, after.score, self.won(after), after.done)

    def admissible(self, state: ShopState) -> tuple[str, ...]:
        """Return the actions in the order of verl-agent.

        After a purchase there are none; in the original, those of the search page, since its environment has then begun
        another episode.
        """
        if state.done:
            return () if self._repaired else self._page("index", "", 1, -1, ()).admissible
        return self.page(state).admissible

    def won(self, state: ShopState) -> bool:
        """Return whether something was bought with the full reward."""
        return state.done and state.score == 1.0

    def reward(self, state: ShopState) -> Reward:
        """Return the reward, in parts, for buying the state's product as it is chosen."""
        product = self.catalogue.product(state.product)
        worker = self.price_seed if state.goal.worker is None else state.goal.worker
        price = (
            highest_price(self.catalogue, state.product)
            if self._repaired
            else self._prices(worker)[state.product]
        )
        return purchase_reward(
            product, price, state.chosen, state.goal, self._nouns, repaired=self._repaired
        )

    def _take_action(self, state: ShopState, action: str) -> ShopState:
        match = _ACTION.match(action)
        if match is None or state.done:
            return state
        # The original lowers the argument alone, so "Search[...]" is no action.
        verb = match[1]
        argument = match[2].lower()
        if verb == "search":
            if not self._repaired and _crashes_original(argument):
                return state
            return self._with_texts(ShopState(state.goal, "results", argument, visited=state.visited))
        return self._click(state, argument) if verb == "click" else state

    def _click(self, state: ShopState, name: str) -> ShopState:
        page = self.page(state)
        if name in page.products:
            product = page.products[name]
            visited = state.visited | {product} if self._rich and not self._repaired else state.visited
            return self._with_texts(
                ShopState(state.goal, "item", state.query, state.number, product, visited=visited)
            )
        # The search button does nothing when it is clicked: a search needs its words.
        if name in page.buttons and name != pages.SEARCH.lower():
            return self._press_button(state, name)
        if name in page.options and name != pages.SEARCH.lower():
            return self._choose_option(state, name, page.options[name])
        return state

    def _press_button(self, state: ShopState, name: str) -> ShopState:
        """Return what a button of the page leads to."""
        number = state.number
        if name == pages.BACK.lower():
            return self.initial(state.goal)
        if name == pages.BUY.lower():
            return self._buy(state)

        if name in pages.SUB_PAGES:
            kind = name
        elif name == pages.NEXT.lower():
            kind = "results"
            number += 1
        elif state.kind == "results":
            kind = "results"
            number -= 1
        elif state.kind == "item":
            kind = "results"
        else:
            # From description, features or reviews "< Prev" leads back to the product.
            kind = "item"

        if kind == "results":
            # A result page forgets the product and what was chosen on it.
            return self._with_texts(
                ShopState(state.goal, kind, state.query, number, visited=state.visited)
            )
        return self._with_texts(
            ShopState(state.goal, kind, state.query, number, state.product, state.chosen, state.visited)
        )

    def _choose_option(self, state: ShopState, value: str, names: tuple[str, ...]) -> ShopState:
        """Return the state with an option chosen.

        Several options of a product may have the same value. The original takes the last option. Repaired, it is the first
        that has another value, so that every choice can be made.
        """
        chosen = dict(state.chosen)
        name = names[-1]
        if self._repaired:
            name = next((name for name in names if chosen.get(name) != value), name)
        chosen[name.lower()] = value
        # An address has the options in the order in which they were first chosen, so there the order is part of the state.
        pairs = tuple(chosen.items()) if self._url else tuple(sorted(chosen.items()))
        return self._with_texts(
            ShopState(state.goal, "item", state.query, state.number, state.product, pairs, state.visited)
        )

    def _buy(self, state: ShopState) -> ShopState:
        score = self.reward(state).total
        if self._url:
            address = self._address("done", state)
            return replace(state, kind="done", score=score, page=address, observation=address)
        text = pages.done_text(self.catalogue.head(state.product)[0], state.chosen, score)
        return ShopState(
            state.goal,
            "done",
            state.query,
            state.number,
            state.product,
            state.chosen,
            score=score,
            page=text.replace(pages.SEPARATOR, "\n") + "\n" if self._rich else text,
            observation=text,
        )

    def _with_texts(self, state: ShopState) -> ShopState:
        """Return the state with its texts."""
        if self._url:
            address = self._address(state.kind, state)
            return replace(state, page=address, observation=address)
        page = self.page(state)
        goal = state.goal
        is_start = state.kind == "index"
        if self._rich:
            head = (*((Node("WebShop"),) if is_start else ()), Node("Instruction:"), Node(goal.goal))
            marked = self._clicked_nodes(state, page)
            text = pages.rich_text((*head, *page.nodes), marked)
            observation = pages.rich_text(page.nodes, marked)
        else:
            parts = ["WebShop"] if is_start else []
            parts += ["Instruction:", goal.goal.strip(), page.text]
            text = pages.SEPARATOR.join(parts)
            observation = page.anchor

        return ShopState(
            goal,
            state.kind,
            state.query,
            state.number,
            state.product,
            state.chosen,
            state.visited,
            page=text,
            observation=observation,
        )

    def _address(self, kind: str, state: ShopState) -> str:
        asin = self.catalogue.head(state.product)[0] if state.product >= 0 else ""
        return pages.address(self.session, kind, asin, state.query, state.number, state.chosen)

    def _clicked_nodes(self, state: ShopState, page: Page) -> list[Node]:
        """Return what mode ``text_rich`` shows as clicked; the original looks for a value anywhere in the page's address."""
        if self._repaired:
            chosen = dict(state.chosen)
            return [
                node
                for node in page.nodes
                if node.kind == "label" and chosen.get(node.name) == node.text
            ]
        address = pages.item_address(state.query, state.chosen)
        return [
            node
            for node in page.nodes
            if (node.kind == "label" and f'"{node.text}"' in address)
            or (node.kind == "asin" and int(node.name) in state.visited)
        ]

    def page(self, state: ShopState) -> Page:
        """Return the page of a state before a purchase, in its parts."""
        # A page's key leaves out whatever does not show on it, the goal above all: episodes share their pages.
        shown = state.chosen if self._repaired and self.mode == "text" else ()
        if state.kind == "results":
            return self._page("results", state.query, state.number, -1, ())
        return self._page(state.kind, "", 1, state.product, shown)

    def _make_page(self, kind: str, query: str, number: int, product: int, chosen: Chosen) -> Page:
        if kind == "index":
            return pages.make_page(pages.index_nodes())
        if chosen:
            return pages.with_chosen(self._page(kind, query, number, product, ()), chosen)
        if kind == "results":
            hits = self._find_products(query)
            start = (number - 1) * pages.PAGE_SIZE
            more = not self._repaired or start + pages.PAGE_SIZE < len(hits)
            shown = ((hit, self.catalogue.head(hit)) for hit in hits[start : start + pages.PAGE_SIZE])
            return pages.make_page(pages.results_nodes(number, len(hits), shown, more))

        found = self.catalogue.product(product)
        longest = MAX_TEXT_LENGTH if self._repaired else None
        nodes = pages.item_nodes(found) if kind == "item" else pages.sub_nodes(found, kind, longest)
        return pages.make_page(nodes)

    def _find_products(self, query: str) -> tuple[int, ...]:
        # The original's commands for a random, a category's and a query's products; the repaired shop searches for the text.
        first, *rest = query.split(" ")
        if not self._repaired and first == "<r>":
            # The original draws other products on every visit. A step is a pure function here, so equal queries have equal
            # answers.
            source = rng.generator(self.price_seed, "webshop random products", query)
            return tuple(source.sample(range(len(self.catalogue)), min(MAX_HITS, len(self.catalogue))))
        if not self._repaired and first == "<c>":
            return self.catalogue.products_in_category(rest[0].strip())
        if not self._repaired and first == "<q>":
            return self.catalogue.products_of_query(" ".join(rest).strip())
        return self.catalogue.index.search(query)


def _crashes_original(query: str) -> bool:
    """Return whether the original crashes on this query; here it changes nothing."""
    words = query.split(" ")
    return words[0] == "<a>" or words == ["<c>"]


def _reopen(
    catalogue: Catalogue, mode: Mode, fidelity: Fidelity, price_seed: int, nouns: Nouns, session: str
) -> WebShop:
    return WebShop(
        catalogue, mode=mode, fidelity=fidelity, price_seed=price_seed, nouns=nouns, session=session
    )
