"""A shop of a few hand-made products with what catches programs out, in the original's file format."""

import json
from pathlib import Path
from typing import Any

from threespo.envs.webshop import Catalogue, ShopGoal, compile_catalogue
from threespo.envs.webshop.sources import read_products


def item(asin: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "asin": asin,
        "name": name,
        "category": "garden",
        "query": "Garden Lamps ",
        "product_category": "Home › Lighting › Lamps",
        "pricing": "$12.50",
        "full_description": f"All about {name}.",
        "small_description": [f"First of {name}", "Second"],
        "customization_options": "",
        **changes,
    }


def values(*texts: str) -> list[dict[str, str]]:
    return [{"value": text} for text in texts]


ITEMS = [
    item(
        "LAMP000001",
        "Brass Garden Lamp",
        customization_options={
            "Color": values("Red", "Navy Blue", "Red/Blue"),
            "Size": values("Large", "XX-Large"),
        },
    ),
    item(
        "LAMP000002",
        "Copper Garden Lamp",
        pricing="$30.00$10.00",
        small_description="",
        full_description="",
    ),
    item(
        "LAMP000003",
        "Odd Lamp",
        customization_options={
            "Size": values("7", "8"),
            "Width": values("7", "9"),
            "Kind": values("Search", "Next >", "Buy Now"),
        },
        small_description=["A [SEP] in the text", "  "],
    ),
    item("nan", "Skipped"),
    item("LAMP000001", "Repeated"),
    item("LAMPLONGER1", "Eleven characters"),
    *(
        item(
            f"POT{number:07d}", f"Clay Pot number {number}", pricing="", category="beauty", query="pots"
        )
        for number in range(23)
    ),
]
INSTRUCTIONS = {
    "LAMP000001": {
        "attributes": ["easy clean", "brass"],
        "instruction": "Find me a lamp",
        "instruction_attributes": ["easy clean"],
    },
    "LAMP000002": {
        "attributes": ["copper"],
        "instruction": "Find me copper",
        "instruction_attributes": ["copper"],
    },
    "POT0000001": {"attributes": []},
}
HUMAN = {
    "LAMP000001": [
        {
            "instruction": "i want a red lamp.",
            "instruction_attributes": ["brass"],
            "instruction_options": ["red", "large"],
        },
        {"instruction": "nothing asked", "instruction_attributes": [], "instruction_options": []},
    ]
}


def write_files(
    folder: Path, items: Any = ITEMS, instructions: Any = INSTRUCTIONS, human: Any = HUMAN
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("items", items), ("instructions", instructions), ("human_goals", human)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def open_mini(folder: Path) -> Catalogue:
    compile_catalogue(read_products(write_files(folder / "files")), folder / "catalogue")
    return Catalogue(folder / "catalogue")


def goal(**changes: Any) -> ShopGoal:
    settings = {
        "task_id": "LAMP000001/0",
        "asin": "LAMP000001",
        "category": "garden",
        "query": "garden lamps",
        "name": "Brass Garden Lamp",
        "product_category": "Home › Lighting › Lamps",
        "goal": "Find me a lamp with color: red, and size: xx-large, and price lower than 20.00 dollars",
        "attributes": ("easy clean",),
        "price_upper": 20.0,
        "options": (("color", "red"), ("size", "xx-large")),
    }
    return ShopGoal(**{**settings, **changes})
