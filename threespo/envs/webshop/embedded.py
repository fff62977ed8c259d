"""The embedded shop: a catalogue of any size that needs no download.

Product i depends on (seed, count, i) and nothing else. Products with goals are spread over the catalogue; each carries a
short instruction for synthetic goals and a wish in a person's words. Half of them name the brand.
"""

import functools
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from threespo import rng
from threespo.envs.webshop.embedded_tables import (
    ASKING,
    ASKING_FOR_ANY_BRAND,
    DEPARTMENTS,
    ENDINGS,
    MIDDLES,
    OPENINGS,
    OPTION_VALUES,
    PORTIONS,
    WITH_OPTIONS,
    WORN,
    Kind,
)
from threespo.envs.webshop.products import HumanInstruction, Options, Product
from threespo.errors import InputError

MIN_PRODUCTS = 500
# About the size of WebShop's own catalogue.
MAX_PRODUCTS = 1_200_000
PRODUCTS_WITH_GOALS = 6_000
"""About so many products of a large catalogue are goals; all of a small one."""

_PRODUCTS_PER_BRAND = 60
_LEAST_BRANDS = 40
_NAMES_BRAND = 0.5
_BRAND_STEP = 1999
# Without I and O, which look like digits.
_DIGITS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"


class _Words(NamedTuple):
    kinds: tuple[Kind, ...]
    attributes: dict[str, tuple[str, ...]]
    materials: dict[str, tuple[str, ...]]
    values: dict[str, tuple[str, ...]]
    portions: tuple[str, ...]


def generate(count: int, seed: int) -> Iterator[Product]:
    """Yield the products of the embedded shop.

    Args:
        count: size of the catalogue, 500 to 1,200,000.
        seed: any whole number.

    Raises:
        InputError: if ``count`` is out of range.
    """
    if not MIN_PRODUCTS <= count <= MAX_PRODUCTS:
        raise InputError(
            f"webshop: field 'products' is {count}; expected {MIN_PRODUCTS} to {MAX_PRODUCTS}"
        )
    return (product(index, count, seed) for index in range(count))


def product(index: int, count: int, seed: int) -> Product:
    """Return one product of the embedded shop.

    Args:
        index: its number, from 0.
        count: size of the catalogue, on which brands and the share of goals depend.
        seed: of the catalogue.
    """
    source = rng.generator(seed, "embedded product", count, index)
    words = _words()
    kind = source.choice(words.kinds)
    brand = _brand(source.randrange(max(_LEAST_BRANDS, count // _PRODUCTS_PER_BRAND)))
    attributes = tuple(source.sample(words.attributes[kind.category], 5))
    material = source.choice(words.materials[kind.category])
    options = tuple((name, _values(source, name, kind)) for name in kind.options)
    prices = _prices(source, kind)

    # Only the first wanted attribute is in the title: the second has to be found by search in description or bullets.
    details = f"{material.title()}, {attributes[0].title()}, {attributes[3].title()}"
    title = f"{brand.capitalize()} {kind.name.title()}, {details}"
    wanted = attributes[:2]
    named = source.random() < _NAMES_BRAND
    has_goal = index % max(1, count // PRODUCTS_WITH_GOALS) == 0

    return Product(
        asin=_asin(index),
        title=title,
        price_tag=f"${prices[0]}" if len(prices) == 1 else f"${prices[0]} to ${prices[1]}",
        prices=prices,
        category=kind.category,
        query=kind.query,
        product_category=kind.path,
        description=f"The {kind.name} of {brand} is made with {material}: {attributes[1]}, {attributes[2]}.",
        bullets=_bullets(kind, brand, attributes, material),
        options=options,
        attributes=attributes,
        instruction=f"Find me {wanted[0]}, {wanted[1]} {f'{brand} ' * named}{kind.name}"
        if has_goal
        else None,
        instruction_attributes=wanted if has_goal else (),
        human=(_wish(source, kind, brand if named else "", wanted, options),) if has_goal else (),
    )


@functools.cache
def _words() -> _Words:
    kinds = []
    for category, department in DEPARTMENTS.items():
        for line in filter(None, map(str.strip, department.kinds.splitlines())):
            name, query, section, options, prices = (part.strip() for part in line.split("|"))
            low, high = map(int, prices.split())
            kinds.append(
                Kind(
                    name,
                    category,
                    query,
                    f"{department.path} › {section} › {query.title()}",
                    _listed(options),
                    (low, high),
                )
            )

    return _Words(
        tuple(kinds),
        {category: _listed(department.attributes) for category, department in DEPARTMENTS.items()},
        {category: _listed(department.materials) for category, department in DEPARTMENTS.items()},
        {name: _listed(values) for name, values in OPTION_VALUES.items()},
        _listed(PORTIONS),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _brand(number: int) -> str:
    """Return an invented name; different numbers have different names."""
    parts = (OPENINGS, MIDDLES, ENDINGS)
    names = math.prod(map(len, parts))
    # The step has no common divisor with the number of names, so neighbours differ in every part.
    name = ""
    rest = number // names * names + number * _BRAND_STEP % names
    for part in parts:
        rest, place = divmod(rest, len(part))
        name += part[place]
    return name if not rest else f"{name}{_brand(rest - 1)}"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _asin(index: int) -> str:
    text = ""
    for _ in range(8):
        index, digit = divmod(index, len(_DIGITS))
        text = _DIGITS[digit] + text
    return f"E0{text}"


def _values(source: random.Random, name: str, kind: Kind) -> tuple[str, ...]:
    words = _words()
    values = words.portions if name == "size" and kind.category != WORN else words.values[name]
    chosen = source.sample(range(len(values)), source.randint(2, min(5, len(values))))
    return tuple(values[place] for place in sorted(chosen))


def _prices(source: random.Random, kind: Kind) -> tuple[float, ...]:
    # Whole cents are drawn, so a price has no digits that a price tag would not show.
    low, high = (100 * bound for bound in kind.prices)
    one = source.randint(low, high) / 100
    if source.random() < 0.75:
        return (one,)
    return (one, round(one * (1 + source.randint(5, 40) / 100), 2))


def _bullets(kind: Kind, brand: str, attributes: tuple[str, ...], material: str) -> tuple[str, ...]:
    return (
        f"{attributes[0].capitalize()}: every {kind.name} by {brand} is {attributes[1]} as well.",
        f"Made with {material} for years of use.",
        f"Chosen by customers who care for {attributes[2]}, {attributes[3]} and {attributes[4]}.",
    )


def _wish(
    source: random.Random, kind: Kind, brand: str, wanted: tuple[str, ...], options: Options
) -> HumanInstruction:
    chosen = tuple(source.choice(values) for _, values in options)
    listed = source.choice(WITH_OPTIONS).format(options=" and ".join(chosen)) if chosen else ""
    text = source.choice(ASKING if brand else ASKING_FOR_ANY_BRAND).format(
        brand=brand,
        kind=kind.name,
        a_brand=_with_article(brand) if brand else "",
        a_kind=_with_article(kind.name),
        first=wanted[0],
        second=wanted[1],
        options=listed,
    )
    return HumanInstruction(text, wanted, chosen)
