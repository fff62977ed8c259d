"""The scripted expert of the shop: it reads the page, meets goals when careful, and says what it does."""

import pytest

from threespo.envs.episode import EpisodeSetup, start_episode, take_action
from threespo.envs.webshop import Catalogue, WebShop
from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.imitation.webshop.curriculum import HASTY
from threespo.imitation.webshop.expert import CAREFUL, decide, wanted_words
from threespo.rng import generator


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """(setup, goals) of synthetic and of human goals."""
    found = {}
    for kind in ("synthetic", "human"):
        out = tmp_path_factory.mktemp(kind) / "shop"
        prepare_shop(out, read_shop_products("embedded", count=500), goals=kind)
        catalogue = Catalogue(out / "catalogue")
        found[kind] = EpisodeSetup(WebShop(catalogue), 15, 0), load_goals(out, "test", catalogue)[:100]
    return found


def play(setup, goal, faults=CAREFUL):
    rng, episode, turns = generator("shopper", goal.task_id), start_episode(setup, goal), []
    while not episode.done:
        decision = decide(episode, rng, faults)
        turns.append((episode, decision))
        episode = take_action(episode, decision.action)
    return episode, turns


@pytest.mark.parametrize(("kind", "score"), [("synthetic", 0.9), ("human", 0.9)])
def test_the_careful_expert_meets_goals_and_never_clicks_what_is_not_there(shop, kind, score):
    setup, goals = shop[kind]
    played = [play(setup, goal) for goal in goals]
    assert sum(episode.score for episode, _ in played) / len(goals) > score
    for _, turns in played:
        for episode, decision in turns:
            allowed = setup.env.admissible(episode.state)
            assert decision.action in allowed or (
                decision.action.startswith("search[") and allowed[0].startswith("search[")
            )


def test_haste_costs_wins(shop):
    setup, goals = shop["synthetic"]
    careful, in_haste = (
        sum(play(setup, goal, faults)[0].won for goal in goals) for faults in (CAREFUL, HASTY)
    )
    assert in_haste < 0.3 * careful


def test_the_thought_names_what_is_clicked(shop):
    setup, goals = shop["synthetic"]
    for goal in goals[:20]:
        for _, decision in play(setup, goal)[1]:
            head, reason = decision.thought.split(" ", 1)
            assert head == wanted_words(goal.goal).split()[-1]
            if decision.action.startswith("click[") and decision.action not in (
                "click[buy now]",
                "click[back to search]",
            ):
                assert reason == f"'{decision.action[len('click[') : -1]}'"


def test_a_short_memory_is_enough(shop):
    """Nearly all that it does follows from goal and page alone; it looks back only before it leaves a doubtful page."""
    setup, goals = shop["synthetic"]
    turns = [turn for goal in goals for turn in play(setup, goal)[1]]
    again = [
        decide(type(one)(setup, one.task, one.state), generator(0), CAREFUL).action for one, _ in turns
    ]
    different = [
        action for action, (_, decision) in zip(again, turns, strict=True) if action != decision.action
    ]
    assert len(different) < 0.02 * len(turns)
    assert set(different) <= {"click[back to search]"}


def test_it_recovers_from_a_bad_search_and_from_a_wrong_product(shop):
    setup, goals = shop["synthetic"]
    goal = next(goal for goal in goals if wanted_words(goal.goal).endswith("table lamp"))
    lost = take_action(start_episode(setup, goal), "search[salad dressing]")
    wrong = take_action(
        lost,
        next(action for action in setup.env.admissible(lost.state) if action.startswith("click[e0")),
    )
    for episode in (lost, wrong):
        assert decide(episode, generator(0)).action == "click[back to search]"


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (
            "Find me hand made bar stool with color: red, and pack: pack of 2, and price lower than 9.00 dollars",
            "find me hand made bar stool",
        ),
        ("Find me Bar Stool, and price lower than 40.00 dollars", "find me bar stool"),
        ("a [red] lamp, and price lower than 9.5 dollars", "a red lamp"),
        ("a lamp and price lower than 9.9.9 dollars", "a lamp and price lower than 9.9.9 dollars"),
        (
            "i need a bar stool, the red one, and price lower than 9.00 dollars",
            "i need a bar stool, the red one",
        ),
    ],
)
def test_what_is_wanted_leaves_out_options_and_price(goal, words):
    assert wanted_words(goal) == words
