"""Replay reference episodes of the shop."""

from pathlib import Path
from typing import Any

from threespo.envs.webshop import Catalogue, ShopState, WebShop
from threespo.envs.webshop.goals import make_original_goals
from threespo.envs.webshop.nouns import pattern_nouns
from threespo.envs.webshop.pages import SEPARATOR
from threespo.envs.webshop.reward import Nouns
from threespo.errors import InputError
from threespo.verify import Report, read_cases, timed_report
from threespo.verify.shop import listed_actions, open_catalogue, product_number, reference_goal

# Words of the page address in a query confuse the original's pages, down to a "Page 0"; this is not copied.
_EXCLUDED_KIND = "edge_url"


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare observation, anchor, admissible actions, reward and end at every step of every episode of ``file``.

    Episodes of kind ``edge_url`` are excluded, and counted in ``details``. Episodes that differ only in which products a
    result page lists are no mismatches, and are counted there too. Titles' nouns are the reference's, where it has them.

    Args:
        file: episodes, one a line: the environment's seed, the goal, and what it showed at each step.
        catalogue: folder of the original's JSON files, with the products of the reference.

    Raises:
        InputError: if the file is broken, or ``catalogue`` is not given or lacks a product.
    """
    excluded = ranking_only = same_goals = 0
    with timed_report("webshop") as report, open_catalogue(catalogue) as shop:
        # The goals of each seed, which the original draws in one go; many episodes share a seed.
        drawn: dict[tuple[int, bool], list[str]] = {}
        for case in read_cases(
            file, ("kind", "env_seed", "human_goals", "goal_index", "goal", "steps", "reward_details")
        ):
            if case["kind"] == _EXCLUDED_KIND:
                excluded += 1
                continue

            key = (int(case["env_seed"]), bool(case["human_goals"]))
            if key not in drawn:
                drawn[key] = [goal.goal for goal in make_original_goals(shop, *key)[0]]
            same_goals += drawn[key][case["goal_index"]] == case["goal"]["instruction_text"]

            differs = _difference(case, shop, file)
            ranking_only += differs == "ranking"
            report.add_case(differs != "other")

        report.details = {
            "excluded_edge_url": excluded,
            "ranking_only": ranking_only,
            "goals_drawn_alike": same_goals,
        }
    return report


def _difference(case: dict[str, Any], shop: Catalogue, file: Path) -> str:
    """Return "" for an equal episode, "ranking" if the first difference is in a ranking only, and "other"."""
    required = {"action", "observation", "anchor", "available_actions", "reward", "done"}
    env = WebShop(shop, fidelity="original", price_seed=case["env_seed"], nouns=_nouns(case, shop))
    state = env.initial(reference_goal(case["goal"]))
    for index, step in enumerate(case["steps"]):
        missing = required - step.keys()
        if missing or (step["action"] is None) != (index == 0):
            raise InputError(
                f"{file}: step {index} of an episode is malformed (expected action, observation, …)"
            )

        if index:
            state = env.step(state, step["action"]).state
        if not _equal(env, state, step):
            # Only the first difference counts: after another list of products the same clicks lead elsewhere.
            is_ranking = state.kind == "results" and _same_frame(state.page, step["observation"])
            return "ranking" if is_ranking else "other"
    return ""


def _equal(env: WebShop, state: ShopState, step: dict[str, Any]) -> bool:
    found = (state.page, state.observation, list(env.admissible(state)), state.score, state.done)
    expected = (
        step["observation"],
        step["anchor"],
        listed_actions(step["available_actions"]),
        step["reward"] or 0.0,
        bool(step["done"]),
    )
    # The page after a purchase; the original's lists no actions there either, where the reference has it.
    after_end = step.get("available_actions_done_page")
    return found == expected and (after_end is None or listed_actions(after_end) == [])


def _same_frame(page: str, expected: str) -> bool:
    """Return whether two result pages differ in their products alone; each product has three parts."""
    # A page is the instruction, "Back to Search", the number of the page and of results, then the products.
    button = f"{SEPARATOR}Back to Search{SEPARATOR}"
    found_parts = page.split(button, 1)
    expected_parts = expected.split(button, 1)
    if found_parts[0] != expected_parts[0] or len(found_parts) != len(expected_parts):
        return False

    found_list = found_parts[-1].split(SEPARATOR)
    expected_list = expected_parts[-1].split(SEPARATOR)
    return len(found_list) == len(expected_list) and found_list[0] == expected_list[0]


def _nouns(case: dict[str, Any], shop: Catalogue) -> Nouns:
    # Only a purchase has nouns in the reference; other episodes never ask for any.
    bought = case["reward_details"]
    if not bought:
        return pattern_nouns
    title = shop.head(product_number(shop, bought["asin"]))[1]
    given = {case["goal"]["name"]: bought["goal_nouns"], title: bought["purchased_nouns"]}
    return lambda text: given[text] if text in given else pattern_nouns(text)
