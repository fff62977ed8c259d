"""Goals: what an agent is asked to buy, built as the original builds them."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from threespo import rng
from threespo.envs.optional_splits import strip_price_clause
from threespo.envs.webshop.catalogue import Catalogue
from threespo.envs.webshop.products import Product, Record
from threespo.errors import InputError

# What the original puts where a product is too expensive for any bound; the instruction then names no price.
NO_BOUND = 1_000_000.0
# WebShop's PRICE_RANGE: 10, 20, ... 990 dollars.
_BOUNDS = tuple(10.0 * step for step in range(1, 100))
_NEXT_BOUNDS = 4

WantedOptions = tuple[tuple[str, str], ...] | tuple[str, ...]
"""Of a synthetic goal: (name, value), sorted by name. Of a human goal: values alone."""


@dataclass(frozen=True, slots=True)
class ShopGoal:
    """One goal; a task of the environment."""

    task_id: str
    """``ASIN/NUMBER``, for human goals ``ASIN/human-NUMBER``; NUMBER counts the product's goals."""
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    goal: str
    """The instruction as the agent reads it."""
    attributes: tuple[str, ...]
    price_upper: float
    options: WantedOptions
    worker: int | None = None
    """Seed of the reference's worker that drew the bound, for its own random prices; ``None`` in our own order."""

    @property
    def task_type(self) -> str:
        """The product's category, one of five."""
        return self.category

    @property
    def content(self) -> str:
        """What the goal is about, whatever bound was drawn: the instruction without its price clause."""
        return strip_price_clause(self.goal)

    def __hash__(self) -> int:
        # The id identifies a goal in its data; hashing all fields would be slow.
        return hash(self.task_id)

    def as_row(self) -> dict[str, Any]:
        """Return the goal as JSON values."""
        row = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in row.items() if value is not None}


def goal_from_row(values: Any, where: str, catalogue: Catalogue | None = None) -> ShopGoal:
    """Return the goal of a row that :meth:`ShopGoal.as_row` made.

    Args:
        values: the row, as JSON values.
        where: what messages call it.
        catalogue: where it is given, the goal's product is looked up in it.

    Raises:
        InputError: if the row is malformed, or the catalogue does not have its product.
    """
    record = Record(values, where)
    upper = record.values.get("price_upper")
    if not isinstance(upper, (int, float)):
        raise record.fail("price_upper", "a number")
    worker = record.values.get("worker")
    if worker is not None and type(worker) is not int:
        raise record.fail("worker", "a whole number")

    asin = record.text("asin")
    if catalogue is not None and catalogue.number_of(asin) is None:
        raise InputError(
            f"{where}, field 'asin': no product {asin} in {catalogue.folder}; prepare goals and catalogue from the same data"
        )

    return ShopGoal(
        record.text("task_id"),
        asin,
        record.text("category"),
        record.text("query"),
        record.text("name"),
        record.text("product_category"),
        record.text("goal"),
        record.texts("attributes"),
        float(upper),
        _wanted_options(record),
        worker,
    )


def _wanted_options(record: Record) -> WantedOptions:
    options = record.values.get("options")
    if isinstance(options, list):
        if all(isinstance(option, str) for option in options):
            return tuple(options)
        if all(
            isinstance(option, list) and [type(part) for part in option] == [str, str]
            for option in options
        ):
            return tuple((name, value) for name, value in options)
    raise record.fail("options", "a list of texts, or of pairs of a name and a value")


def draw_prices(catalogue: Catalogue, source: random.Random) -> list[float]:
    """Return one price per product, (products,); ranges are drawn from, in order, as the original does whenever it loads.

    Args:
        catalogue: the products.
        source: where the draws come from.
    """
    # The second end is NaN, which differs from itself, where there is a single price.
    return [
        float(low) if high != high else source.uniform(float(low), float(high))
        for low, high in catalogue.prices.tolist()
    ]


def highest_price(catalogue: Catalogue, number: int) -> float:
    """Return the upper end of a product's price range, in dollars.

    Args:
        catalogue: the products.
        number: of the product.
    """
    low, high = catalogue.prices[number].tolist()
    return float(low if high != high else max(low, high))


