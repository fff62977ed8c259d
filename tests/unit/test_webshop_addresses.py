"""Mode ``url``: addresses as ``SimServer`` writes them (``web_agent_site/envs/web_agent_text_env.py`` of the original).

The original is not run here. The cases are derived by hand from its methods ``index``, ``search_results``, ``item_page``,
``item_sub_page`` and ``done``; walks are compared with a model of the session that these methods keep.
"""

import json
import pickle
import random

import pytest

from tests.webshop_mini import goal, open_mini
from threespo.envs.webshop import WebShop
from threespo.errors import InputError
from threespo.gym import WebShopEnv

HOST = "http://127.0.0.1:3000"


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    return open_mini(tmp_path_factory.mktemp("mini"))


@pytest.fixture(params=["original", "repaired"])
def shop(request, catalogue):
    return WebShop(catalogue, fidelity=request.param, mode="url", session="fixed_7")


def visit(shop, *actions):
    state = shop.initial(goal())
    for action in actions:
        state = shop.step(state, action).state
    return state


ITEM = ("search[Brass  Lamp?]", "click[lamp000001]")


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((), ""),
        (("search[lamp]",), "search_results/{}/lamp/1"),
        # Lower case; a + for each blank, two for two; nothing is quoted.
        (("search[Brass  Lamp?]",), "search_results/{}/brass++lamp?/1"),
        (("search[50% off & café/bar]",), "search_results/{}/50%+off+&+café/bar/1"),
        (("search[pot]", "click[next >]", "click[next >]", "click[< prev]"), "search_results/{}/pot/2"),
        (ITEM, "item_page/{}/LAMP000001/brass++lamp?/1/{{}}"),
        ((*ITEM, "click[red]"), 'item_page/{}/LAMP000001/brass++lamp?/1/{{"color": "red"}}'),
        # Names in the order of their first choice, values of the last one.
        (
            (*ITEM, "click[xx-large]", "click[red]", "click[large]"),
            'item_page/{}/LAMP000001/brass++lamp?/1/{{"size": "large", "color": "red"}}',
        ),
        (
            (*ITEM, "click[red | blue]"),
            'item_page/{}/LAMP000001/brass++lamp?/1/{{"color": "red | blue"}}',
        ),
        ((*ITEM, "click[features]"), "item_sub_page/{}/LAMP000001/brass++lamp?/1/Features/{{}}"),
        (
            (*ITEM, "click[large]", "click[red]", "click[description]"),
            "item_sub_page/{}/LAMP000001/brass++lamp?/1/Description/{{'size': 'large', 'color': 'red'}}",
        ),
        (
            (*ITEM, "click[red]", "click[reviews]", "click[< prev]"),
            'item_page/{}/LAMP000001/brass++lamp?/1/{{"color": "red"}}',
        ),
        ((*ITEM, "click[red]", "click[< prev]"), "search_results/{}/brass++lamp?/1"),
        ((*ITEM, "click[red]", "click[back to search]"), ""),
        ((*ITEM, "click[red]", "click[buy now]"), "done/{}/LAMP000001/{{'color': 'red'}}"),
        ((*ITEM, "click[nothing]", "look"), "item_page/{}/LAMP000001/brass++lamp?/1/{{}}"),
    ],
)
def test_addresses_are_the_originals(shop, actions, expected):
    state = visit(shop, *actions)
    address = f"{HOST}/{expected}".format("fixed_7") if expected else f"{HOST}/fixed_7"
    assert state.observation == state.page == state.anchor == address


