"""Replay reference rewards of purchases: the reward and all its parts."""

from pathlib import Path

from threespo.envs.webshop.nouns import pattern_nouns
from threespo.envs.webshop.reward import purchase_reward
from threespo.verify import Report, read_cases, timed_report
from threespo.verify.shop import open_catalogue, product_number, reference_goal

_PARTS = (
    "reward",
    "r_type",
    "r_att",
    "r_option",
    "r_price",
    "query_match",
    "category_match",
    "title_score",
)


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare the rewards of ``file``.

    Rewards are computed with the nouns that the rows give. ``details`` has the share of rewards that are also equal with our
    own nouns.

    Args:
        file: purchases, one a line: goal, product, chosen options, price, nouns, and the reward with its parts.
        catalogue: folder of the original's JSON files, with the products of the reference.

    Raises:
        InputError: if the file is broken, or ``catalogue`` is not given or lacks a product.
    """
    equal_with_own_nouns = 0
    with timed_report("reward") as report, open_catalogue(catalogue) as shop:
        for case in read_cases(
            file, ("goal", "asin", "options", "price", "purchased_nouns", "goal_nouns", *_PARTS)
        ):
            goal = reference_goal(case["goal"])
            product = shop.product(product_number(shop, case["asin"]))
            chosen = tuple(case["options"].items())

            # The original finds nouns with a spaCy model. With its nouns given, all else of the reward must be equal;
            # how often our own nouns change it is a number of its own. ``repaired=False``: options are compared as
            # the original does it (docs/webshop.md).
            given = {goal.name: case["goal_nouns"], product.title: case["purchased_nouns"]}
            found = purchase_reward(
                product, case["price"], chosen, goal, given.__getitem__, repaired=False
            )
            with_own_nouns = purchase_reward(
                product, case["price"], chosen, goal, pattern_nouns, repaired=False
            )
            equal_with_own_nouns += with_own_nouns.total == case["reward"]

            expected = tuple(case[part] for part in _PARTS)
            report.add_case(tuple(found) == expected, abs(found.total - case["reward"]))
        if report.cases:
            report.details = {"equal_with_own_nouns": equal_with_own_nouns / report.cases}
    return report
