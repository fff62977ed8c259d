"""How results in WebShop are named and explained."""

from threespo.envs.spec import Presentation
from threespo.envs.webshop.settings import WebshopSettings


def _describe(shop: WebshopSettings) -> str:
    goals = "goals that people wrote" if shop.goal_kind == "human" else "goals made of products' options"
    if shop.source == "embedded":
        return (
            f"a generated catalogue of {shop.products:,} products in WebShop's pages and rules, {goals}"
        )
    return f"WebShop's own products, {goals}" + ("" if shop.source == "official" else ", from a folder")


def _caveats(shop: WebshopSettings) -> list[str]:
    known = []
    if shop.source == "embedded":
        known.append(
            "The shop's catalogue is generated here, and its goals with it. Pages, search and rewards are WebShop's, the "
            "products are not; the same study runs on the real product files with --config webshop=DIR."
        )
    if shop.fidelity == "repaired":
        known.append(
            "The shop is the repaired one: without the quirks of the original's environment, which decide some rewards "
            "(docs/webshop.md lists them). Scores are not comparable one to one with those of the original."
        )
    if shop.goals_order == "original":
        known.append(
            "Test goals are those of the released code: nearly all of them are training goals as well, many with another "
            "price bound (manifest.json of the shop's data counts them). So WebShop's score and success are not those of "
            "unseen goals."
        )
    return known


PRESENTATION = Presentation(
    label="WebShop",
    measures=("score", "success"),
    labels={"test": "test goals", "score": "task score"},
    task_types="WebShop's are the categories of its products.",
    describe=_describe,
    caveats=_caveats,
    cluster=lambda goal: goal.partition("/")[0],  # ASIN/NUMBER: goals of one product
)
