"""Words of the embedded shop: what it sells, in which variants, and how its customers ask."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of product."""

    name: str
    category: str
    query: str
    path: str
    options: tuple[str, ...]
    """Names of its option groups."""
    prices: tuple[int, int]


class Department(NamedTuple):
    """A category with its kinds of products and what these can be like."""

    path: str
    kinds: str
    """A line each: name | plural for the search query | section | option groups | lowest and highest price."""
    attributes: str
    materials: str


DEPARTMENTS = {
    "beauty": Department(
        "Beauty & Personal Care",
        """
        body lotion | body lotions | Skin Care | scent, size | 6 40
        face cream | face creams | Skin Care | size | 9 80
        hair mask | hair masks | Hair Care | scent, size | 8 45
        shampoo bar | shampoo bars | Hair Care | scent | 5 22
        lip balm | lip balms | Makeup | scent, pack | 3 18
        makeup brush set | makeup brushes | Tools | color, pack | 9 70
        nail polish | nail polishes | Hands & Nails | color | 4 16
        hand cream | hand creams | Skin Care | scent, size | 5 25
        bath salt jar | bath salts | Bath | scent, size | 7 35
        hair dryer | hair dryers | Tools | color | 19 190
        shaving kit | shaving kits | Shaving | color, pack | 12 90
        eye shadow palette | eye shadow palettes | Makeup | color | 8 55
        """,
        "cruelty free, paraben free, fragrance free, oil free, long lasting, fast absorbing, alcohol free, "
        "dermatologist tested, easy use, travel size, certified organic, deep cleaning, anti aging, high quality, "
        "leak proof, non toxic",
        "shea butter, coconut oil, aloe vera, argan oil, bamboo charcoal, green tea, sea minerals, oat milk",
    ),
    "electronics": Department(
        "Electronics",
        """
        bluetooth speaker | portable speakers | Audio | color | 15 180
        phone case | phone cases | Cell Phones | color, model | 6 45
        charging cable | charging cables | Accessories | color, length | 4 30
        wireless mouse | computer mice | Computers | color | 9 75
        camera tripod | tripods | Cameras | color, length | 14 130
        headphone set | headphones | Audio | color | 12 240
        screen protector | screen protectors | Cell Phones | model, pack | 4 25
        power bank | power banks | Accessories | color, capacity | 14 90
        tablet stand | tablet stands | Computers | color | 8 50
        security camera | security cameras | Cameras | color, pack | 24 260
        memory card | memory cards | Cameras | capacity, pack | 7 110
        alarm clock radio | clock radios | Audio | color | 11 70
        """,
        "fast charging, wireless charging, high speed, easy install, heavy duty, hands free, noise cancelling, water "
        "resistant, plug play, high definition, non slip, light weight, long lasting, ultra slim, batteries included, "
        "easy carry",
        "aluminum alloy, tempered glass, carbon fiber, soft silicone, stainless steel, braided nylon, matte plastic, "
        "oak veneer",
    ),
    "garden": Department(
        "Home & Kitchen",
        """
        table lamp | table lamps | Lighting | color | 18 160
        area rug | area rugs | Floors | color, dimensions | 22 320
        storage basket | storage baskets | Storage | color, pack | 9 60
        throw pillow | throw pillows | Bedding | color, dimensions | 7 45
        bookshelf | bookcases | Furniture | color | 39 290
        bar stool | bar stools | Furniture | color, pack | 35 260
        wall mirror | wall mirrors | Decor | color, dimensions | 18 210
        shower curtain | shower curtains | Bath Linen | color, dimensions | 9 50
        coffee table | coffee tables | Furniture | color | 49 380
        plant pot | plant pots | Outdoor | color, pack | 8 65
        window blind | window blinds | Decor | color, dimensions | 15 120
        bed frame | bed frames | Furniture | color, bed size | 89 640
        """,
        "easy clean, easy assemble, space saving, double sided, scratch resistant, mid century, heavy duty, machine "
        "washable, eco friendly, wall mounted, height adjustable, non slip, fade resistant, hand made, fully "
        "assembled, assembly required",
        "solid wood, brushed nickel, woven cotton, clear glass, faux leather, natural rattan, powder coated steel, "
        "linen blend",
    ),
    "fashion": Department(
        "Clothing, Shoes & Accessories",
        """
        hooded sweatshirt | hoodies | Tops | color, size | 16 85
        running shoe | running shoes | Shoes | color, shoe size | 29 170
        summer dress | dresses | Dresses | color, size | 15 95
        rain jacket | jackets | Outerwear | color, size | 25 190
        leather belt | belts | Accessories | color, size | 9 60
        yoga pant | yoga pants | Bottoms | color, size | 14 75
        wool scarf | scarves | Accessories | color | 10 65
        polo shirt | polo shirts | Tops | color, size, fit type | 13 70
        swim short | swim shorts | Swimwear | color, size | 12 55
        ankle boot | ankle boots | Shoes | color, shoe size | 32 220
        pajama set | pajamas | Sleepwear | color, size | 17 80
        denim jean | jeans | Bottoms | color, size, fit type | 19 120
        """,
        "machine wash, hand wash, slim fit, loose fit, relaxed fit, long sleeve, short sleeve, elastic waist, button "
        "closure, rubber sole, moisture wicking, quick drying, daily wear, stretch fabric, winter warm, unique design",
        "polyester spandex, organic cotton, merino wool, soft fleece, recycled nylon, faux suede, cotton denim, "
        "bamboo viscose",
    ),
    "grocery": Department(
        "Grocery & Gourmet Food",
        """
        protein bar | protein bars | Snacks | flavor name, pack | 8 45
        ground coffee bag | coffee | Drinks | flavor name, size | 7 38
        herbal tea box | herbal teas | Drinks | flavor name, pack | 5 28
        trail mix | trail mixes | Snacks | flavor name, size | 6 34
        pasta sauce | pasta sauces | Pantry | flavor name, size | 4 22
        dark chocolate bar | chocolate bars | Sweets | flavor name, pack | 4 40
        breakfast granola | granolas | Breakfast | flavor name, size | 6 30
        fruit jam | jams | Pantry | flavor name, size | 4 20
        potato chip bag | potato chips | Snacks | flavor name, pack | 5 33
        salad dressing | salad dressings | Pantry | flavor name, size | 4 19
        sparkling water case | sparkling waters | Drinks | flavor name, pack | 6 36
        rice cracker | crackers | Snacks | flavor name, size | 4 24
        """,
        "gluten free, dairy free, sugar free, low sodium, low carb, high protein, non gmo, plant based, soy free, nut "
        "free, keto friendly, low fat, shelf stable, kosher certified, slow roasted, individually wrapped",
        "whole oats, roasted almonds, brown rice, sea salt, cane sugar, sunflower oil, cocoa butter, dried cranberries",
    ),
}

