"""Analyzer and ranking: word by word where the rules say it, and against a plain scan in float32."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from threespo.envs.webshop import Catalogue, compile_catalogue
from threespo.envs.webshop.analyzer import terms, tokens
from threespo.envs.webshop.bitmaps import Bitmaps, documents_of, write_bitmaps
from threespo.envs.webshop.bm25 import dequantise, quantise
from threespo.envs.webshop.embedded import generate

ZWJ = "\u200d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "it's can't.stop U.S.A. 1,000.5 5'2\"x7'4\"",
            ["it's", "can't.stop", "U.S.A", "1,000.5", "5'2", "x7'4"],
        ),
        ("a_b _ __x__ 3:4 title:shoes x-large", ["a_b", "__x__", "3", "4", "title:shoes", "x", "large"]),
        ("皮肤 cream ひら カタカナ한국", ["皮", "肤", "cream", "ひ", "ら", "カタカナ", "한국"]),
        ("★ ➤ ✿ ✓ ✧ ❤\ufe0f ✈", ["★", "❤\ufe0f", "✈"]),
        ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"]),
        (f"👨{ZWJ}💼👍🏽", [f"👨{ZWJ}💼", "👍🏽"]),
        ("so\u00adft", ["so\u00adft"]),
        ("x² ½ ⅓ ① ❶", ["x"]),
        ("สวัสดี", ["สวัสดี"]),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected


def test_ascii_has_the_same_words_by_both_patterns():
    from threespo.envs.webshop.analyzer import _unicode_pattern

    source = random.Random(1)
    for _ in range(3000):
        text = "".join(source.choice("ab1_.,:;'\"- #*Z9") for _ in range(source.randint(1, 14)))
        assert tokens(text) == _unicode_pattern().findall(text), text


def test_long_tokens_are_cut():
    assert [len(token) for token in tokens("b" * 600)] == [255, 255, 90]


def test_terms_are_stemmed_lowered_and_stopped():
    assert terms("The Women's shoes, and women\u2019S SHOES") == ["women", "shoe", "women", "shoe"]
    assert terms("İstanbul ΣΑΣ to be or not to be") == ["istanbul", "σασ"]
    assert terms("assembly happily knives") == ["assembl", "happili", "knive"]


def test_lengths_are_quantised_as_small_floats():
    """Exact up to 40; then steps of 2, 4, 8 … every eight bytes, each length rounded down."""
    assert [dequantise(quantise(length)) for length in range(41)] == list(range(41))
    assert [dequantise(byte) for byte in range(39, 50)] == [39, 40, 42, 44, 46, 48, 50, 52, 54, 56, 60]
    assert dequantise(255) == 24 + (15 << 27)
    for length in range(41, 5000):
        assert dequantise(quantise(length)) <= length < dequantise(quantise(length) + 1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    out = tmp_path_factory.mktemp("shop") / "catalogue"
    compile_catalogue(generate(700, 3), out)
    return Catalogue(out)


def _scan(counted, query):
    """Rank by the formula alone, document by document; of each the words are counted."""
    f32 = np.float32
    lengths = [counts.total() for counts in counted]
    number = sum(map(bool, lengths))
    mean = f32(sum(lengths) / number)
    total = [0.0] * len(counted)
    for word, repeats in Counter(terms(query)).items():
        holding = [index for index, counts in enumerate(counted) if word in counts]
        if holding:
            weight = f32(repeats) * f32(
                math.log(1 + (number - len(holding) + 0.5) / (len(holding) + 0.5))
            )
        for index in holding:
            length = f32(dequantise(quantise(lengths[index])))
            norm = f32(1) / (f32(0.9) * ((f32(1) - f32(0.4)) + f32(0.4) * length / mean))
            total[index] += float(weight - weight / (f32(1) + f32(counted[index][word]) * norm))
    return [f32(score) for score in total]


def _queries(counted):
    source = random.Random(5)
    frequent = [word for counts in counted for word in counts]
    words = sorted(set(frequent))
    for number in range(120):
        chosen = source.choices(frequent if number % 2 else words, k=source.choice((1, 2, 3, 6, 12, 40)))
        # A word repeated outweighs all the others.
        yield " ".join([*chosen, *[source.choice(frequent)] * source.choice((0, 30))])
    for number in range(0, len(counted), 20):
        yield " ".join(counted[number])


def test_ranking_equals_a_plain_scan(tmp_path, monkeypatch):
    """By each way to find candidates, with constants small enough that a small shop takes it."""
    monkeypatch.setattr("threespo.envs.webshop.bitmaps._MIN_POSTINGS", 40)
    monkeypatch.setattr("threespo.envs.webshop.bitmaps._MAX_PRODUCTS_PER_POSTING", 1000)
    compile_catalogue(generate(700, 3), tmp_path / "catalogue")
    shop = Catalogue(tmp_path / "catalogue")
    counted = [Counter(terms(shop.product(number).searched_text)) for number in range(len(shop))]
    asins = [shop.head(number)[0] for number in range(len(shop))]
    taken = Counter()

    def counting(name):
        method = getattr(shop.index, name)

        def call(*arguments):
            taken[name] += 1
            return method(*arguments)

        return call

    for name in ("_score_by_adding", "_score_by_pruning", "_find_touched", "_look_up_scores"):
        monkeypatch.setattr(shop.index, name, counting(name))

    expected = {}
    for query in _queries(counted):
        scores = _scan(counted, query)
        order = sorted(
            (index for index, score in enumerate(scores) if score > 0),
            key=lambda i: (-scores[i], asins[i]),
        )
        if order:
            expected[query] = tuple(order[:50])

    def check(ways):
        taken.clear()
        shop.index.search.cache_clear()
        for query, order in expected.items():
            assert shop.index.search(query) == order, (query, ways)
        return taken.copy()

    # All postings are added; then passes over the products, or only over those touched, find the best.
    for far_fewer, sparse in ((1000, False), (0, True)):
        monkeypatch.setattr("threespo.envs.webshop.bm25._LOOKUP_COST", far_fewer)
        monkeypatch.setattr("threespo.envs.webshop.bm25._MAX_BATCHED_POSTINGS", 100)
        calls = check(far_fewer)
        assert calls["_score_by_adding"] == len(expected) - calls["_score_by_pruning"] > 100
        assert bool(calls["_find_touched"]) == sparse

    # Frequent terms are looked up: for the candidates, or, where these are many, for seeds alone.
    monkeypatch.setattr("threespo.envs.webshop.bm25._MAX_POSTINGS_TO_ADD", 0)
    for far_fewer, depth, seeds in ((0, 10, 128), (0, 2, 1), (1, 3, 60), (1000, 10, 128)):
        monkeypatch.setattr("threespo.envs.webshop.bm25._LOOKUP_COST", far_fewer)
        monkeypatch.setattr("threespo.envs.webshop.bm25._SEEDS", seeds)
        monkeypatch.setattr("threespo.envs.webshop.bitmaps._MAX_DEPTH", depth)
        calls = check((far_fewer, depth, seeds))
        assert calls["_score_by_pruning"] > 100
        candidates = calls["_look_up_scores"] - calls["_score_by_pruning"]
        assert candidates == {0: calls["_score_by_pruning"], 1: candidates, 1000: 0}[far_fewer]
        assert candidates or far_fewer == 1000


def test_bitmaps_are_the_lists(tmp_path, monkeypatch):
    """Sets, ranks within lists and bounds of sums, each against the postings themselves."""
    source = np.random.default_rng(0)
    monkeypatch.setattr("threespo.envs.webshop.bitmaps._MIN_POSTINGS", 30)
    count = 1000
    lists = [
        np.sort(source.choice(count, size, replace=False))
        for size in (30, 31, 999, 1000, 64, 500, 400, 300)
    ]
    starts = np.cumsum([0, *map(len, lists)])
    write_bitmaps(tmp_path, np.concatenate(lists), starts, count)
    bitmaps = Bitmaps(tmp_path)
    assert [bitmaps.row(term) for term in range(len(lists) + 1)] == [-1, 0, 1, 2, 3, 4, 5, 6, -1]

    frequent, rows = lists[1:], np.arange(7)
    have, places = bitmaps.look_up(rows, np.arange(count))
    for row, documents in enumerate(frequent):
        assert np.flatnonzero(have[row]).tolist() == documents.tolist()
        assert places[row, documents].tolist() == list(range(len(documents)))

    assert documents_of(bitmaps.common([2, 1], 1)).tolist() == frequent[1].tolist()
    bounds = sorted(source.random(7).tolist(), reverse=True)
    able = np.array(bounds) @ have
    for need in (0.0, 0.3, 1.0, 2.0, 3.0, sum(bounds) * 0.999, sum(bounds) * 1.001):
        found = documents_of(bitmaps.reaching(rows.tolist(), bounds, need))
        assert found.tolist() == np.flatnonzero((able >= need) & (able > 0)).tolist()
        monkeypatch.setattr("threespo.envs.webshop.bitmaps._MAX_DEPTH", 3)
        assert set(found) <= set(documents_of(bitmaps.reaching(rows.tolist(), bounds, need)))
        monkeypatch.undo()


@pytest.mark.parametrize(
    "query", ["", " ", "_", "the of", "zzzz", "x" * 10_000, "lamp " * 2000, "\ud800", "★" * 300]
)
def test_any_query_is_answered(shop, query):
    assert len(shop.index.search(query)) <= 50


def test_hidden_state_never_shows(shop):
    """The remembered answer is the answer."""
    queries = ["lamp", "red table lamp", "lamp"]
    fresh = [Catalogue(shop.folder).index.search(query) for query in queries]
    assert [shop.index.search(query) for query in queries] == fresh
