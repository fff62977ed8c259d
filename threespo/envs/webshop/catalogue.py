"""A catalogue, compiled into memory-mapped arrays that all processes share.

A folder: heads and bodies of the products as JSON texts, their prices, categories and search queries, the order of their
asins, and the inverted index. It is written whole or not at all, and never changed.
"""

import functools
import hashlib
import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from threespo.envs.webshop.blobs import Blobs, BlobWriter
from threespo.envs.webshop.bm25 import SearchIndex
from threespo.envs.webshop.indexing import IndexWriter
from threespo.envs.webshop.products import HumanInstruction, Product
from threespo.errors import InputError
from threespo.files import replace_folder, write_json

FORMAT = 3
# Written last: a folder without it is no catalogue.
_META = "catalogue.json"
# Episodes of a group visit the same products, so decoded records are kept.
_REMEMBERED = 1 << 12


def compile_catalogue(products: Iterable[Product], out: Path) -> dict[str, Any]:
    """Write the catalogue of products to a folder and return its facts.

    Args:
        products: in the order of their numbers; each is dropped once it is written.
        out: the folder; written whole or not at all.

    Raises:
        InputError: if there is no product, none has a searchable text, or two have the same asin.
    """
    with replace_folder(out) as folder:
        heads = BlobWriter(folder, "heads")
        bodies = BlobWriter(folder, "bodies")
        index = IndexWriter(folder)
        tables = _Tables()
        digest = hashlib.sha256()

        for product in products:
            # Result pages need asin, title and price tag alone, so these are kept apart from the rest.
            head = _dump(product[:3])
            body = _dump(product[3:])
            heads.append(head)
            bodies.append(body)
            digest.update(head + body)
            index.append(product.searched_text)
            tables.append(product)
        if not index.documents:
            raise InputError(
                f"{out}: no product to sell, or none with a searchable text; give a catalogue with products"
            )

        heads.close()
        bodies.close()
        index.close()
        tables.save(folder)

        facts = {
            "format": FORMAT,
            "products": len(tables.asins),
            "indexed": index.documents,
            "terms": index.total_terms,
            "sha256": digest.hexdigest(),
            "categories": list(tables.categories),
            "queries": list(tables.queries),
        }
        write_json(folder / _META, facts)
    return facts


class _Tables:
    """What is kept of each product in arrays."""

    def __init__(self) -> None:
        self.asins: list[bytes] = []
        self.categories: dict[str, int] = {}
        self.queries: dict[str, int] = {}
        self._prices = array("d")
        self._kinds = array("i")
        self._synthetic = array("i")
        self._human = array("i")

    def append(self, product: Product) -> None:
        number = len(self.asins)
        self.asins.append(product.asin.encode())
        self._prices.extend(
            (product.prices[0], product.prices[1] if len(product.prices) > 1 else math.nan)
        )
        self._kinds.append(self.categories.setdefault(product.category, len(self.categories)))
        self._kinds.append(self.queries.setdefault(product.query, len(self.queries)))
        if product.instruction is not None:
            self._synthetic.append(number)
        if product.human:
            self._human.append(number)

    def save(self, folder: Path) -> None:
        asins = np.array(self.asins)
        order = np.argsort(asins, kind="stable").astype(np.int32)
        twice = np.flatnonzero(asins[order[1:]] == asins[order[:-1]])
        if len(twice):
            raise InputError(
                f"two products have the asin {asins[order[twice[0]]].decode()}; an asin must be unique"
            )

        # The inverse permutation; search breaks ties by it without comparing texts.
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order), dtype=np.int32)

        tables = {
            "order": order,
            "rank": rank,
            "prices": np.array(self._prices).reshape(-1, 2),
            "kinds": np.array(self._kinds).reshape(-1, 2),
            "synthetic": np.array(self._synthetic),
            "human": np.array(self._human),
        }
        for name, table in tables.items():
            np.save(folder / f"{name}.npy", table)


def _dump(values: Any) -> bytes:
    # Real texts may hold halves of surrogate pairs, which strict UTF-8 refuses.
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


class SearchEngine(Protocol):
    """Finds products."""

    def search(self, query: str) -> tuple[int, ...]:
        """Return the numbers of at most 50 products, best first."""


def is_catalogue(folder: Path) -> bool:
    """Return whether there is a compiled catalogue in ``folder``."""
    return (folder / _META).is_file()


