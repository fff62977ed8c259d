"""The check of our search against Lucene: beside a stand-in for pyserini, and with pyserini itself where it is installed."""

import functools
import json
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.webshop_mini import open_mini, write_files
from threespo import cli
from threespo.envs.webshop import Catalogue, WebShop, compile_catalogue
from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.embedded import generate
from threespo.envs.webshop.lucene import LuceneSearch, build_index, index_command, write_documents
from threespo.errors import InputError
from threespo.verify import read_cases
from threespo.verify.lucene import draw_queries, verify


class StandIn:
    """A searcher over the documents that were to be indexed: those that hold the whole query, in order of their ids."""

    made_with = "documents.jsonl"

    def __init__(self, folder: str) -> None:
        lines = (Path(folder) / self.made_with).read_text().splitlines()
        self.documents = {row["id"]: row["contents"] for row in map(json.loads, lines)}

    def get_total_num_docs(self) -> int:
        return len(self.documents)

    def search(self, query: str, count: int) -> list[types.SimpleNamespace]:
        query.encode()
        if query == "too long":
            raise RuntimeError("TooManyClauses")
        found = sorted(asin for asin, text in self.documents.items() if query and query in text)
        return [types.SimpleNamespace(docid=asin) for asin in found[:count]]


def _index(command, **_):
    """Stand in for the indexer: keep the documents."""
    folder, index = (Path(command[command.index(name) + 1]) for name in ("--input", "--index"))
    (index / StandIn.made_with).write_bytes((folder / StandIn.made_with).read_bytes())
    return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("pyserini.pyclass")
    module.autoclass = {"io.anserini.search.SimpleSearcher": StandIn}.__getitem__
    monkeypatch.setitem(sys.modules, "pyserini", types.ModuleType("pyserini"))
    monkeypatch.setitem(sys.modules, "pyserini.pyclass", module)
    monkeypatch.setattr("threespo.envs.webshop.lucene.subprocess.run", _index)


@pytest.fixture
def shop(tmp_path):
    return open_mini(tmp_path / "shop")


