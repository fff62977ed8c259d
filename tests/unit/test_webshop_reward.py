"""The reward by hand, and the matching of options with and without the original's mistake."""

import pytest

from tests.webshop_mini import goal
from threespo.envs.webshop.matching import (
    COLOURS,
    count_matched_options,
    count_named_options,
    is_similar,
    main_colour,
    same_words,
)
from threespo.envs.webshop.nouns import make_nouns, pattern_nouns, split_words
from threespo.envs.webshop.products import Product
from threespo.envs.webshop.reward import purchase_reward
from threespo.errors import InputError

RED_LARGE = (("color", "red"), ("size", "large"))
RIGHT = (("color", "red"), ("size", "xx-large"))


def product(**changes):
    settings = {
        "asin": "LAMP000001",
        "title": "Brass Garden Lamp",
        "price_tag": "$12.5",
        "prices": (12.5,),
        "category": "garden",
        "query": "garden lamps",
        "product_category": "Home › Lighting › Lamps",
        "description": "Made for rainy days",
        "bullets": ("Long lasting",),
        "options": (),
        "attributes": ("easy clean",),
    }
    return Product(**{**settings, **changes})


def nouns(title):
    return title.lower().split()


def test_the_right_purchase_has_the_full_reward():
    for repaired in (False, True):
        assert purchase_reward(product(), 12.5, RIGHT, goal(), nouns, repaired=repaired).total == 1.0


def test_large_passes_for_xx_large_in_the_original_alone():
    assert purchase_reward(product(), 12.5, RED_LARGE, goal(), nouns, repaired=False).total == 1.0
    assert purchase_reward(product(), 12.5, RED_LARGE, goal(), nouns, repaired=True).total == 0.75


def test_parts_add_up():
    found = purchase_reward(
        product(), 30.0, (), goal(attributes=("easy clean", "waterproof")), nouns, repaired=True
    )
    assert (found.r_att, found.r_option, found.r_price, found.r_type) == (0.5, 0.0, False, 1.0)
    assert found.total == 1 / 5
    assert purchase_reward(product(), 12.5, (), goal(options=()), nouns, repaired=True).r_option is None


@pytest.mark.parametrize("attribute", ["long lasting", "rainy days", "brass", "clean easy"])
def test_an_attribute_is_found_in_list_title_bullets_or_description(attribute):
    assert (
        purchase_reward(product(), 1.0, (), goal(attributes=(attribute,)), nouns, repaired=True).r_att
        == 1.0
    )


@pytest.mark.parametrize(
    ("title", "related", "r_type"),
    [
        ("Brass Garden Lamp", False, 1.0),
        ("Wooden Chair", True, 0.0),
        ("Garden x", True, 1.0),
        ("Garden", False, 0.5),
        ("Garden", True, 1.0),
    ],
)
def test_type(title, related, r_type):
    name = "Garden a b c d e f g h" if title == "Garden" else "Brass Garden Lamp"
    other = {} if related else {"query": "chairs", "product_category": "Furniture › Chairs"}
    assert (
        purchase_reward(
            product(title=title, **other), 1.0, RIGHT, goal(name=name), nouns, repaired=True
        ).r_type
        == r_type
    )


def test_below_a_tenth_of_the_nouns_a_tenth_of_the_reward_is_left():
    name = "Lamp " + " ".join("abcdefghijk")
    assert (
        purchase_reward(product(title="Lamp"), 1.0, RIGHT, goal(name=name), nouns, repaired=True).r_type
        == 0.1
    )


def test_texts_are_compared_by_their_words():
    assert is_similar("4x-large", "Large 4X")
    assert is_similar("large", "xx large")
    assert not is_similar("", "")
    assert not is_similar("red", "green")
    assert is_similar("d\u00e9cor", "dcor"), "characters from U+0080 to U+00FF are dropped"
    assert same_words("a | b", "A/b")
    assert not same_words("large", "x large")


def test_colours():
    assert len(COLOURS) == 102
    assert main_colour("navy blue") == "blue"
    assert main_colour("7 ft") == "7 ft"


def test_options_of_people_are_values_alone():
    assert count_matched_options(["red", "10.5"], ["dark red", "10.5"]) == 1
    assert count_named_options((("shade", "dark red"), ("size", "10.5")), ["dark red", "10.5"]) == 2
    assert count_named_options((("width", "10.5"),), [("size", "10.5")]) == 0


def test_nouns_of_titles():
    assert pattern_nouns("Wooden Table Lamp for the Bedroom") == ("table", "lamp", "bedroom")
    assert split_words("Men's 3-Light T-Shirt, 5oz (Blue)") == (
        ["Men", "'s", "3", "-", "Light", "T", "-", "Shirt", ",", "5", "oz", "(", "Blue", ")"]
    )


def test_a_missing_model_is_named():
    with pytest.raises(InputError, match="no_such_model"):
        make_nouns("no_such_model")
