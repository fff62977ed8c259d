"""What a shop sells, as its pages, its search and its rewards read it."""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from threespo.errors import InputError

CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
MAX_ASIN_LENGTH = 10
# The original's price and attribute of products whose record has none.
DEFAULT_PRICE = 100.0
NO_ATTRIBUTE = "DUMMY_ATTR"

Options = tuple[tuple[str, tuple[str, ...]], ...]
"""(name, values) in the order of the page."""


class HumanInstruction(NamedTuple):
    """What a person asked for."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class Product(NamedTuple):
    """One product."""

    asin: str
    title: str
    price_tag: str
    prices: tuple[float, ...]
    """One price, or the two ends of a range as they are written (the first may be the larger)."""
    category: str
    query: str
    product_category: str
    description: str
    bullets: tuple[str, ...]
    options: Options
    attributes: tuple[str, ...]
    instruction: str | None = None
    """The start of the synthetic goals' texts; None where the product is no goal."""
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[HumanInstruction, ...] = ()

    @property
    def searched_text(self) -> str:
        """What the search engine indexes."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options)
        # As the original's indexer: of the bullet points only the first is searched.
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.title, self.description, first, options)).lower()


class Record:
    """A JSON object of a file, read field by field; errors name file, record, field and what was found."""

    __slots__ = ("values", "where")

    def __init__(self, values: Any, where: str) -> None:
        """Take a parsed JSON value.

        Args:
            values: the object.
            where: file and place, for messages.

        Raises:
            InputError: if the value is no object.
        """
        if not isinstance(values, dict):
            raise InputError(
                f"{where}: expected a JSON object, found {_shown(values)}. Fetch or repair the file."
            )
        self.values = values
        self.where = where

    def fail(self, field: str, expected: str) -> InputError:
        """Return the error that a field is not what is expected.

        Args:
            field: its name.
            expected: what it should be, in words.
        """
        found = _shown(self.values[field]) if field in self.values else "nothing"
        return InputError(
            f"{self.where}, field {field!r}: expected {expected}, found {found}. "
            "Repair or remove the record, or fetch the file again."
        )

    def text(self, field: str) -> str:
        """Return a text field."""
        value = self.values.get(field)
        if not isinstance(value, str):
            raise self.fail(field, "a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a field that is a list of texts."""
        value = self.values.get(field)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(field, "a list of texts")
        return tuple(value)


def parse_product(record: Record, attributes: Any, human: Any) -> Product:
    """Return the product of a record of the original's item file.

    Args:
        record: the item.
        attributes: its entry in the file of attributes and synthetic instructions, or None.
        human: its entry in the file of human goals, or None.

    Raises:
        InputError: for a malformed record; names it.
    """
    prices, tag = parse_prices(record)
    bullets = record.values.get("small_description")
    instruction, wanted, found = _synthetic(record, attributes)

    return Product(
        asin=record.text("asin"),
        title=record.text("name"),
        price_tag=tag,
        prices=prices,
        category=record.text("category"),
        query=record.text("query").lower().strip(),
        product_category=record.text("product_category"),
        description=record.text("full_description"),
        bullets=(bullets,) if isinstance(bullets, str) else record.texts("small_description"),
        options=_options(record),
        attributes=found,
        instruction=instruction,
        instruction_attributes=wanted,
        human=_human(record, human),
    )


def parse_prices(record: Record) -> tuple[tuple[float, ...], str]:
    """Return prices and price tag of ``$a`` or ``$a$b``; without a price a product costs 100 dollars."""
    pricing = record.values.get("pricing")
    if not pricing:
        return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    if not isinstance(pricing, str):
        raise record.fail("pricing", "a text such as '$5.00' or '$5.00$7.50'")
    try:
        # Thousands are written with commas; what comes before the first dollar sign is no price.
        amounts = (re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:])
        prices = tuple(float(Decimal(amount)) for amount in amounts)
    except InvalidOperation:
        prices = ()
    if not prices:
        raise record.fail("pricing", "a text such as '$5.00' or '$5.00$7.50'")

    # Of more than two prices the original takes the first two, in the order of the record.
    if len(prices) == 1:
        return prices, f"${prices[0]}"
    return prices[:2], f"${prices[0]} to ${prices[1]}"


def _options(record: Record) -> Options:
    groups = record.values.get("customization_options")
    if not groups:
        return ()
    if not isinstance(groups, dict):
        raise record.fail("customization_options", "an object of lists, or nothing")
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in groups.items():
        if contents is None:
            continue
        if not isinstance(contents, list) or not all(
            isinstance(content, dict) and isinstance(content.get("value"), str) for content in contents
        ):
            raise record.fail("customization_options", f"objects with a text 'value' under {name!r}")
        # As the original normalises values: a slash becomes a bar.
        options[name.lower()] = tuple(
            content["value"].strip().replace("/", " | ").lower() for content in contents
        )
    return tuple(options.items())


def _synthetic(record: Record, attributes: Any) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return instruction, its attributes, and the product's attributes."""
    if attributes is None:
        return None, (), (NO_ATTRIBUTE,)
    entry = Record(attributes, f"instructions of {record.values.get('asin')}")
    found = entry.texts("attributes") if "attributes" in entry.values else (NO_ATTRIBUTE,)
    if entry.values.get("instruction") is None:
        return None, (), found
    wanted = entry.texts("instruction_attributes")
    if not wanted:
        raise entry.fail("instruction_attributes", "at least one attribute")
    return entry.text("instruction"), wanted, found


def _human(record: Record, human: Any) -> tuple[HumanInstruction, ...]:
    if human is None:
        return ()
    where = f"human goals of {record.values.get('asin')}"
    if not isinstance(human, list):
        raise InputError(
            f"{where}: expected a list of goals, found {_shown(human)}. Fetch or repair the file."
        )
    entries = [Record(entry, f"{where}, goal {number}") for number, entry in enumerate(human, start=1)]
    return tuple(
        HumanInstruction(
            entry.text("instruction"),
            entry.texts("instruction_attributes"),
            entry.texts("instruction_options"),
        )
        for entry in entries
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