def make_original_goals(
    catalogue: Catalogue, seed: int, human: bool
) -> tuple[list[ShopGoal], list[float]]:
    """Return goals and prices as one worker of the reference has them.

    One stream draws prices and bounds; the order is shuffled by another with the same seed.

    Args:
        catalogue: the products.
        seed: of the worker.
        human: goals of people, not synthetic ones.

    Returns:
        The goals in order, and one price per product.
    """
    source = random.Random(seed)
    prices = draw_prices(catalogue, source)
    goals = list(_goals(catalogue, human, prices.__getitem__, lambda asin: source))
    return [goals[number] for number in original_order(len(goals), seed)], prices


def original_order(count: int, seed: int) -> list[int]:
    """Return the order of a worker's goals, as their numbers in the catalogue's order, (count,).

    Args:
        count: how many goals there are.
        seed: of the worker.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def make_repaired_goals(catalogue: Catalogue, seed: int, human: bool) -> list[ShopGoal]:
    """Return distinct goals, each product's bound drawn by its own counter, above its highest price.

    Args:
        catalogue: the products.
        seed: draws price bounds.
        human: goals of people, not synthetic ones.
    """
    goals = _goals(
        catalogue,
        human,
        lambda number: highest_price(catalogue, number),
        lambda asin: rng.generator(seed, "webshop price bound", asin),
    )
    seen: set[tuple[str, str]] = set()
    distinct = []
    for goal in goals:
        # Repeated option values, and repeated human instructions, give the same goal twice.
        if (goal.asin, goal.goal) not in seen:
            seen.add((goal.asin, goal.goal))
            distinct.append(goal)
    return distinct


def _goals(
    catalogue: Catalogue,
    human: bool,
    price_of: Callable[[int], float],
    source_of: Callable[[str], random.Random],
) -> Iterator[ShopGoal]:
    for number, product in catalogue.with_goals("human" if human else "synthetic"):
        source = source_of(product.asin)
        price = price_of(number)
        if human:
            yield from _human(product, price, source)
        else:
            yield from _synthetic(product, price, source)


def _synthetic(product: Product, price: float, source: random.Random) -> Iterator[ShopGoal]:
    """Yield a goal for each combination of the product's options."""
    upper, bound = _draw_bound(price, source)
    options = dict(product.options)
    names = sorted(options)
    # Option names are sorted, as in the original: the number in a goal's id depends on this order.
    for index, values in enumerate(itertools.product(*(options[name] for name in names))):
        chosen = tuple(zip(names, values, strict=True))
        wish = ", and ".join(f"{name}: {value}" for name, value in chosen)
        text = f"{product.instruction}{f' with {wish}' if wish else ''}{bound}"
        yield _goal(product, f"{index}", text, product.instruction_attributes, upper, chosen)


def _human(product: Product, price: float, source: random.Random) -> Iterator[ShopGoal]:
    """Yield what people asked for, as far as it names attributes."""
    for index, wish in enumerate(product.human):
        # The original skips these too, before it draws a bound: a draw more would change all later bounds.
        if wish.attributes:
            upper, bound = _draw_bound(price, source)
            yield _goal(
                product,
                f"human-{index}",
                wish.text.strip(".") + bound,
                wish.attributes,
                upper,
                wish.options,
            )


def _goal(
    product: Product,
    index: str,
    text: str,
    attributes: Sequence[str],
    upper: float,
    options: WantedOptions,
) -> ShopGoal:
    return ShopGoal(
        f"{product.asin}/{index}",
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        text,
        tuple(attributes),
        upper,
        options,
    )


def _draw_bound(price: float, source: random.Random) -> tuple[float, str]:
    """Return the price bound and its words: the larger of two of the next four multiples of ten dollars."""
    bounds = [bound for bound in _BOUNDS if bound > price][:_NEXT_BOUNDS]
    # Two bounds are drawn and the larger is kept; with fewer than two left, the original draws nothing.
    if len(bounds) < 2:
        return NO_BOUND, ""
    upper = max(source.sample(bounds, 2))
    return upper, f", and price lower than {upper:.2f} dollars"
