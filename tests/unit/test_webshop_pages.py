"""Pages, actions and quirks on a small shop of hand-made products."""

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webshop_mini import goal, open_mini
from threespo.envs.webshop import WebShop
from threespo.errors import InputError


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    return open_mini(tmp_path_factory.mktemp("mini"))


@pytest.fixture(scope="module")
def shops(catalogue):
    return {
        (fidelity, mode): WebShop(catalogue, fidelity=fidelity, mode=mode)
        for fidelity in ("original", "repaired")
        for mode in ("text", "text_rich")
    }


@pytest.fixture
def original(shops):
    return shops["original", "text"]


@pytest.fixture
def repaired(shops):
    return shops["repaired", "text"]


def play(env, *actions, task=None):
    state = env.initial(task or goal())
    for action in actions:
        state = env.step(state, action).state
    return state


BUY_RED = ("search[lamp]", "click[lamp000001]", "click[red]", "click[xx-large]", "click[buy now]")


def test_start_page(original):
    state = play(original)
    assert state.page == f"WebShop [SEP] Instruction: [SEP] {goal().goal} [SEP] Search"
    assert state.observation == state.anchor == "'Search'"
    assert original.admissible(state) == ("search[<your query>]", "click[search]")
    assert play(original, "click[search]") == state


def test_results_page(original):
    state = play(original, "search[lamp]")
    assert state.observation.startswith(
        "'Back to Search' [SEP] 'Page 1 (Total results: 3)' [SEP] 'Next >' [SEP] '"
    )
    assert "'LAMP000002' [SEP] 'Copper Garden Lamp' [SEP] '$30.0 to $10.0'" in state.observation
    assert original.admissible(state)[:2] == ("click[back to search]", "click[next >]")


def test_item_page(original):
    state = play(original, "search[lamp]", "click[LAMP000001]")
    assert state.observation == (
        "'Back to Search' [SEP] '< Prev' [SEP] 'color' [SEP] 'red' [SEP] 'navy blue' [SEP] 'red | blue' [SEP] "
        "'size' [SEP] 'large' [SEP] 'xx-large' [SEP] 'Brass Garden Lamp' [SEP] 'Price: $12.5' [SEP] 'Rating: N.A.' [SEP] "
        "'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'"
    )


@pytest.mark.parametrize("fidelity", ["original", "repaired"])
def test_buying_the_right_thing_wins(shops, fidelity):
    env = shops[fidelity, "text"]
    state = play(env, *BUY_RED)
    assert (state.done, state.score, env.won(state)) == (True, 1.0, True)
    assert '{"color": "red", "size": "xx-large"}' in state.page
    assert env.step(state, "search[lamp]").state == state, "nothing follows a purchase"
    last = env.step(play(env, *BUY_RED[:-1]), BUY_RED[-1])
    assert (last.won, last.score, last.observation) == (True, 1, state.observation)


def test_a_purchase_can_end_without_a_win(repaired):
    state = play(repaired, "search[lamp]", "click[lamp000001]", "click[buy now]")
    assert (state.done, state.score, repaired.won(state)) == (True, 0.5, False)
    assert repaired.admissible(state) == ()


def test_the_original_lists_the_next_episodes_actions_after_a_purchase(original):
    assert original.admissible(play(original, *BUY_RED)) == ("search[<your query>]", "click[search]")


def test_choices_are_invisible_in_the_original_alone(shops):
    for fidelity, visible in (("original", False), ("repaired", True)):
        env = shops[fidelity, "text"]
        before = play(env, "search[lamp]", "click[lamp000001]")
        after = env.step(before, "click[red]").state
        assert (before.observation != after.observation) == visible
        assert before != after
        assert (
            "'Chosen: color: red'" in env.step(after, "click[features]").state.observation
        ) == visible


def test_text_rich_marks_what_was_chosen(shops):
    for fidelity in ("original", "repaired"):
        state = play(shops[fidelity, "text_rich"], "search[lamp]", "click[lamp000001]", "click[red]")
        assert state.page.startswith("You have clicked red.\nInstruction:\n")
        assert "  [clicked button] red [clicked button_]\n  [button] navy blue [button_]\n" in state.page
        assert state.observation in state.page.replace(f"Instruction:\n{goal().goal}\n", "")


def test_visited_products_are_marked_in_the_originals_text_rich(shops):
    way = ("search[lamp]", "click[lamp000001]", "click[< prev]")
    assert (
        "\n[clicked button] LAMP000001 [clicked button_]\n"
        in play(shops["original", "text_rich"], *way).page
    )
    assert "\n[button] LAMP000001 [button_]\n" in play(shops["repaired", "text_rich"], *way).page


def test_previous_keeps_choices_from_a_sub_page_and_drops_them_from_the_item(original):
    chosen = play(original, "search[lamp]", "click[lamp000001]", "click[red]")
    below = original.step(chosen, "click[description]").state
    assert below.observation == "'Back to Search' [SEP] '< Prev' [SEP] 'All about Brass Garden Lamp.'"
    assert original.step(below, "click[< prev]").state == chosen
    results = original.step(chosen, "click[< prev]").state
    assert (results.kind, results.chosen, results.query) == ("results", (), "lamp")


