"""Analyzer and ranking: word by word where the rules say it, and against a plain scan in float32."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from threespo.envs.webshop import Catalogue, compile_catalogue
from threespo.envs.webshop.analyzer import terms, tokens
from threespo.envs.webshop.bm25 import dequantise, quantise
from threespo.envs.webshop.embedded import generate

ZWJ = "\u200d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it's can't.stop U.S.A. 1,000.5 5'2\"x7'4\"", ["it's", "can't.stop", "U.S.A", "1,000.5", "5'2", "x7'4"]),
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
            weight = f32(repeats) * f32(math.log(1 + (number - len(holding) + 0.5) / (len(holding) + 0.5)))
        for index in holding:
            length = f32(dequantise(quantise(lengths[index])))
            norm = f32(1) / (f32(0.9) * ((f32(1) - f32(0.4)) + f32(0.4) * length / mean))
            total[index] += float(weight - weight / (f32(1) + f32(counted[index][word]) * norm))
    return [f32(score) for score in total]


def test_ranking_equals_a_plain_scan(shop, monkeypatch):
    """Also where lists are long enough to be added one by one, and to candidates alone."""
    counted = [Counter(terms(shop.product(number).searched_text)) for number in range(len(shop))]
    asins = [shop.head(number)[0] for number in range(len(shop))]
    frequent = [word for counts in counted for word in counts]
    words = sorted(set(frequent))
    monkeypatch.setattr("threespo.envs.webshop.bm25._FAR_FEWER", 2)
    source = random.Random(5)
    for number in range(160):
        chosen = source.choices(frequent if number % 2 else words, k=source.choice((1, 2, 3, 6, 12, 40)))
        # A word repeated decides so early that candidates are sifted more than once.
        query = " ".join([*chosen, *[source.choice(frequent)] * source.choice((0, 30))])
        scores = _scan(counted, query)
        order = sorted((index for index, score in enumerate(scores) if score > 0), key=lambda i: (-scores[i], asins[i]))
        for together, long in ((1 << 12, 1 << 15), (1 << 12, 0), (20, 0), (20, 100)):
            monkeypatch.setattr("threespo.envs.webshop.bm25._TOGETHER", together)
            monkeypatch.setattr("threespo.envs.webshop.bm25._LONG", long)
            shop.index.search.cache_clear()
            assert list(shop.index.search(query)) == order[:50], (query, together, long)


@pytest.mark.parametrize("query", ["", " ", "_", "the of", "zzzz", "x" * 10_000, "lamp " * 2000, "\ud800", "★" * 300])
def test_any_query_is_answered(shop, query):
    assert len(shop.index.search(query)) <= 50


def test_hidden_state_never_shows(shop):
    """The remembered answer is the answer."""
    queries = ["lamp", "red table lamp", "lamp"]
    fresh = [Catalogue(shop.folder).index.search(query) for query in queries]
    assert [shop.index.search(query) for query in queries] == fresh
