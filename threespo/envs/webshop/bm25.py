"""Search as Lucene ranks it: BM25 in float32 over byte-quantised document lengths.

The inverted index is a list of postings per term: document numbers, and for each the code of its pair (occurrences of the
term, quantised length). A term has few different pairs, so its scores are computed once per pair and looked up.
"""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.bitmaps import Bitmaps, documents_of
from threespo.envs.webshop.blobs import Blobs

K1, B = np.float32(0.9), np.float32(0.4)
HITS = 50
_EXACT_LENGTHS = 24
_REMEMBERED = 1 << 12
_REMEMBERED_TERMS = 1 << 16
# Products scored in full to get a threshold from, of the rare and of the frequent terms each.
_SEEDS = 128
# A product that is looked up in a list takes as long as this many that are added with all the list.
_FAR_FEWER = 8
_NOTHING = np.empty(0, dtype=np.int32)
# Covers the rounding of sums, and of a sum to float32.
_NEARLY = 1 - 1e-6


class _List(NamedTuple):
    """A term of a query."""

    length: int
    start: int
    """Of its postings."""
    row: int | None
    """Of its bitmap, None for a rare term."""
    weight: float
    bound: float
    """The most that it can add to a score."""


def quantise(length: int) -> int:
    """Return Lucene's byte for a document of ``length`` terms: exact below 40, then four significant bits."""
    if length < _EXACT_LENGTHS:
        return length
    rest = length - _EXACT_LENGTHS
    shift = rest.bit_length() - 4
    return _EXACT_LENGTHS + (rest if shift < 0 else (rest >> shift & 7) | (shift + 1) << 3)


def dequantise(byte: int) -> int:
    """Return the smallest length with this byte."""
    if byte < _EXACT_LENGTHS:
        return byte
    bits, shift = (byte - _EXACT_LENGTHS) & 7, ((byte - _EXACT_LENGTHS) >> 3) - 1
    return _EXACT_LENGTHS + (bits if shift < 0 else (bits | 8) << shift)


def length_norms(total_terms: int, documents: int) -> np.ndarray:
    """Return 1 / (k1 (1 − b + b · length / mean length)) for all 256 length bytes, float32, (256,).

    Args:
        total_terms: terms of all documents together.
        documents: documents with at least one term.
    """
    mean = np.float32(total_terms / max(documents, 1))
    lengths = np.array([dequantise(byte) for byte in range(256)], dtype=np.float32)
    one = np.float32(1)
    return one / (K1 * ((one - B) + B * lengths / (mean or one)))


