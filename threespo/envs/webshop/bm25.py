"""Search as Lucene ranks it: BM25 in float32 over byte-quantised document lengths.

The inverted index is a list of postings per term: document numbers, and for each the code of its pair (occurrences of the
term, quantised length). A term has few different pairs, so its scores are computed once per pair and looked up.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
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
    position = len(scores) - MAX_HITS
    if position < 0:
        return 0.0
    return float(np.partition(scores, position)[position])


def _distinct(*documents: np.ndarray) -> np.ndarray:
    """Return the different ones of all documents, ascending."""
    # Numpy's own function puts them into a hash table; a stable sort merges what is sorted.
    ordered = np.sort(np.concatenate(documents), kind="stable")
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    distinct: np.ndarray = ordered[is_first]
    return distinct


def _count_postings(lists: Sequence[_QueryTerm]) -> int:
    return sum(query_term.length for query_term in lists)


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
        pairs = np.load(folder / "pairs.npy")
        starts = np.load(folder / "starts.npy", mmap_mode="r")
        strongest = np.load(folder / "strongest.npy", mmap_mode="r")
        documents_file = np.memmap(folder / "documents.bin", dtype=np.int32, mode="r")
        codes_file = np.memmap(folder / "codes.bin", dtype=code_type(len(pairs)), mode="r")
        self._starts = np.asarray(starts)
        """Where the postings of each term begin."""
        self._strongest = np.asarray(strongest)
        """For each term, the pair with its highest score."""
        self._documents = np.asarray(documents_file)
        """For each posting, the number of its product."""
        self._codes = np.asarray(codes_file)
        """For each posting, the code of its pair."""

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
        repeats = Counter(terms(query))
        found = [self._query_term(term, count) for term, count in repeats.items()]
        lists = sorted(query_term for query_term in found if query_term is not None)
        if not lists:
            return ()

        scores = self._zeros.pop() if self._zeros else np.zeros(self._count)
        # The longest list is the last one. Without a bitmap, a term cannot be looked up.
        has_frequent_term = lists[-1].row >= 0
        if has_frequent_term and _count_postings(lists) > _MAX_POSTINGS_TO_ADD:
            candidates, totals = self._score_by_pruning(scores, lists)
        else:
            candidates, totals = self._score_by_adding(scores, lists)
        self._zeros.append(scores)
        return self._best(candidates, totals.astype(np.float32))

    def _score_by_adding(
        self, scores: np.ndarray, lists: list[_QueryTerm]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates and their scores: products that are as good as the 50th best of one term."""
        self._add(scores, lists)
        # Scores never fall by a term, so the 50th best among some products is a lower bound of the 50th best of all.
        long_lists = [query_term for query_term in lists if query_term.length > _MAX_BATCHED_POSTINGS]
        seed_term = long_lists[0] if long_lists else lists[-1]
        seeds, _ = self._postings(seed_term)
        threshold = _fiftieth_best(scores[seeds]) * _ROUNDING_SLACK

        # Clearing the whole array is cheaper than clearing places one by one once there are many of them.
        if _count_postings(lists) * _LOOKUP_COST > len(scores):
            is_candidate = scores >= threshold if threshold else scores > 0
            candidates = np.flatnonzero(is_candidate)
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
        documents = [self._postings(query_term)[0] for query_term in lists]
        return np.concatenate([_NOTHING, *documents])

    def _score_by_pruning(
        self, scores: np.ndarray, lists: list[_QueryTerm]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates and their scores, the rare terms added, the frequent ones looked up where they matter.

        Products that have most of the terms give a threshold; candidates are those that can get over it.
        """
        rare = [query_term for query_term in lists if query_term.row < 0]
        frequent = lists[len(rare) :]
        self._add(scores, rare)
        touched = self._find_touched(rare)
        rare_scores = scores[touched]

        # The threshold: the 50th best of some products that are probably good ones.
        by_bound = sorted(frequent, key=lambda query_term: -query_term.bound)
        rows = [query_term.row for query_term in by_bound]
        bounds = [query_term.bound for query_term in by_bound]
        best_by_rare = touched
        if len(touched) > _SEEDS:
            best_positions = np.argpartition(rare_scores, -_SEEDS)[-_SEEDS:]
            best_by_rare = touched[best_positions]
        best_by_frequent = documents_of(self._bitmaps.common(rows, MAX_HITS), _SEEDS)
        seeds = _distinct(best_by_rare, best_by_frequent)
        _, seed_scores = self._look_up_scores(scores, seeds, frequent, 0.0)
        threshold = _fiftieth_best(seed_scores) * _ROUNDING_SLACK

        # Dropped are products that would stay under the threshold even with the most that each frequent term can add.
        can_reach = touched[rare_scores >= threshold - sum(bounds)]
        candidates = documents_of(self._bitmaps.reaching(rows, bounds, threshold))
        if len(can_reach):
            candidates = _distinct(can_reach, candidates)

        # The cheaper of two ways: look the candidates up in the frequent terms' lists, or add the whole lists.
        look_ups = len(candidates) * len(frequent)
        if look_ups * _LOOKUP_COST < _count_postings(frequent):
            found = self._look_up_scores(scores, candidates, frequent, threshold)
            scores[touched] = 0
            return found

        self._add(scores, frequent)
        totals = scores[candidates]
        scores.fill(0)
        return candidates, totals

    def _make_query_term(self, term: str, repeats: int) -> _QueryTerm | None:
        """Return the postings and weight of a term that occurs ``repeats`` times in the query; None if no product has it."""
        # A query may hold a lone surrogate, which plain UTF-8 refuses.
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

    def _postings(self, query_term: _QueryTerm) -> tuple[np.ndarray, np.ndarray]:
        """Return the products with a term, ascending, and the codes of their pairs."""
        postings = slice(query_term.start, query_term.start + query_term.length)
        return self._documents[postings], self._codes[postings]

    def _add(self, scores: np.ndarray, lists: list[_QueryTerm]) -> None:
        """Add the scores of several terms, the first of them in one go."""
        ends = itertools.accumulate(query_term.length for query_term in lists)
        batch_size = sum(end <= _MAX_BATCHED_POSTINGS for end in ends)
        batch = lists[:batch_size]

        # Each term's score is a float32, their sum a float64, as in Lucene.
        if batch:
            postings = [self._postings(query_term) for query_term in batch]
            documents = np.concatenate([documents for documents, _ in postings])
            codes = np.concatenate([codes for _, codes in postings])
            weights = np.array([query_term.weight for query_term in batch], dtype=np.float32)
            lengths = [query_term.length for query_term in batch]
            weight = np.repeat(weights, lengths)
            added = weight - weight / self._divisors[codes]
            np.add.at(scores, documents, added.astype(np.float64))

        # A long list has more postings than there are pairs, so the score is computed for each pair.
        for query_term in lists[batch_size:]:
            documents, codes = self._postings(query_term)
            score_of_pair = query_term.weight - query_term.weight / self._divisors
            np.add.at(scores, documents, score_of_pair.astype(np.float64).take(codes))

    def _look_up_scores(
        self, scores: np.ndarray, documents: np.ndarray, lists: list[_QueryTerm], need: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return those of ``documents`` that can reach ``need``, and their scores with those of frequent terms."""
        starts = np.array([query_term.start for query_term in lists])
        rows = np.array([query_term.row for query_term in lists])
        weights = np.array([query_term.weight for query_term in lists], dtype=np.float32)
        bounds = np.array([query_term.bound for query_term in lists])
        # Both are (terms, documents).
        has_term, positions = self._bitmaps.look_up(rows, documents)
        totals = scores[documents]
        most_added = np.add.reduce(has_term * bounds[:, None])
        can_reach = totals + most_added >= need

        # In the order of terms, so that sums are the same as of whole lists.
        found = np.flatnonzero(has_term & can_reach)
        term_index, document_index = np.divmod(found, len(documents))
        weight = weights[term_index]
        postings = (positions + starts[:, None]).take(found)
        added = weight - weight / self._divisors[self._codes[postings]]
        np.add.at(totals, document_index, added.astype(np.float64))
        return documents[can_reach], totals[can_reach]

    def _best(self, candidates: np.ndarray, scores: np.ndarray) -> tuple[int, ...]:
        # Equal scores go by asin: pyserini breaks ties by the document's id. So all that tie with the 50th take part.
        if len(candidates) > MAX_HITS:
            kept = scores >= _fiftieth_best(scores)
            candidates = candidates[kept]
            scores = scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:MAX_HITS]
        return tuple(candidates[order].tolist())
