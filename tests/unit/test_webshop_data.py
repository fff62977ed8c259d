"""Catalogues, goals, splits, the embedded shop, and what is said of broken files."""

import json
import lzma
from collections import Counter
from dataclasses import replace

import pytest

from tests.webshop_mini import HUMAN, INSTRUCTIONS, ITEMS, goal, item, open_mini, write_files
from threespo.envs.webshop import Catalogue, ShopState, WebShop, compile_catalogue
from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.goals import (
    goal_from_row,
    make_original_goals,
    make_repaired_goals,
    original_order,
)
from threespo.envs.webshop.heuristics import choose_action
from threespo.envs.webshop.prepare import prepare
from threespo.envs.webshop.settings import WebshopTasks
from threespo.envs.webshop.sources import read_array, read_products
from threespo.envs.webshop.splits import (
    count_training_overlap,
    original_splits,
    split_goals,
    trained_on_by_any,
)
from threespo.errors import InputError


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    out = tmp_path_factory.mktemp("embedded") / "catalogue"
    compile_catalogue(generate(500, 7), out)
    return Catalogue(out)


def test_products_are_read_as_the_original_reads_them(tmp_path):
    products = list(read_products(write_files(tmp_path)))
    assert len(products) == 26, "nan, repeated and over-long asins are skipped"
    lamp, copper, odd = products[:3]
    assert lamp.options == (
        ("color", ("red", "navy blue", "red | blue")),
        ("size", ("large", "xx-large")),
    )
    assert (lamp.query, lamp.price_tag, lamp.prices) == ("garden lamps", "$12.5", (12.5,))
    assert (copper.price_tag, copper.prices, copper.bullets) == ("$30.0 to $10.0", (30.0, 10.0), ("",))
    assert (products[3].price_tag, products[3].prices, products[3].attributes) == (
        "$100.0",
        (100.0,),
        ("DUMMY_ATTR",),
    )
    assert lamp.searched_text.endswith(
        "first of brass garden lamp color: red, navy blue, red | blue, and size: large, xx-large"
    )
    assert odd.options[2][1] == ("search", "next >", "buy now")


def test_a_compiled_catalogue_gives_back_its_products(tmp_path):
    catalogue = open_mini(tmp_path)
    products = list(read_products(tmp_path / "files"))
    assert [catalogue.product(number) for number in range(len(catalogue))] == products
    assert [catalogue.number_of(product.asin) for product in products] == list(range(len(products)))
    assert catalogue.number_of("NOTTHERE00") is None