def code_type(pairs: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of the codes of this many pairs."""
    return np.uint16 if pairs <= 1 << 16 else np.uint32


def _hits_th(scores: np.ndarray) -> float:
    """Return the 50th highest score, zero if there are fewer."""
    place = len(scores) - HITS
    return float(np.partition(scores, place)[place]) if place >= 0 else 0.0


def _distinct(*documents: np.ndarray) -> np.ndarray:
    """Return the different ones of all documents, ascending."""
    # Neither numpy's own function, which puts them into a hash table, nor an unstable sort, which does not merge what is sorted.
    ordered = np.sort(np.concatenate(documents), kind="stable")
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


class SearchIndex:
    """A memory-mapped inverted index. Equal queries have equal answers; the latest are remembered."""

    def __init__(self, folder: Path, rank: np.ndarray, total_terms: int, documents: int) -> None:
        """Open the index that ``IndexWriter`` wrote.

        Args:
            folder: where it is.
            rank: place of each product in the order of asins, (products,), which decides ties.
            total_terms: terms of all documents together.
            documents: documents with at least one term.
        """
        self._terms, self._bitmaps = Blobs(folder, "terms"), Bitmaps(folder)
        # Plain arrays over the mapped files: slices of numpy's own class for these are slow.
        self._starts = np.asarray(np.load(folder / "starts.npy", mmap_mode="r"))
        self._strongest = np.asarray(np.load(folder / "strongest.npy", mmap_mode="r"))
        """For each term, the pair with its highest score."""
        pairs = np.load(folder / "pairs.npy")
        self._documents = np.asarray(np.memmap(folder / "documents.bin", dtype=np.int32, mode="r"))
        self._codes = np.asarray(np.memmap(folder / "codes.bin", dtype=code_type(len(pairs)), mode="r"))

        norms = length_norms(total_terms, documents)
        self._divisors = np.float32(1) + pairs[:, 0].astype(np.float32) * norms[pairs[:, 1]]
        """For each pair, 1 + occurrences times length norm."""

        self._rank, self._count, self._indexed = np.asarray(rank), len(rank), documents
        self.search = functools.lru_cache(maxsize=_REMEMBERED)(self._search)
        self._list = functools.lru_cache(maxsize=_REMEMBERED_TERMS)(self._make_list)
        # Zeros to add up scores in, each array for one search at a time: new ones cost more than the sums.
        self._zeros = [np.full(self._count, 0.0)]

    def _search(self, query: str) -> tuple[int, ...]:
        """Return the numbers of at most 50 products, best first; ties go by asin.

        The rare terms are scored in full, the frequent ones only where they matter.
        """
        counted = Counter(terms(query))
        lists = sorted(item for term, repeats in counted.items() if (item := self._list(term, repeats)))
        if not lists:
            return ()

        rare = [item for item in lists if item.row is None]
        frequent = lists[len(rare) :]
        scores = self._zeros.pop() if self._zeros else np.zeros(self._count)
        touched = self._add_together(scores, rare) if rare else _NOTHING
        if frequent:
            candidates, totals = self._with_frequent(scores, touched, frequent)
        else:
            candidates = self._of_rare(scores, touched, rare[-1])
            totals = scores[candidates]
        scores[touched] = 0
        self._zeros.append(scores)
        return self._best(candidates, totals.astype(np.float32))

    def _of_rare(self, scores: np.ndarray, touched: np.ndarray, longest: _List) -> np.ndarray:
        """Return those of ``touched``, which may name a product twice, that are as good as the 50th best of one term."""
        threshold = _hits_th(scores[self._postings(longest)[0]]) * _NEARLY
        return _distinct(touched[scores[touched] >= threshold])

    def _with_frequent(
        self, scores: np.ndarray, touched: np.ndarray, frequent: list[_List]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates and what they score in full; ``scores`` has the rare terms alone, which ``touched`` have.

        Products that have most of the terms give a threshold; candidates are those that can get over it.
        """
        falling = sorted(frequent, key=lambda item: -item.bound)
        rows, bounds = [item.row for item in falling], [item.bound for item in falling]
        so_far = scores[touched]
        best = touched[np.argpartition(so_far, -_SEEDS)[-_SEEDS:]] if len(touched) > _SEEDS else touched
        seeds = _distinct(best, documents_of(self._bitmaps.common(rows, HITS), _SEEDS))
        threshold = _hits_th(self._looked_up(scores, seeds, frequent, 0.0)[1]) * _NEARLY

        able = touched[so_far >= threshold - sum(bounds)]
        candidates = documents_of(self._bitmaps.reaching(rows, bounds, threshold))
        if len(able):
            candidates = _distinct(able, candidates)
        if len(candidates) * len(frequent) * _FAR_FEWER < sum(item.length for item in frequent):
            return self._looked_up(scores, candidates, frequent, threshold)

        for item in frequent:
            self._add(scores, item)
        totals = scores[candidates]
        scores.fill(0)
        kept = totals >= threshold
        return candidates[kept], totals[kept]

    def _make_list(self, term: str, repeats: int) -> _List | None:
        """Return what there is of a term that stands ``repeats`` times in the query."""
        number = self._terms.find(term.encode("utf-8", "surrogatepass"))
        if number is None:
            return None
        start = int(self._starts[number])
        length = int(self._starts[number + 1]) - start

        rarity = math.log(1 + (self._indexed - length + 0.5) / (length + 0.5))
        weight = np.float32(repeats) * np.float32(rarity)
        # Lucene's form of weight · f / (f + 1 / norm), f the occurrences, here and below: other forms round otherwise.
        bound = weight - weight / self._divisors[self._strongest[number]]
        return _List(length, start, self._bitmaps.row(number), float(weight), float(bound))

    def _postings(self, item: _List) -> tuple[np.ndarray, np.ndarray]:
        postings = slice(item.start, item.start + item.length)
        return self._documents[postings], self._codes[postings]

    def _add_together(self, scores: np.ndarray, lists: list[_List]) -> np.ndarray:
        """Add the scores of several terms and return whose they are, a product once for each of its terms."""
        documents, codes = map(np.concatenate, zip(*map(self._postings, lists), strict=True))
        lengths = [item.length for item in lists]
        weight = np.repeat(np.array([item.weight for item in lists], dtype=np.float32), lengths)
        # Each term's score is a float32, their sum a float64, as in Lucene.
        np.add.at(scores, documents, (weight - weight / self._divisors[codes]).astype(np.float64))
        return documents

    def _add(self, scores: np.ndarray, item: _List) -> None:
        """Add the scores of a term with many postings."""
        weight, (documents, codes) = item.weight, self._postings(item)
        np.add.at(scores, documents, (weight - weight / self._divisors).astype(np.float64).take(codes))

    def _looked_up(
        self, scores: np.ndarray, documents: np.ndarray, lists: list[_List], need: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return those of ``documents`` that can reach ``need``, and their scores with those of frequent terms."""
        _, starts, rows, weights, bounds = map(np.array, zip(*lists, strict=True))
        have, places = self._bitmaps.look_up(rows, documents)
        totals = scores[documents]
        able = totals + np.add.reduce(have * bounds[:, None]) >= need

        # In the order of terms, so that sums are the same as of whole lists.
        found = np.flatnonzero(have & able)
        of_list, of_document = np.divmod(found, len(documents))
        weight = weights.astype(np.float32)[of_list]
        codes = self._codes[(places + starts[:, None]).take(found)]
        np.add.at(totals, of_document, (weight - weight / self._divisors[codes]).astype(np.float64))
        return documents[able], totals[able]

    def _best(self, candidates: np.ndarray, scores: np.ndarray) -> tuple[int, ...]:
        if len(candidates) > HITS:
            kept = scores >= _hits_th(scores)
            candidates, scores = candidates[kept], scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:HITS]
        return tuple(candidates[order].tolist())
