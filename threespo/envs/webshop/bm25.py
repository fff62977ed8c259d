"""Search as Lucene ranks it: BM25 in float32 over byte-quantised document lengths.

The inverted index is a list of postings per term: document numbers, and for each the code of its pair (occurrences of the
term, quantised length). A term has few different pairs, so its scores are computed once per pair and looked up.
"""

import functools
import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.bitmaps import Bitmaps, documents_of
from threespo.envs.webshop.blobs import Blobs

# The defaults of pyserini, which the original's search engine keeps.
K1 = np.float32(0.9)
B = np.float32(0.4)
# WebShop's SEARCH_RETURN_N: a search finds at most so many products, on all result pages together.
MAX_HITS = 50
# Lucene's SmallFloat stores the lengths below 40 without loss: 24 codes of its own, then four significant bits.
_EXACT_LENGTHS = 24
_QUERY_CACHE_SIZE = 1 << 12
_TERM_CACHE_SIZE = 1 << 16
# What is scored in full to get a threshold from: products of rare terms, and words of 64 products of frequent ones.
_SEEDS = 128
# Postings: how many are added in one go, and how many are all added in less time than candidates could be found.
_MAX_BATCHED_POSTINGS = 1 << 12
_MAX_POSTINGS_TO_ADD = 1 << 16
# A product that is looked up in a list takes as long as this many that are added with all the list.
_LOOKUP_COST = 8
_NOTHING = np.empty(0, dtype=np.int32)
# Covers the rounding of sums, and of a sum to float32.
_ROUNDING_SLACK = 1 - 1e-6


class _QueryTerm(NamedTuple):
    """A term of a query; ``length`` is first, so that sorting puts rare terms first."""

    length: int
    start: int
    """Of its postings."""
    row: int
    """Of its bitmap, -1 for a rare term."""
    weight: float
    bound: float
    """The most that it can add to a score."""


def quantise(length: int) -> int:
    """Return Lucene's byte for a document of ``length`` terms: exact below 40, then four significant bits."""
    if length < _EXACT_LENGTHS:
        return length
    rest = length - _EXACT_LENGTHS
    shift = rest.bit_length() - 4
    if shift < 0:
        return _EXACT_LENGTHS + rest
    # A float of three stored bits and an exponent; the leading one is implied.
    mantissa = rest >> shift & 7
    return _EXACT_LENGTHS + (mantissa | (shift + 1) << 3)


def dequantise(byte: int) -> int:
    """Return the smallest length with this byte."""
    if byte < _EXACT_LENGTHS:
        return byte
    bits = (byte - _EXACT_LENGTHS) & 7
    shift = ((byte - _EXACT_LENGTHS) >> 3) - 1
    return _EXACT_LENGTHS + (bits if shift < 0 else (bits | 8) << shift)


def length_norms(total_terms: int, documents: int) -> np.ndarray:
    """Return 1 / (k1 (1 − b + b · length / mean length)) for all 256 length bytes, float32, (256,).

    Args:
        total_terms: terms of all documents together.
        documents: documents with at least one term.
    """
    # All in float32 and in Lucene's order of operations: one bit of difference would swap products of nearly equal scores.
    one = np.float32(1)
    mean = np.float32(total_terms / max(documents, 1)) or one
    lengths = np.array([dequantise(byte) for byte in range(256)], dtype=np.float32)
    saturation = K1 * ((one - B) + B * lengths / mean)
    return one / saturation


