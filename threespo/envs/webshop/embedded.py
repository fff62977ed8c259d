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
_MIN_BRANDS = 40
_SHARE_THAT_NAMES_BRAND = 0.5
_SHARE_WITH_ONE_PRICE = 0.75
_BRAND_STEP = 1999
# Without I and O, which look like digits.
_DIGITS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"


class _Words(NamedTuple):
    """The words of ``embedded_tables``, split."""

    kinds: tuple[Kind, ...]
    attributes: dict[str, tuple[str, ...]]
    """By category, as are the materials."""
    materials: dict[str, tuple[str, ...]]
    values: dict[str, tuple[str, ...]]
    """By option."""
    portions: tuple[str, ...]
    """Sizes of what is not worn."""


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
    words = _read_words()
    # The order of the draws decides what the shop sells, so it must stay.
    kind = source.choice(words.kinds)
    brand_count = max(_MIN_BRANDS, count // _PRODUCTS_PER_BRAND)
    brand = _invent_brand(source.randrange(brand_count))
    attributes = tuple(source.sample(words.attributes[kind.category], 5))
    material = source.choice(words.materials[kind.category])
    options = tuple((name, _draw_values(source, name, kind)) for name in kind.options)
    prices = _draw_prices(source, kind)
    price_tag = " to ".join(f"${price}" for price in prices)

    # Only the first wanted attribute is in the title: the second has to be found by search in description or bullets.
    details = f"{material.title()}, {attributes[0].title()}, {attributes[3].title()}"
    title = f"{brand.capitalize()} {kind.name.title()}, {details}"
    wanted = attributes[:2]
    wanted_brand = brand if source.random() < _SHARE_THAT_NAMES_BRAND else ""

    instruction = None
    wishes: tuple[HumanInstruction, ...] = ()
    products_per_goal = max(1, count // PRODUCTS_WITH_GOALS)
    has_goal = index % products_per_goal == 0
    if has_goal:
        wanted_name = f"{wanted_brand} {kind.name}".strip()
        instruction = f"Find me {wanted[0]}, {wanted[1]} {wanted_name}"
        wishes = (_draw_wish(source, kind, wanted_brand, wanted, options),)

    return Product(
        asin=_asin(index),
        title=title,
        price_tag=price_tag,
        prices=prices,
        category=kind.category,
        query=kind.query,
        product_category=kind.path,
        description=f"The {kind.name} of {brand} is made with {material}: {attributes[1]}, {attributes[2]}.",
        bullets=_make_bullets(kind, brand, attributes, material),
        options=options,
        attributes=attributes,
        instruction=instruction,
        instruction_attributes=wanted if has_goal else (),
        human=wishes,
    )


@functools.cache
def _read_words() -> _Words:
    kinds: list[Kind] = []
    attributes: dict[str, tuple[str, ...]] = {}
    materials: dict[str, tuple[str, ...]] = {}
    for category, department in DEPARTMENTS.items():
        attributes[category] = _split_list(department.attributes)
        materials[category] = _split_list(department.materials)
        for line in department.kinds.splitlines():
            # The text of the table begins and ends with an empty line.
            if not line.strip():
                continue
            name, query, section, options, prices = (part.strip() for part in line.split("|"))
            low, high = map(int, prices.split())
            path = f"{department.path} › {section} › {query.title()}"
            kinds.append(Kind(name, category, query, path, _split_list(options), (low, high)))

    values = {name: _split_list(text) for name, text in OPTION_VALUES.items()}
    return _Words(tuple(kinds), attributes, materials, values, _split_list(PORTIONS))


def _split_list(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas."""
    return tuple(part.strip() for part in text.split(","))


def _invent_brand(number: int) -> str:
    """Return an invented name; different numbers have different names."""
    syllables = (OPENINGS, MIDDLES, ENDINGS)
    names = math.prod(len(choices) for choices in syllables)
    # The step has no common divisor with the number of names, so neighbours differ in every syllable.
    code = number // names * names + number * _BRAND_STEP % names
    name = ""
    for choices in syllables:
        code, index = divmod(code, len(choices))
        name += choices[index]
    # Once all names of three syllables are taken, names get three more.
    return name if code == 0 else f"{name}{_invent_brand(code - 1)}"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _asin(index: int) -> str:
    """Return a product's id of ten characters, as Amazon's have."""
    text = ""
    for _ in range(8):
        index, digit = divmod(index, len(_DIGITS))
        text = _DIGITS[digit] + text
    return f"E0{text}"


def _draw_values(source: random.Random, name: str, kind: Kind) -> tuple[str, ...]:
    """Draw two to five values of an option."""
    words = _read_words()
    values = words.values[name]
    if name == "size" and kind.category != WORN:
        values = words.portions
    count = source.randint(2, min(5, len(values)))
    chosen = source.sample(range(len(values)), count)
    # In the table's order: sizes rise.
    return tuple(values[index] for index in sorted(chosen))


def _draw_prices(source: random.Random, kind: Kind) -> tuple[float, ...]:
    """Draw a price, or the lowest and the highest price."""
    # Whole cents are drawn, so a price has no digits that a price tag would not show.
    low, high = (100 * bound for bound in kind.prices)
    lowest = source.randint(low, high) / 100
    if source.random() < _SHARE_WITH_ONE_PRICE:
        return (lowest,)
    increase = source.randint(5, 40) / 100
    return (lowest, round(lowest * (1 + increase), 2))


def _make_bullets(kind: Kind, brand: str, attributes: tuple[str, ...], material: str) -> tuple[str, ...]:
    return (
        f"{attributes[0].capitalize()}: every {kind.name} by {brand} is {attributes[1]} as well.",
        f"Made with {material} for years of use.",
        f"Chosen by customers who care for {attributes[2]}, {attributes[3]} and {attributes[4]}.",
    )


def _draw_wish(
    source: random.Random, kind: Kind, brand: str, wanted: tuple[str, ...], options: Options
) -> HumanInstruction:
    """Draw a goal in the words of a person; an empty brand means any."""
    chosen = tuple(source.choice(values) for _, values in options)
    listed = ""
    if chosen:
        listed = source.choice(WITH_OPTIONS).format(options=" and ".join(chosen))
    form = source.choice(ASKING if brand else ASKING_FOR_ANY_BRAND)
    text = form.format(
        brand=brand,
        kind=kind.name,
        a_brand=_with_article(brand) if brand else "",
        a_kind=_with_article(kind.name),
        first=wanted[0],
        second=wanted[1],
        options=listed,
    )
    return HumanInstruction(text, wanted, chosen)