def test_next_has_no_end_in_the_original_and_one_in_the_repaired_shop(original, repaired):
    far = play(original, "search[clay]", *["click[next >]"] * 9)
    assert "'Page 10 (Total results: 23)' [SEP] '< Prev' [SEP] 'Next >'" in far.observation
    assert play(repaired, "search[clay]", *["click[next >]"] * 9).number == 3
    assert "Next >" not in play(repaired, "search[clay]", "click[next >]", "click[next >]").observation


def test_shortcuts_of_the_search_box(original, repaired):
    assert "(Total results: 23)" in play(original, "search[<c> beauty]").observation
    assert "(Total results: 3)" in play(original, "search[<q> garden lamps]").observation
    assert "(Total results: 0)" in play(original, "search[<q> no such]").observation
    drawn = play(original, "search[<r>]")
    assert drawn == play(original, "search[<r>]")
    assert drawn.observation == play(original, "search[<r>]").observation
    for crash in ("search[<a> x]", "search[<a>]", "search[<c>]"):
        assert play(original, crash) == play(original)
    assert "(Total results: 0)" in play(repaired, "search[<c> beauty]").observation


def test_a_value_under_two_names(original, repaired):
    way = ("search[odd]", "click[lamp000003]")
    assert play(original, *way, "click[7]").chosen == (("width", "7"),)
    both = play(repaired, *way, "click[7]", "click[7]")
    assert both.chosen == (("size", "7"), ("width", "7"))
    assert play(repaired, *way, "click[7]", "click[7]", "click[8]").chosen == (
        ("size", "8"),
        ("width", "7"),
    )


def test_options_named_like_buttons(original):
    way = ("search[odd]", "click[lamp000003]")
    assert play(original, *way, "click[search]") == play(original, *way)
    assert play(original, *way, "click[next >]").chosen == (("kind", "next >"),)
    assert play(original, *way, "click[buy now]").done


def test_blank_texts_and_separators(original):
    features = play(original, "search[odd]", "click[lamp000003]", "click[features]")
    assert features.page.endswith("< Prev [SEP] A [SEP] in the text [SEP] ")
    assert features.observation.endswith("'A' [SEP] 'in the text' [SEP] ''")
    empty = play(original, "search[copper]", "click[lamp000002]", "click[description]")
    assert empty.observation == "'Back to Search' [SEP] '< Prev'"


@pytest.mark.parametrize(
    "action",
    [
        "",
        "help",
        "search",
        "search[]",
        "click[nothing]",
        "buy[now]",
        "click[lamp000001]",
        "[x]",
        "search lamp",
        "\n",
        "click[\n]",
    ],
)
def test_what_is_no_action_changes_nothing(original, repaired, action):
    for env in (original, repaired):
        assert env.step(env.initial(goal()), action).state == env.initial(goal())


@pytest.mark.parametrize("query", [" ", "x" * 10_000, "皮肤 crème", "<b>", "a]b", "lamp]["])
def test_any_query_leads_to_a_results_page(original, repaired, query):
    for env in (original, repaired):
        assert play(env, f"search[{query}]").kind == "results"


PIECES = st.one_of(
    st.sampled_from(
        [
            "search[",
            "click[",
            "]",
            "[",
            "<a> x",
            "<c>",
            "<r>",
            "lamp",
            "buy now",
            "< prev",
            "next >",
            "\n",
            "<q> ",
        ]
    ),
    st.text(max_size=8),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    key=st.sampled_from([(f, m) for f in ("original", "repaired") for m in ("text", "text_rich")]),
)
def test_no_action_ever_crashes(shops, data, key):
    env = shops[key]
    state = env.initial(goal())
    for _ in range(data.draw(st.integers(1, 12))):
        listed = env.admissible(state)
        random_text = st.lists(PIECES, max_size=5).map("".join)
        action = data.draw(st.one_of(st.sampled_from(listed), random_text) if listed else random_text)
        again, state = env.step(state, action), env.step(state, action).state
        assert again.state == state
        assert hash(again.state) == hash(state)
        assert again.observation == state.observation
        assert 0 <= state.score <= 1


def test_shop_and_states_travel_between_processes(repaired):
    state = play(repaired, *BUY_RED[:3])
    env, there = pickle.loads(pickle.dumps((repaired, state)))
    assert there == state
    assert env.step(there, "click[features]").state == repaired.step(state, "click[features]").state


def test_settings_are_checked(catalogue):
    with pytest.raises(InputError, match="mode"):
        WebShop(catalogue, mode="html")
    with pytest.raises(InputError, match="fidelity"):
        WebShop(catalogue, fidelity="exact")


def test_the_original_draws_a_price_and_the_repaired_shop_takes_the_highest(catalogue):
    task = goal(asin="LAMP000002", attributes=("copper",), options=(), price_upper=25.0)
    way = ("search[copper]", "click[lamp000002]")
    found = {
        WebShop(catalogue, fidelity="original", price_seed=seed)
        .reward(play(WebShop(catalogue, fidelity="original", price_seed=seed), *way, task=task))
        .r_price
        for seed in range(12)
    }
    assert found == {True, False}
    repaired = WebShop(catalogue)
    assert not repaired.reward(play(repaired, *way, task=task)).r_price