def code_type(pairs: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of the codes of this many pairs."""
    return np.uint16 if pairs <= 1 << 16 else np.uint32


def _fiftieth_best(scores: np.ndarray) -> float:
    """Return the 50th highest score, zero if there are fewer."""
    place = len(scores) - MAX_HITS
    return float(np.partition(scores, place)[place]) if place >= 0 else 0.0


def _distinct(*documents: np.ndarray) -> np.ndarray:
    """Return the different ones of all documents, ascending."""
    # Numpy's own function puts them into a hash table; a stable sort merges what is sorted.
    ordered = np.sort(np.concatenate(documents), kind="stable")
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    distinct: np.ndarray = ordered[new]
    return distinct


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
        self._terms = Blobs(folder, "terms")
        self._bitmaps = Bitmaps(folder)
        # Plain arrays over the mapped files: slices of numpy's own class for these are slow.
        self._starts = np.asarray(np.load(folder / "starts.npy", mmap_mode="r"))
        self._strongest = np.asarray(np.load(folder / "strongest.npy", mmap_mode="r"))
        """For each term, the pair with its highest score."""
        pairs = np.load(folder / "pairs.npy")
        self._documents = np.asarray(np.memmap(folder / "documents.bin", dtype=np.int32, mode="r"))
        self._codes = np.asarray(np.memmap(folder / "codes.bin", dtype=code_type(len(pairs)), mode="r"))

        norms = length_norms(total_terms, documents)
        occurrences = pairs[:, 0].astype(np.float32)
        self._divisors = np.float32(1) + occurrences * norms[pairs[:, 1]]
        """For each pair, 1 + occurrences times length norm."""

        self._rank = np.asarray(rank)
        self._count = len(rank)
        self._indexed = documents

        self.search = functools.lru_cache(maxsize=_QUERY_CACHE_SIZE)(self._search)
        self._query_term = functools.lru_cache(maxsize=_TERM_CACHE_SIZE)(self._make_query_term)
        # Zeros to add up scores in, each array for one search at a time: new ones cost more than the sums.
        self._zeros = [np.full(self._count, 0.0)]

    def _search(self, query: str) -> tuple[int, ...]:
        """Return the numbers of at most 50 products, best first; ties go by asin.

        The rare terms are scored in full, the frequent ones only where they matter.
        """
        counted = Counter(terms(query))
        found = (self._query_term(term, repeats) for term, repeats in counted.items())
        lists = sorted(item for item in found if item is not None)
        if not lists:
            return ()

        scores = self._zeros.pop() if self._zeros else np.zeros(self._count)
        # The longest list is the last one. Without a bitmap, a term cannot be looked up.
        postings = sum(item.length for item in lists)
        add_all = lists[-1].row < 0 or postings <= _MAX_POSTINGS_TO_ADD
        score_candidates = self._score_by_adding if add_all else self._score_by_pruning
        candidates, totals = score_candidates(scores, lists)
        self._zeros.append(scores)
        return self._best(candidates, totals.astype(np.float32))

    def _score_by_adding(
        self, scores: np.ndarray, lists: list[_QueryTerm]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates and their scores: products that are as good as the 50th best of one term."""
        self._add(scores, lists)
        seeds = next((item for item in lists if item.length > _MAX_BATCHED_POSTINGS), lists[-1])
        # Scores never fall by a term, so the 50th best among some products is a lower bound of the 50th best of all.
        threshold = _fiftieth_best(scores[self._postings(seeds)[0]]) * _ROUNDING_SLACK
        # Clearing the whole array is cheaper than clearing places one by one once there are many of them.
        if sum(item.length for item in lists) * _LOOKUP_COST > len(scores):
            candidates = np.flatnonzero(scores >= threshold if threshold else scores > 0)
            totals = scores[candidates]
            scores.fill(0)
        else:
            touched = self._find_touched(lists)
            candidates = _distinct(touched[scores[touched] >= threshold])
            totals = scores[candidates]
            scores[touched] = 0
        return candidates, totals

    def _find_touched(self, lists: list[_QueryTerm]) -> np.ndarray:
        """Return the products with any of these terms, one once for each of its terms."""
        return np.concatenate([_NOTHING, *(self._postings(item)[0] for item in lists)])

    def _score_by_pruning(
        self, scores: np.ndarray, lists: list[_QueryTerm]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates and their scores, the rare terms added, the frequent ones looked up where they matter.

        Products that have most of the terms give a threshold; candidates are those that can get over it.
        """
        rare = [item for item in lists if item.row < 0]
        frequent = lists[len(rare) :]
        self._add(scores, rare)
        touched = self._find_touched(rare)
        so_far = scores[touched]

        falling = sorted(frequent, key=lambda item: -item.bound)
        rows = [item.row for item in falling]
        bounds = [item.bound for item in falling]
        best = touched
        if len(touched) > _SEEDS:
            best = touched[np.argpartition(so_far, -_SEEDS)[-_SEEDS:]]
        seeds = _distinct(best, documents_of(self._bitmaps.common(rows, MAX_HITS), _SEEDS))
        threshold = (
            _fiftieth_best(self._look_up_scores(scores, seeds, frequent, 0.0)[1]) * _ROUNDING_SLACK
        )

        # Dropped are products that would stay under the threshold even with the most that each frequent term can add.
        able = touched[so_far >= threshold - sum(bounds)]
        candidates = documents_of(self._bitmaps.reaching(rows, bounds, threshold))
        if len(able):
            candidates = _distinct(able, candidates)
        if len(candidates) * len(frequent) * _LOOKUP_COST < sum(item.length for item in frequent):
            found = self._look_up_scores(scores, candidates, frequent, threshold)
            scores[touched] = 0
            return found

        self._add(scores, frequent)
        totals = scores[candidates]
        scores.fill(0)
        return candidates, totals

    def _make_query_term(self, term: str, repeats: int) -> _QueryTerm | None:
        """Return the postings and weight of a term that occurs ``repeats`` times in the query; None if no product has it."""
        number = self._terms.find(term.encode("utf-8", "surrogatepass"))
        if number is None:
            return None
        start = int(self._starts[number])
        length = int(self._starts[number + 1]) - start

        # Lucene takes the logarithm in double precision, and rounds to float32 before it multiplies.
        rarity = math.log(1 + (self._indexed - length + 0.5) / (length + 0.5))
        weight = np.float32(repeats) * np.float32(rarity)
        # Lucene's form of weight · f / (f + 1 / norm), f the occurrences, here and below: other forms round otherwise.
        bound = weight - weight / self._divisors[self._strongest[number]]
        return _QueryTerm(length, start, self._bitmaps.row(number), float(weight), float(bound))

    def _postings(self, item: _QueryTerm) -> tuple[np.ndarray, np.ndarray]:
        postings = slice(item.start, item.start + item.length)
        return self._documents[postings], self._codes[postings]

    def _add(self, scores: np.ndarray, lists: list[_QueryTerm]) -> None:
        """Add the scores of several terms, the first of them in one go."""
        ends = itertools.accumulate(item.length for item in lists)
        together = sum(end <= _MAX_BATCHED_POSTINGS for end in ends)

        # Each term's score is a float32, their sum a float64, as in Lucene.
        if together:
            documents, codes = map(
                np.concatenate, zip(*map(self._postings, lists[:together]), strict=True)
            )
            lengths = [item.length for item in lists[:together]]
            weight = np.repeat(
                np.array([item.weight for item in lists[:together]], dtype=np.float32), lengths
            )
            np.add.at(scores, documents, (weight - weight / self._divisors[codes]).astype(np.float64))

        for item in lists[together:]:
            documents, codes = self._postings(item)
            of_pair = item.weight - item.weight / self._divisors
            np.add.at(scores, documents, of_pair.astype(np.float64).take(codes))

    def _look_up_scores(
        self, scores: np.ndarray, documents: np.ndarray, lists: list[_QueryTerm], need: float
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
        # Equal scores go by asin: pyserini breaks ties by the document's id. So all that tie with the 50th take part.
        if len(candidates) > MAX_HITS:
            kept = scores >= _fiftieth_best(scores)
            candidates = candidates[kept]
            scores = scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:MAX_HITS]
        return tuple(candidates[order].tolist())