OPTION_VALUES = {
    "color": "black, white, navy, red, green, gray, pink, purple, beige, teal, orange, brown, yellow, ivory, charcoal, "
    "burgundy",
    "size": "small, medium, large, x-large, xx-large, 3x-large",
    "shoe size": "6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5, 10, 11",
    "fit type": "men, women, youth",
    "bed size": "twin, full, queen, king",
    "dimensions": "12 x 12 in, 18 x 18 in, 20 x 30 in, 24 x 36 in, 36 x 60 in, 48 x 72 in, 60 x 84 in, 72 x 96 in",
    "pack": "pack of 1, pack of 2, pack of 3, pack of 4, pack of 6, pack of 12",
    "scent": "lavender, vanilla, citrus, basil, cedar, jasmine, eucalyptus, unscented",
    "flavor name": "vanilla, peanut butter, sea salt, raspberry, maple, hazelnut, lemon, ginger, cinnamon, original",
    "model": "model a12, model a32, model s20, model s21, model x10, model x11",
    "length": "3 feet, 6 feet, 10 feet, 15 feet",
    "capacity": "32 gb, 64 gb, 128 gb, 256 gb",
}
# Sizes of what is poured rather than worn.
PORTIONS = "2 ounce, 4 ounce, 8 ounce, 12 ounce, 16 ounce, 32 ounce"
WORN = "fashion"

ASKING = (
    "i am looking for {a_brand} {kind} that is {first} and {second}{options}.",
    "please find me {a_kind} from {brand}. it should be {first} and also {second}{options}.",
    "i need {a_brand} {kind}{options}. it has to be {first} and {second}.",
    "could you get me {a_kind} made by {brand}? {first} and {second} matter to me{options}.",
    "show me something {first}: {a_brand} {kind}{options}, also {second}.",
    "my old {kind} broke, so i want to buy one by {brand} which is {first} and {second}{options}.",
    "looking for {brand}, {a_kind}{options}, {first}, {second}.",
    "for a gift i want {a_kind} by {brand}{options} that is {first} and {second}.",
)
ASKING_FOR_ANY_BRAND = (
    "i am looking for {a_kind} that is {first} and {second}{options}.",
    "please find me {a_kind}. it should be {first} and also {second}{options}.",
    "i need {a_kind}{options}. it has to be {first} and {second}.",
    "could you get me {a_kind}? {first} and {second} matter to me{options}.",
    "show me something {first}: {a_kind}{options}, also {second}.",
    "my old {kind} broke, so i want to buy one which is {first} and {second}{options}.",
    "looking for {a_kind}{options}, {first}, {second}.",
    "for a gift i want {a_kind}{options} that is {first} and {second}.",
)
WITH_OPTIONS = (
    ", in {options}",
    ", {options} please",
    ", the {options} one",
    " and i would like {options}",
)

OPENINGS = (
    "br",
    "cal",
    "dor",
    "el",
    "fen",
    "gal",
    "hal",
    "jo",
    "kel",
    "lum",
    "mar",
    "nor",
    "ol",
    "pel",
    "quin",
    "ros",
    "sel",
)
MIDDLES = ("a", "e", "i", "o", "u", "ave", "eri", "ila", "ono", "ura", "ani", "eto")
ENDINGS = (
    "bex",
    "dane",
    "fix",
    "gro",
    "kin",
    "lo",
    "mora",
    "nta",
    "pra",
    "ria",
    "sko",
    "tell",
    "va",
    "wick",
    "xa",
    "zen",
)