class Catalogue:
    """A compiled catalogue. Products are numbered in the order in which they were compiled."""

    def __init__(
        self, folder: Path, engine: "Callable[[Catalogue], SearchEngine] | None" = None
    ) -> None:
        """Open a compiled catalogue.

        Args:
            folder: where it is.
            engine: makes another search engine than that of the catalogue's own index.

        Raises:
            InputError: if there is none, or a broken one, or one of another version.
        """
        self.folder = folder
        self._engine = engine
        try:
            self.facts: dict[str, Any] = json.loads((folder / _META).read_text(encoding="utf-8"))
            if self.facts["format"] != FORMAT:
                raise InputError(
                    f"{folder}: a catalogue of another version; remove it and prepare the data again"
                )
            self._heads = Blobs(folder, "heads")
            self._bodies = Blobs(folder, "bodies")
            self._order = np.load(folder / "order.npy", mmap_mode="r")
            self.prices: np.ndarray = np.load(folder / "prices.npy", mmap_mode="r")
            """(products, 2): the ends of the price range as written; the second is NaN for a single price."""
            self._kinds = np.load(folder / "kinds.npy", mmap_mode="r")
            self._goals = {name: np.load(folder / f"{name}.npy") for name in ("synthetic", "human")}
            rank = np.load(folder / "rank.npy", mmap_mode="r")
            self.index: SearchEngine = SearchIndex(
                folder, rank, self.facts["terms"], self.facts["indexed"]
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{folder}: no compiled catalogue, or a broken one ({error}); remove it and prepare the data again"
            ) from error

        self.product = functools.lru_cache(maxsize=_REMEMBERED)(self._product)
        self.head = functools.lru_cache(maxsize=_REMEMBERED)(self._head)
        if engine is not None:
            self.index = engine(self)

    def __len__(self) -> int:
        return len(self._heads)

    def __reduce__(self) -> tuple[Any, ...]:
        # Each process maps the files itself: the pages of memory are shared, and nothing large is pickled.
        return Catalogue, (self.folder, self._engine)

    def _head(self, number: int) -> tuple[str, str, str]:
        """Return asin, title and price tag of a product."""
        asin, title, tag = json.loads(self._heads[number].decode("utf-8", "surrogatepass"))
        return asin, title, tag

    def _product(self, number: int) -> Product:
        """Return a product."""
        (
            prices,
            category,
            query,
            kind,
            description,
            bullets,
            options,
            attributes,
            instruction,
            wanted,
            human,
        ) = json.loads(self._bodies[number].decode("utf-8", "surrogatepass"))
        return Product(
            *self.head(number),
            tuple(prices),
            category,
            query,
            kind,
            description,
            tuple(bullets),
            tuple((name, tuple(values)) for name, values in options),
            tuple(attributes),
            instruction,
            tuple(wanted),
            tuple(HumanInstruction(text, tuple(found), tuple(chosen)) for text, found, chosen in human),
        )

    def number_of(self, asin: str) -> int | None:
        """Return the number of the product with this asin, or None."""
        # Bisection on the order of asins: a table of all of them would take memory in every process.
        low = 0
        high = len(self)
        while low < high:
            middle = (low + high) // 2
            if self.head(int(self._order[middle]))[0] < asin:
                low = middle + 1
            else:
                high = middle
        number = int(self._order[low]) if low < len(self) else -1
        return number if number >= 0 and self.head(number)[0] == asin else None

    def with_goals(self, kind: str) -> Iterator[tuple[int, Product]]:
        """Yield number and product of those with goals, in order; ``kind`` is synthetic or human."""
        return ((int(number), self.product(int(number))) for number in self._goals[kind])

    def products_in_category(self, category: str) -> tuple[int, ...]:
        """Return all products of a category, in order."""
        return self._of_kind(0, "categories", category)

    def products_of_query(self, query: str) -> tuple[int, ...]:
        """Return all products that were once found by this query, in order."""
        return self._of_kind(1, "queries", query)

    def _of_kind(self, column: int, labels: str, label: str) -> tuple[int, ...]:
        if label not in self.facts[labels]:
            return ()
        wanted = self.facts[labels].index(label)
        return tuple(np.flatnonzero(self._kinds[:, column] == wanted).tolist())
