"""The reward of a purchase: its type, attributes, options and price against the goal's."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from threespo.envs.webshop.goals import ShopGoal
from threespo.envs.webshop.matching import count_matched_options, count_named_options, is_similar
from threespo.envs.webshop.products import Product

Nouns = Callable[[str], Sequence[str]]
"""From a title to its nouns and proper nouns in lower case, repeated ones included."""

# The original's score where the wanted title has no noun. It is not above the 0.2 that makes a title count as related.
_TITLE_WITHOUT_NOUNS = 0.2


class Reward(NamedTuple):
    """A reward in [0, 1] with its parts; shares of no options are None."""

    total: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float


def purchase_reward(
    product: Product,
    price: float,
    chosen: Sequence[tuple[str, str]],
    goal: ShopGoal,
    nouns: Nouns,
    *,
    repaired: bool,
) -> Reward:
    """Return the reward for a purchase.

    Args:
        product: what is bought.
        price: its price, in dollars.
        chosen: its options as they are chosen, (name, value) pairs.
        goal: what was wanted.
        nouns: finds the nouns of titles.
        repaired: compare options by name and words, not as the original does (docs/webshop.md).
    """
    attributes = _matched_attributes(product, goal.attributes)
    if repaired:
        options = count_named_options(chosen, goal.options)
    else:
        options = count_matched_options((value for _, value in chosen), goal.options)

    affordable = price <= goal.price_upper
    # Attributes, options and price weigh one each; the type multiplies the whole (WebShop's get_reward).
    wishes = len(goal.attributes) + len(goal.options) + 1

    query_match = product.query == goal.query
    # Two common parts of the category path, as in the original: the first part alone is a whole department.
    shared_categories = _categories(product.product_category) & _categories(goal.product_category)
    category_match = len(shared_categories) >= 2
    title_score = _title_score(nouns(product.title), nouns(goal.name))
    r_type = _type(query_match or category_match, title_score)

    return Reward(
        total=(attributes + options + affordable) / wishes * r_type,
        r_type=r_type,
        r_att=attributes / len(goal.attributes),
        r_option=options / len(goal.options) if goal.options else None,
        r_price=affordable,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
    )


def _type(related: bool, title_score: float) -> float:
    # The original overwrites from above: too few common nouns count more than a matching query or category.
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if related or title_score > 0.2 else 0.5


def _title_score(bought: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the share of the wanted title's nouns in the bought one's; repeated nouns count in the divisor only."""
    if not wanted:
        return _TITLE_WITHOUT_NOUNS
    return len(set(bought) & set(wanted)) / len(wanted)


def _matched_attributes(product: Product, wanted: Sequence[str]) -> int:
    # The original compares with the product's attributes first, and only then looks for the words in its texts.
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(is_similar(attribute, wish) for attribute in product.attributes)
        or any(wish in text for text in texts)
        for wish in wanted
    )


def _categories(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}
