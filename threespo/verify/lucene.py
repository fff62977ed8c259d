"""Compare our search with Lucene itself, on queries drawn from the catalogue."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from threespo import rng
from threespo.envs.webshop import Catalogue
from threespo.envs.webshop.catalogue import is_catalogue
from threespo.envs.webshop.lucene import LuceneSearch, build_index
from threespo.envs.webshop.products import Product
from threespo.errors import InputError
from threespo.verify import Report, timed_report
from threespo.verify.shop import open_catalogue

_MAX_SHOWN_DIFFERENCES = 5
_MAX_DRAWS = 200
_PUNCTUATION = ".,:;'’\"_-–/&+*#@()\u00ad"


def verify(catalogue: Path | None, queries: int, index: Path | None = None) -> Report:
    """Compare the ranked lists of ``queries`` queries; a list counts as equal only in the same order.

    Queries with other lists are printed to standard error, the first few.

    Args:
        catalogue: a folder of the original's JSON files, or a compiled catalogue.
        queries: how many; equal catalogues have equal queries.
        index: the folder of the Lucene index; made if it is not there. None for one that is removed at the end.

    Raises:
        InputError: if pyserini or Java is missing, or ``catalogue`` is no catalogue.
    """
    if queries < 1:
        raise InputError(f"--queries {queries}: expected at least 1")

    with (
        timed_report("lucene") as report,
        _open_shop(catalogue) as shop,
        _open_lucene(shop, index) as lucene,
    ):
        overlaps = []
        firsts = 0
        kinds = dict.fromkeys(_QUERY_KINDS, 0)
        for kind, query in draw_queries(shop, queries):
            found = shop.index.search(query)
            expected = lucene.search(query)
            # Two empty lists agree entirely.
            overlap = 1.0
            if found or expected:
                overlap = len({*found} & {*expected}) / max(len(found), len(expected))
            overlaps.append(overlap)
            firsts += found[:1] == expected[:1]
            kinds[kind] += 1

            report.add_case(found == expected)
            if found != expected and report.mismatches <= _MAX_SHOWN_DIFFERENCES:
                _print_difference(shop, kind, query, found, expected)

        report.details = {
            "equal_in_order": 1 - report.mismatches / report.cases,
            "least_overlap": min(overlaps),
            "mean_overlap": sum(overlaps) / report.cases,
            "top_1": firsts / report.cases,
            **{f"queries_{kind}": number for kind, number in kinds.items()},
        }
    return report


@contextlib.contextmanager
def _open_shop(folder: Path | None) -> Iterator[Catalogue]:
    if folder is not None and is_catalogue(folder):
        yield Catalogue(folder)
    else:
        with open_catalogue(folder) as shop:
            yield shop


@contextlib.contextmanager
def _open_lucene(shop: Catalogue, folder: Path | None) -> Iterator[LuceneSearch]:
    with tempfile.TemporaryDirectory(prefix="threespo-lucene-") as temporary:
        index = Path(temporary) / "index" if folder is None else folder
        if not index.exists():
            build_index(shop, index)
        yield LuceneSearch(index, shop)


def _print_difference(
    shop: Catalogue, kind: str, query: str, found: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    # The first rank at which the lists differ; the shorter one may be the beginning of the longer.
    rank = 0
    while rank < min(len(found), len(expected)) and found[rank] == expected[rank]:
        rank += 1
    ours = [shop.head(number)[0] for number in found[rank : rank + 3]]
    theirs = [shop.head(number)[0] for number in expected[rank : rank + 3]]
    print(
        f"{kind} query {query!r}: from place {rank + 1} on {ours}, by Lucene {theirs}", file=sys.stderr
    )


def draw_queries(shop: Catalogue, count: int) -> Iterator[tuple[str, str]]:
    """Yield kind and text of ``count`` queries, the kinds in turn.

    A kind that the catalogue has nothing for is left out, and the others have more queries.
    """
    kinds = list(_QUERY_KINDS)
    drawn = 0
    while kinds and drawn < count:
        kind = kinds[drawn % len(kinds)]
        query = _QUERY_KINDS[kind](shop, rng.generator("verify lucene", kind, drawn))
        if query is None:
            # Not every catalogue has instructions by people, or text that is not ASCII.
            kinds.remove(kind)
            continue
        drawn += 1
        yield kind, query


def _draw_product(shop: Catalogue, source: Random, fits: Callable[[Product], object]) -> Product | None:
    """Draw a product that ``fits``; None if none of ``_MAX_DRAWS`` draws does."""
    # Bounded: a catalogue may have no such product at all.
    tried = (shop.product(source.randrange(len(shop))) for _ in range(_MAX_DRAWS))
    return next((product for product in tried if fits(product)), None)


def _draw_words(shop: Catalogue, source: Random, count: int) -> list[str]:
    """Return ``count`` words, each of a product of its own; fewer where no product has text."""
    products = [
        _draw_product(shop, source, lambda product: product.searched_text.split()) for _ in range(count)
    ]
    return [source.choice(product.searched_text.split()) for product in products if product is not None]


def _draw_goal(shop: Catalogue, source: Random) -> str | None:
    """Return an instruction, worded as a goal's: a person's, or a synthetic one with an option of each kind."""
    product = _draw_product(shop, source, lambda product: product.instruction or product.human)
    if product is None:
        return None
    if product.human and (not product.instruction or source.random() < 0.5):
        return source.choice(product.human).text
    # In the words and the order of WebShop's synthetic goals: instruction, options, upper bound of the price.
    options = ", and ".join(
        f"{name}: {source.choice(values)}" for name, values in product.options if values
    )
    with_options = f" with {options}" if options else ""
    bound = f", and price lower than {source.randrange(10, 200, 10):.2f} dollars"
    return f"{product.instruction}{with_options}{bound}"


def _draw_partial_title(shop: Catalogue, source: Random) -> str | None:
    """Return a title without some of its words."""
    product = _draw_product(shop, source, lambda product: product.title.split())
    if product is None:
        return None
    words = product.title.split()
    kept_count = source.randint(1, len(words))
    kept = sorted(source.sample(range(len(words)), kept_count))
    return " ".join(words[index] for index in kept)


def _draw_word(shop: Catalogue, source: Random) -> str | None:
    return next(iter(_draw_words(shop, source, 1)), None)


def _draw_mixed_words(shop: Catalogue, source: Random) -> str | None:
    """Return words of several products, some more than once."""
    words = _draw_words(shop, source, source.randint(2, 15))
    if not words:
        return None
    # Repeated words: BM25 adds a term's weight once for each occurrence in the query.
    repeated = source.choices(words, k=source.randint(0, 3))
    return " ".join([*words, *repeated])


def _draw_joined_words(shop: Catalogue, source: Random) -> str | None:
    """Return words with marks between them instead of blanks: whether a mark divides words is up to Lucene's analyzer."""
    words = _draw_words(shop, source, source.randint(2, 5))
    return source.choice(_PUNCTUATION).join(words) if words else None


def _draw_non_ascii(shop: Catalogue, source: Random) -> str | None:
    """Return a stretch of text with a character that is not ASCII."""
    product = _draw_product(shop, source, lambda product: not product.searched_text.isascii())
    if product is None:
        return None
    words = product.searched_text.split()
    # None is left if the character is itself a blank, at which the text is split.
    foreign = [index for index, word in enumerate(words) if not word.isascii()] or [0]
    centre = source.choice(foreign)
    return " ".join(words[max(0, centre - 2) : centre + 3])


_QUERY_KINDS: dict[str, Callable[[Catalogue, Random], str | None]] = {
    "goal": _draw_goal,
    "title": _draw_partial_title,
    "word": _draw_word,
    "soup": _draw_mixed_words,
    "glued": _draw_joined_words,
    "foreign": _draw_non_ascii,
}
