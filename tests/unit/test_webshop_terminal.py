"""The shop's pages as a person reads them: all that can be clicked is there, in brackets, and what is chosen is marked."""

import re

import pytest

from threespo.envs.webshop import Catalogue, WebShop
from threespo.envs.webshop.catalogue import compile_catalogue
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.splits import split_goals
from threespo.envs.webshop.terminal import WIDTH, page_for_person


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop") / "catalogue"
    compile_catalogue(generate(500, 7), folder)
    return WebShop(Catalogue(folder))


def test_every_page_has_all_that_can_be_clicked_and_what_is_chosen(shop):
    goal = split_goals(shop.catalogue, False, 0).train[0]
    state, kinds = shop.initial(goal), []
    way = iter(
        ["search[lamp]", "product", "option", "click[features]", "click[< prev]", "click[buy now]"]
    )
    while not state.done:
        shown = page_for_person(shop, state)
        brackets = {
            text.strip("*").lower() for text in re.findall(r"\[([^\]]+)\]", " ".join(shown.split()))
        }
        clickable = {action[6:-1] for action in shop.admissible(state) if action.startswith("click[")}
        assert brackets == clickable, state.kind
        assert max(map(len, shown.splitlines())) <= WIDTH
        marked = re.findall(r"\[\*([^\]]+)\]", shown)
        # Features and descriptions have no options to mark.
        assert marked == [value for _, value in state.chosen if state.kind == "item"]

        kinds.append(state.kind)
        page, action = shop.page(state), next(way)
        if action in ("product", "option"):
            action = f"click[{next(iter(page.products if action == 'product' else page.options))}]"
        state = shop.step(state, action).state
    assert kinds == ["index", "results", "item", "item", "features", "item"]
    bought = page_for_person(shop, state)
    assert bought.startswith(f"Bought [{shop.catalogue.head(state.product)[0]}]")
    assert state.chosen[0][1] in bought