class Session:
    """What the original keeps of an episode, and the address that follows: written from its methods, one dictionary."""

    def __init__(self):
        self.kept, self.address = {"options": {}}, f"{HOST}/fixed_7"

    def act(self, action, page):
        verb, argument = action[:-1].split("[", 1)
        kept = self.kept
        if verb == "search":
            self.search(argument.lower().split(" "), 1)
        elif argument == "back to search":
            self.__init__()
        elif argument in ("next >", "< prev") and "search_results" in self.address:
            self.search(kept["keywords"], kept["page"] + (1 if argument == "next >" else -1))
        elif argument == "< prev" and "item_page" in self.address:
            self.search(kept["keywords"], kept["page"])
        elif argument == "buy now":
            self.address = f"{HOST}/done/fixed_7/{kept['asin']}/{kept['options']}"
        elif argument in ("description", "features", "reviews"):
            words = f"{'+'.join(kept['keywords'])}/{kept['page']}"
            self.address = f"{HOST}/item_sub_page/fixed_7/{kept['asin']}/{words}/{argument.title()}/{kept['options']}"
        elif argument != "search":
            if argument in page.products:
                kept["asin"] = argument.upper()
            elif argument in page.options:
                kept["options"][page.options[argument][-1].lower()] = argument
            words = f"{'+'.join(kept['keywords'])}/{kept['page']}"
            self.address = (
                f"{HOST}/item_page/fixed_7/{kept['asin']}/{words}/{json.dumps(kept['options'])}"
            )

    def search(self, keywords, page):
        self.kept = {"keywords": keywords, "page": page, "options": {}}
        self.address = f"{HOST}/search_results/fixed_7/{'+'.join(keywords)}/{page}"


def test_walks_have_the_addresses_of_the_originals_session(catalogue):
    """And the same actions, products and rewards as in mode ``text``."""
    shop, plain = (
        WebShop(catalogue, fidelity="original", mode=mode, session="fixed_7") for mode in ("url", "text")
    )
    source, kinds = random.Random(5), set()
    for _ in range(120):
        session, state, other = Session(), shop.initial(goal()), plain.initial(goal())
        while not state.done and source.random() > 0.02:
            assert shop.admissible(state) == plain.admissible(other)
            listed = [
                one
                for one in shop.admissible(state)
                if one != "click[back to search]" or source.random() < 0.2
            ]
            action = source.choice(listed).replace(
                "<your query>", source.choice(["lamp", "brass lamp", "Pot"])
            )
            session.act(action, shop.page(state))
            state, other = shop.step(state, action).state, plain.step(other, action).state
            assert state.observation == session.address
            assert (state.kind, state.product, dict(state.chosen), state.score) == (
                other.kind,
                other.product,
                dict(other.chosen),
                other.score,
            )
            kinds.add(state.kind)
    assert kinds == {"index", "results", "item", "description", "features", "reviews", "done"}


def test_the_repaired_shop_rewards_as_in_mode_text(catalogue):
    way = (*ITEM, "click[xx-large]", "click[red]", "click[buy now]")
    shops = [WebShop(catalogue, mode=mode) for mode in ("text", "url")]
    assert visit(shops[0], *way).score == visit(shops[1], *way).score == 1.0


def test_a_session_has_a_name_and_travels_with_the_shop(shop, catalogue):
    state = visit(shop, *ITEM, "click[red]")
    there, point = pickle.loads(pickle.dumps((shop, state)))
    assert (
        there.step(point, "click[reviews]").state.page == shop.step(state, "click[reviews]").state.page
    )
    assert visit(WebShop(catalogue, mode="url")).page == f"{HOST}/threespo"
    for session in ("", 3, None):
        with pytest.raises(InputError, match=r"'session' is .*expected a text that is not empty"):
            WebShop(catalogue, mode="url", session=session)


def test_the_gymnasium_form_shows_addresses_and_keeps_them_in_bytes():
    env = WebShopEnv(split="test", mode="url", session="s1")
    assert env.reset(seed=0)[0] == f"{HOST}/s1"
    text, _, _, _, info = env.step("search[red lamp]")
    assert text == f"{HOST}/search_results/s1/red+lamp/1"
    chosen = next(command for command in info["admissible_commands"] if command.startswith("click[b"))
    point, after = env.dump(), env.step(chosen)[0]
    again = WebShopEnv(split="test", mode="url", session="s1")
    again.restore(point)
    assert again.step(chosen)[0] == after
    with pytest.raises(InputError, match="this environment is"):
        WebShopEnv(split="test", mode="url", session="s2").restore(point)