@pytest.mark.usefixtures("stand_in")
class TestWithStandIn:
    def test_documents_have_the_text_that_is_searched(self, shop, tmp_path):
        write_documents(shop, tmp_path / "documents.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "documents.jsonl").read_text().splitlines()]
        assert rows[0] == {
            "id": "LAMP000001",
            "contents": "brass garden lamp all about brass garden lamp. first of brass garden lamp "
            "color: red, navy blue, red | blue, and size: large, xx-large",
        }
        assert [row["id"] for row in rows] == [shop.head(number)[0] for number in range(len(shop))]

    def test_numbers_of_what_is_found_best_first(self, shop, tmp_path):
        build_index(shop, tmp_path / "index")
        search = LuceneSearch(tmp_path / "index", shop).search
        assert [shop.head(number)[0] for number in search("garden lamp")] == ["LAMP000001", "LAMP000002"]
        assert search("") == search("nothing like it") == search("\ud800") == ()
        assert [file.name for file in tmp_path.iterdir() if "index" in file.name] == ["index"], (
            "nothing is left behind"
        )

    def test_a_shop_searches_with_it_and_so_does_its_copy(self, shop, tmp_path):
        build_index(shop, tmp_path / "index")
        other = Catalogue(shop.folder, functools.partial(LuceneSearch, tmp_path / "index"))
        for catalogue in (other, pickle.loads(pickle.dumps(other))):
            assert isinstance(catalogue.index, LuceneSearch)
            # No word of ours, but a piece of text that the stand-in finds.
            hits = WebShop(catalogue)._find_products("rass garden la")
            assert [catalogue.head(number)[0] for number in hits] == ["LAMP000001"]
        assert shop.index.search("rass garden la") != hits

    def test_other_lists_are_counted_and_shown(self, tmp_path, capsys):
        """The stand-in does not rank, so lists differ; both engines find a product that alone has the whole query."""
        files = write_files(tmp_path / "files")
        assert cli.main(["verify", "lucene", "--catalogue", str(files), "--queries", "30"]) == 1
        said = capsys.readouterr()
        found = json.loads(said.out)
        assert found["cases"] == 30
        assert found["mismatches"] == round(30 * (1 - found["equal_in_order"])) > 0
        assert 0 == found["least_overlap"] < found["mean_overlap"] < 1
        assert len(said.err.splitlines()) == min(5, found["mismatches"])

    def test_equal_lists_pass_and_the_index_is_kept(self, shop, tmp_path, monkeypatch):
        monkeypatch.setattr(StandIn, "search", lambda self, query, count: _same(shop, query))
        index = tmp_path / "kept"
        for _ in range(2):
            report = verify(shop.folder, 40, index)
            assert (report.cases, report.mismatches, report.details["top_1"]) == (40, 0, 1.0)
            monkeypatch.setattr("threespo.envs.webshop.lucene.subprocess.run", None)
        assert (index / StandIn.made_with).is_file()

    def test_a_failed_indexing_leaves_no_index(self, shop, tmp_path, monkeypatch):
        failed = subprocess.CompletedProcess([], 3, "", "no space")
        monkeypatch.setattr("threespo.envs.webshop.lucene.subprocess.run", lambda *_, **__: failed)
        with pytest.raises(InputError, match=r"exit code 3.*JsonCollection[^$]*no space"):
            build_index(shop, tmp_path / "index")
        assert not (tmp_path / "index").exists()

    def test_an_index_of_other_products_is_refused(self, shop, tmp_path):
        build_index(shop, tmp_path / "index")
        compile_catalogue(generate(500, 3), tmp_path / "other")
        other = Catalogue(tmp_path / "other")
        with pytest.raises(InputError, match="of other products"):
            LuceneSearch(tmp_path / "index", other)
        (tmp_path / "index" / "catalogue.sha256").unlink()
        with pytest.raises(InputError, match="of other products"):
            LuceneSearch(tmp_path / "index", other)
        assert LuceneSearch(tmp_path / "index", shop).search("brass"), (
            "an index made elsewhere is taken if it fits"
        )
        with pytest.raises(InputError, match="no Lucene index"):
            LuceneSearch(tmp_path, shop)

    def test_refused_queries_and_unknown_products_are_named(self, shop, tmp_path):
        build_index(shop, tmp_path / "index")
        documents = tmp_path / "index" / StandIn.made_with
        documents.write_text(documents.read_text().replace("LAMP000002", "LAMP000009"))
        engine = LuceneSearch(tmp_path / "index", shop)
        with pytest.raises(InputError, match="refuses the query 'too long'"):
            engine.search("too long")
        with pytest.raises(InputError, match="LAMP000009"):
            engine.search("copper")


def _same(shop, query):
    return [types.SimpleNamespace(docid=shop.head(number)[0]) for number in shop.index.search(query)]


def test_the_command_is_the_original_s():
    command = index_command(Path("in"), Path("out"))
    assert command[:3] == [sys.executable, "-m", "pyserini.index.lucene"]
    assert " ".join(command[3:]) == (
        "--collection JsonCollection --input in --index out --generator DefaultLuceneDocumentGenerator --threads 1 "
        "--storePositions --storeDocvectors --storeRaw"
    )


def test_without_pyserini_one_message_says_what_to_install(shop, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyserini", None)
    monkeypatch.delitem(sys.modules, "pyserini.pyclass", raising=False)
    assert (
        cli.main(
            ["verify", "lucene", "--catalogue", str(shop.folder), "--index", str(tmp_path / "index")]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "pip install 'threespo[lucene]'" in said
    assert "JDK" in said
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lucene"], "--catalogue DIR"),
        (["lucene", "file.jsonl"], "takes no reference file"),
        (["lucene", "--queries", "0"], "at least 1"),
        (["search"], "needs a reference file"),
    ],
)
def test_bad_arguments(arguments, said, capsys):
    assert cli.main(["verify", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_queries_are_the_same_every_time_and_of_every_kind(shop, tmp_path):
    drawn = list(draw_queries(shop, 60))
    assert drawn == list(draw_queries(Catalogue(shop.folder), 60))
    kinds = [kind for kind, _ in drawn]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("goal", "title", "word", "soup", "glued"), 12
    )
    words = {word for number in range(len(shop)) for word in shop.product(number).searched_text.split()}
    assert {query for kind, query in drawn if kind == "word"} <= words
    compile_catalogue(
        (product._replace(title="Ångström ★ lamp") for product in generate(500, 3)), tmp_path / "other"
    )
    foreign = [
        query for kind, query in draw_queries(Catalogue(tmp_path / "other"), 60) if kind == "foreign"
    ]
    assert len(foreign) == 10
    assert not any(query.isascii() for query in foreign)


# What Lucene 9.5 makes of each text.
SIGNS = {
    "1️⃣Premium 2️⃣ #️⃣": ["1️⃣premium", "2️⃣", "#️⃣"],
    "ℹ️tem ℹ️ Ⓜx": ["ℹ️tem", "ℹ️", "ⓜx"],
    "🗹 ok 🗸 🖉 🂡": ["🗹", "ok", "🗸", "🖉", "🂡"],
    "ã¸b ˥ ꜈": ["ã", "b"],
    "1\ufe102 x\ufe10y": ["1\ufe102", "x", "y"],
    "א' ב\"ג א.ב' אב'": ["א'", 'ב"ג', "א.ב", "אב'"],
    "👍🏽\ufe0f 🏽\ufe0f": ["👍🏽\ufe0f", "🏽"],
    "★ 5-in-1 ½ m² ①": ["★", "5", "1", "m"],
}
ALPHABET = [
    *"ab1290_.,:;'\"-#*&+ éßİ１Ａ：．·²½①¸°€々〇〰㊗ｶカーひ男한กאבا٣★✓✈❤👍🏽👨💼🇩🇫🅰🗹🏴™©Ⓜ’",
    *"\ufe0f\ufe0e\u20e3\u200d\u00ad\u200b\u0301\u05b0\u2060\ufeff\u3099\uff9e\xa0\u2028",
]


@pytest.mark.parametrize(("text", "expected"), SIGNS.items())
def test_signs_are_terms_where_they_are_lucenes(text, expected):
    assert terms(text) == expected


@pytest.fixture
def lucene():
    pytest.importorskip("pyserini", reason="Lucene (extra: lucene) is not installed")


@pytest.mark.usefixtures("lucene")
def test_our_terms_are_lucenes():
    from pyserini.pyclass import autoclass

    analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyze = autoclass("io.anserini.analysis.AnalyzerUtils").analyze
    source = random.Random(7)
    texts = ["".join(source.choices(ALPHABET, k=source.randint(1, 8))) for _ in range(5000)]
    for text in (*SIGNS, *texts):
        assert terms(text) == list(analyze(analyzer, text).toArray()), ascii(text)


@pytest.mark.slow
@pytest.mark.usefixtures("lucene")
def test_our_lists_are_lucenes(tmp_path):
    """Titles get signs that the analyzer has to tell apart."""
    signs = list(SIGNS)
    products = (
        product._replace(title=f"{product.title} {signs[number % len(signs)]}")
        for number, product in enumerate(generate(700, 3))
    )
    compile_catalogue(products, tmp_path / "catalogue")
    report = verify(tmp_path / "catalogue", 600, tmp_path / "index")
    assert (report.cases, report.mismatches) == (600, 0)
    assert report.details["queries_foreign"] == 100


@pytest.mark.slow
@pytest.mark.usefixtures("lucene")
def test_lucene_gives_the_recorded_lists(shared, tmp_path):
    """So the index is built and asked as the one was that the reference lists come from."""
    from threespo.envs.webshop.sources import read_products

    compile_catalogue(read_products(shared / "data" / "webshop_1k"), tmp_path / "catalogue")
    plain = Catalogue(tmp_path / "catalogue")
    build_index(plain, tmp_path / "index")
    shop = Catalogue(plain.folder, functools.partial(LuceneSearch, tmp_path / "index"))
    cases = list(read_cases(shared / "golden" / "webshop_search.jsonl.xz", ("query", "asins")))
    found = [[shop.head(number)[0] for number in shop.index.search(case["query"])] for case in cases]
    assert found == [case["asins"] for case in cases]
    assert len(cases) == 200