def test_equal_products_compile_to_equal_bytes(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        compile_catalogue(generate(500, 1), folder)
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert one == other


def test_compressed_and_streamed_files_read_alike(tmp_path):
    write_files(tmp_path / "plain", items=[item(f"P{n:09d}", "x" * 3000) for n in range(900)])
    (tmp_path / "xz").mkdir()
    for path in (tmp_path / "plain").iterdir():
        (tmp_path / "xz" / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
    (tmp_path / "xz" / "instructions.json.xz").unlink()
    (tmp_path / "xz" / "human_goals.json.xz").unlink()
    plain = list(read_array(tmp_path / "plain" / "items.json"))
    assert plain == json.loads((tmp_path / "plain" / "items.json").read_text())
    assert plain == list(read_array(tmp_path / "xz" / "items.json.xz"))
    assert len(list(read_products(tmp_path / "xz", limit=7))) == 7


BROKEN_ITEMS = [
    (
        [{**ITEMS[0], "name": None}],
        r"record 1 \(LAMP000001\), field 'name': expected a text, found null",
    ),
    ([ITEMS[0], {"name": "no asin"}], "record 2, field 'asin'.*found nothing"),
    ([ITEMS[0], "text"], "record 2: expected a JSON object"),
    ([{**ITEMS[0], "pricing": "$1.2.3"}], "record 1 .*'pricing'.*'\\$5.00'"),
    ([{**ITEMS[0], "pricing": "free"}], "'pricing'"),
    ([{**ITEMS[0], "pricing": 5}], "'pricing'"),
    ([{**ITEMS[0], "customization_options": {"Color": ["red"]}}], "'customization_options'.*'Color'"),
    ([{**ITEMS[0], "customization_options": ["red"]}], "'customization_options'"),
    ([{**ITEMS[0], "small_description": [1]}], "'small_description'"),
    ([{**ITEMS[0], "asin": "É123"}], "'asin'.*ASCII"),
    ({"not": "a list"}, "expected a JSON list"),
]


@pytest.mark.parametrize(("items", "message"), BROKEN_ITEMS)
def test_a_malformed_product_is_named(tmp_path, items, message):
    with pytest.raises(InputError, match=message):
        list(read_products(write_files(tmp_path, items=items, instructions={}, human={})))


def test_broken_goal_files_are_named(tmp_path):
    lamp = "LAMP000001"
    for changes, message in (
        (
            {
                "instructions": {
                    lamp: {"attributes": ["a"], "instruction": "x", "instruction_attributes": []}
                }
            },
            "at least one",
        ),
        ({"instructions": {lamp: {"attributes": "a"}}}, f"instructions of {lamp}, field 'attributes'"),
        ({"instructions": {lamp: 3}}, f"instructions of {lamp}: expected a JSON object"),
        (
            {"human": {lamp: [{"instruction": "x"}]}},
            f"human goals of {lamp}, goal 1, field 'instruction_attributes'",
        ),
        ({"human": {lamp: {}}}, f"human goals of {lamp}: expected a list"),
        ({"instructions": {"ELSEWHERE0": {"attributes": []}}, "human": {}}, "none of its 1 products"),
        ({"human": []}, "human_goals.json: expected a JSON object"),
    ):
        with pytest.raises(InputError, match=message):
            list(read_products(write_files(tmp_path, **changes)))


def test_missing_and_cut_off_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no items\.json"):
        list(read_products(tmp_path))
    write_files(tmp_path)
    whole = (tmp_path / "items.json").read_text()
    (tmp_path / "items.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"items\.json: broken after \d+ records"):
        list(read_products(tmp_path))
    (tmp_path / "items.json").rename(tmp_path / "items.json.xz")
    with pytest.raises(InputError, match=r"items\.json\.xz: not readable"):
        list(read_products(tmp_path))


def test_catalogue_errors(tmp_path):
    with pytest.raises(InputError, match="no product"):
        compile_catalogue([], tmp_path / "none")
    assert not list(tmp_path.iterdir()), "nothing half-written is left"
    products = list(read_products(write_files(tmp_path / "files")))
    with pytest.raises(InputError, match="LAMP000001"):
        compile_catalogue(products[:1] * 2, tmp_path / "twice")
    with pytest.raises(InputError, match="no compiled catalogue"):
        Catalogue(tmp_path / "files")


def test_a_catalogue_of_another_version_is_refused(tmp_path):
    """One of before the bitmaps, say, which lacks files."""
    folder = open_mini(tmp_path).folder
    facts = json.loads((folder / "catalogue.json").read_text())
    (folder / "catalogue.json").write_text(json.dumps({**facts, "format": facts["format"] - 1}))
    (folder / "bits.bin").unlink()
    with pytest.raises(InputError, match="another version; remove it and prepare the data again"):
        Catalogue(folder)


def test_a_goal_of_a_missing_product_is_refused(tmp_path):
    catalogue = open_mini(tmp_path)
    row = json.loads(json.dumps(goal().as_row()))
    assert goal_from_row(row, "goals, line 1", catalogue) == goal()
    with pytest.raises(InputError, match="goals, line 1, field 'asin': no product GONE"):
        goal_from_row({**row, "asin": "GONE"}, "goals, line 1", catalogue)
    for field, value in (("options", [["a"]]), ("price_upper", "x"), ("attributes", None), ("goal", 1)):
        with pytest.raises(InputError, match=f"field '{field}'"):
            goal_from_row({**row, field: value}, "goals, line 1")


def test_goals_of_the_small_shop(tmp_path):
    catalogue = open_mini(tmp_path)
    goals = make_repaired_goals(catalogue, 0, human=False)
    assert [found.options for found in goals[:2]] == [
        (("color", "red"), ("size", "large")),
        (("color", "red"), ("size", "xx-large")),
    ]
    assert len(goals) == 6 + 1
    assert (
        goals[0].goal
        == f"Find me a lamp with color: red, and size: large, and price lower than {goals[0].price_upper:.2f} dollars"
    )
    assert goals[0].price_upper in (30.0, 40.0, 50.0)
    assert goals[-1].price_upper > 30.0, "the bound lies above the highest price"
    people = make_repaired_goals(catalogue, 0, human=True)
    assert len(people) == 1, "a wish without attributes is no goal"
    assert people[0].goal.startswith("i want a red lamp, and price lower than ")
    assert people[0].options == ("red", "large")


def test_splits_are_disjoint_and_one_for_all(embedded):
    for human in (False, True):
        splits = split_goals(embedded, human)
        ids = [found.task_id for part in splits for found in part]
        texts = [(found.asin, found.goal) for part in splits for found in part]
        assert len(ids) == len(set(ids)) == len(set(texts))
        assert min(map(len, splits)) >= 100
        # Another seed draws other price bounds, never another place.
        again = split_goals(embedded, human, seed=1)
        assert [[found.task_id for found in part] for part in again] == [
            [found.task_id for found in part] for part in splits
        ]
    assert len(split_goals(embedded, False).test) == 500


def test_the_originals_splits_are_positions_in_the_orders_of_two_workers(embedded):
    splits = original_splits(embedded, False)
    (training, _), (validation, prices) = (
        make_original_goals(embedded, seed, False) for seed in (0, 1000)
    )
    assert Counter(found.task_id for found in training).most_common(1)[0][1] == 1
    assert len(validation) > 2500
    assert [found.task_id for found in splits.test] == [found.task_id for found in validation[:500]]
    assert [found.goal for found in splits.train] == [found.goal for found in training[500:]]
    after = validation[500 : 500 + min(1000, len(validation) // 5)]
    assert [found.goal for found in splits.calibration] == [found.goal for found in after]
    # Every bound lies above the price that its own worker drew, and the shop judges by that price.
    env = WebShop(embedded, fidelity="original")
    ranged = [
        found
        for found in splits.test
        if len(set(embedded.product(embedded.number_of(found.asin)).prices)) == 2
    ]
    assert ranged
    for found in ranged:
        number = embedded.number_of(found.asin)
        assert prices[number] < found.price_upper
        state = ShopState(found, "item", product=number, chosen=tuple(sorted(found.options)))
        assert env.reward(state).total == 1.0
    elsewhere = (
        (replace(found, worker=None, price_upper=prices[embedded.number_of(found.asin)] + 1e-6), found)
        for found in ranged
    )
    states = [
        ShopState(
            other, "item", product=embedded.number_of(found.asin), chosen=tuple(sorted(found.options))
        )
        for other, found in elsewhere
    ]
    assert any(env.reward(state).total < 1.0 for state in states), (
        "with another worker's prices some could not be met"
    )


def test_what_of_the_originals_test_split_is_trained_on_is_counted(embedded):
    splits = original_splits(embedded, False)
    trained = {found.task_id for found in splits.train}
    both = [found for found in splits.test if found.task_id in trained]
    assert count_training_overlap(splits)["test"] == len(both) > 400
    assert count_training_overlap(splits._replace(train=splits.train[:0])) == {
        "calibration": 0,
        "test": 0,
    }
    # Of the sixteen training workers each leaves out 500 goals of its own, so no test goal escapes all of them.
    orders = [
        [found.task_id for found in make_original_goals(embedded, seed, False)[0]] for seed in range(16)
    ]
    anywhere = {name for order in orders for name in order[500:]}
    assert trained_on_by_any(len(orders[0])) == sum(found.task_id in anywhere for found in splits.test)
    # The numbers of docs/webshop.md: all human goals, and the synthetic ones of the real 1,000 products.
    for count, first in ((12_087, 472), (6_910, 457)):
        tested, trained = original_order(count, 1000)[:500], original_order(count, 0)[500:]
        assert (len({*tested} & {*trained}), trained_on_by_any(count)) == (first, 500)


@pytest.mark.parametrize("fidelity", ["original", "repaired"])
@pytest.mark.parametrize("human", [False, True])
def test_every_embedded_goal_can_be_found_and_met(embedded, fidelity, human):
    env = WebShop(embedded, fidelity=fidelity)
    goals = (
        make_repaired_goals(embedded, 0, human)
        if fidelity == "repaired"
        else make_original_goals(embedded, 0, human)[0]
    )
    searched: dict[str, set[int]] = {}
    for found in goals[:: 1 if human else 3]:
        number = embedded.number_of(found.asin)
        base = found.goal.split(" with ")[0].lower()
        if base not in searched:
            searched[base] = set(embedded.index.search(base))
        assert number in searched[base], found.goal
        values = [option if human else option[1] for option in found.options]
        state = env.initial(found)
        for action in (
            f"search[{found.goal}]",
            f"click[{found.asin}]",
            *(f"click[{value}]" for value in values),
            "click[buy now]",
        ):
            while action.startswith("click[E") and action.lower() not in env.admissible(state):
                state = env.step(state, "click[next >]").state
            state = env.step(state, action).state
        assert env.won(state), (found.goal, env.reward(state))


@pytest.mark.parametrize("fidelity", ["original", "repaired"])
@pytest.mark.parametrize("human", [False, True])
def test_the_scripted_shopper_scores_over_nine_tenths(embedded, fidelity, human):
    env, total = WebShop(embedded, fidelity=fidelity), 0.0
    goals = split_goals(embedded, human).test[:100]
    for found in goals:
        state, history = env.initial(found), []
        while not state.done and len(history) < 15:
            action = choose_action(found.goal, history, state.observation, env.admissible(state))
            history.append((state.observation, action))
            state = env.step(state, action).state
        total += state.score
    assert total / len(goals) > 0.9


def test_the_embedded_shop_is_deterministic_and_bounded():
    assert list(generate(500, 1))[:50] == list(generate(500, 1))[:50] != list(generate(500, 2))[:50]
    products = list(generate(2000, 7))
    assert len({product.asin for product in products}) == 2000
    assert set(Counter(product.category for product in products)) == {
        "beauty",
        "electronics",
        "garden",
        "fashion",
        "grocery",
    }
    for count in (499, 1_200_001):
        with pytest.raises(InputError, match="500 to 1200000"):
            generate(count, 1)


def test_prepared_data(tmp_path):
    manifest = prepare_shop(
        tmp_path / "shop", read_shop_products("embedded", count=500), limits={"train": 30}
    )
    assert manifest["goals"]["train"] == 30
    catalogue = Catalogue(tmp_path / "shop" / "catalogue")
    loaded = {
        split: load_goals(tmp_path / "shop", split, catalogue)
        for split in ("train", "calibration", "test")
    }
    assert {split: len(goals) for split, goals in loaded.items()} == manifest["goals"]
    assert loaded["test"] == list(split_goals(catalogue, False).test)
    with pytest.raises(InputError, match="valid"):
        load_goals(tmp_path / "shop", "valid")


def test_prepared_data_in_the_originals_order_say_how_much_of_the_test_set_is_trained_on(tmp_path):
    shop, products = tmp_path / "shop", tmp_path / "products"
    settings = WebshopTasks(products=500, goals_order="original", goals={"train": 900, "test": 40})
    prepare(settings, shop)
    manifest = json.loads((shop / "manifest.json").read_text())
    loaded = {
        split: load_goals(shop, split, Catalogue(shop / "catalogue"))
        for split in ("train", "calibration", "test")
    }
    assert {split: {found.worker for found in goals} for split, goals in loaded.items()} == {
        "train": {0},
        "calibration": {1000},
        "test": {1000},
    }
    trained = {found.task_id for found in loaded["train"]}
    both = sum(found.task_id in trained for found in loaded["test"])
    assert manifest["original_order"]["also_training_goals"]["test"] == both > 0
    assert manifest["original_order"]["whole_test_split"]["goals"] == 500
    prepare(WebshopTasks(products=500), products)
    assert "original_order" not in json.loads((products / "manifest.json").read_text())


def test_prepare_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match="needs the field 'path'"):
        read_shop_products("path")
    with pytest.raises(InputError, match=r"no items\.json or items\.json\.xz there"):
        list(read_shop_products("official", path=tmp_path))
    write_files(tmp_path / "files", ITEMS, INSTRUCTIONS, HUMAN)
    with pytest.raises(InputError, match="too few"):
        prepare_shop(
            tmp_path / "out", read_shop_products("path", path=tmp_path / "files"), goals="human"
        )
    assert not (tmp_path / "out").exists()
