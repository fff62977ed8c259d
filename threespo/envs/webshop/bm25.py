"""Search as Lucene ranks it: BM25 in float32 over byte-quantised document lengths.

The inverted index is a list of postings per term: document numbers, and for each the code of its pair (occurrences of the
term, quantised length). A term has few different pairs, so its scores are computed once per pair and looked up.
"""

import functools
import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.blobs import Blobs

K1, B = np.float32(0.9), np.float32(0.4)
HITS = 50
_EXACT_LENGTHS = 24
_REMEMBERED = 1 << 12
_REMEMBERED_TERMS = 1 << 16
# Postings: how many are added in one go, and how many at least make it worth while to look for candidates before.
_TOGETHER = 1 << 12
_LONG = 1 << 15
_FAR_FEWER = 16
# Covers the rounding of sums, and of a sum to float32.
_NEARLY = 1 - 1e-6

_List = tuple[int, int, float, float]
"""Length and start of a term's postings, the term's weight, and the most that it can add to a score."""


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


def _narrowed(
    scores: np.ndarray, seeds: np.ndarray, candidates: np.ndarray | None, remaining: float
) -> np.ndarray | None:
    """Return the documents that can be among the best if ``remaining`` can still be added, None while all can."""
    so_far = scores[seeds if candidates is None else candidates]
    threshold = _hits_th(so_far) * _NEARLY
    if candidates is None:
        return np.flatnonzero(scores >= threshold - remaining) if threshold > remaining else None
    narrowed: np.ndarray = candidates[so_far >= threshold - remaining]
    return narrowed


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

        The rarest terms are scored in full, the most frequent ones only where they matter.
        """
        counted = Counter(terms(query))
        lists = sorted(item for term, repeats in counted.items() if (item := self._list(term, repeats)))
        if not lists:
            return ()

        ends = itertools.accumulate(length for length, _, _, _ in lists)
        together = max(1, sum(end <= _TOGETHER for end in ends))

        scores = self._zeros.pop() if self._zeros else np.zeros(self._count)
        self._add_together(scores, lists[:together])
        candidates = self._add_rest(scores, lists, together) if lists[together:] else None
        if candidates is None:
            # A term adds something to every document that has it.
            candidates = np.flatnonzero(scores)

        found = self._best(candidates, scores[candidates].astype(np.float32))
        scores.fill(0)
        self._zeros.append(scores)
        return found

    def _add_rest(self, scores: np.ndarray, lists: list[_List], done: int) -> np.ndarray | None:
        """Add the terms after the first ``done`` and return the candidates, None for all that have a score.

        The 50th best document of one term, ``seeds``, is a threshold. Once the terms to come cannot lift a document over it
        that has nothing yet, candidates are those that they still can lift over it.
        """
        seeds = self._postings(lists[done - 1 if lists[done - 1][0] >= HITS else done])[0]
        candidates, remaining = None, sum(bound for _, _, _, bound in lists[done:])

        for item in lists[done:]:
            if item[0] > _LONG:
                candidates = _narrowed(scores, seeds, candidates, remaining)
            self._add(scores, item, candidates)
            remaining -= item[3]

        return _narrowed(scores, seeds, candidates, 0.0)

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
        return length, start, float(weight), float(bound)

    def _postings(self, item: _List) -> tuple[np.ndarray, np.ndarray]:
        length, start, _, _ = item
        return self._documents[start : start + length], self._codes[start : start + length]

    def _add_together(self, scores: np.ndarray, lists: list[_List]) -> None:
        """Add the scores of several terms."""
        documents, codes = map(np.concatenate, zip(*map(self._postings, lists), strict=True))
        lengths, _, weights, _ = zip(*lists, strict=True)
        weight = np.repeat(np.array(weights, dtype=np.float32), lengths)
        # Each term's score is a float32, their sum a float64, as in Lucene.
        np.add.at(scores, documents, (weight - weight / self._divisors[codes]).astype(np.float64))

    def _add(self, scores: np.ndarray, item: _List, candidates: np.ndarray | None) -> None:
        """Add a term's scores, where ``candidates`` are far fewer than its documents to these alone."""
        weight, (documents, codes) = item[2], self._postings(item)
        if candidates is not None and len(candidates) * _FAR_FEWER < len(documents):
            places = np.searchsorted(documents, candidates)
            places[places == len(documents)] = 0
            there = np.flatnonzero(documents[places] == candidates)
            scores[candidates[there]] += weight - weight / self._divisors[codes[places[there]]]
        else:
            np.add.at(scores, documents, (weight - weight / self._divisors).astype(np.float64).take(codes))

    def _best(self, candidates: np.ndarray, scores: np.ndarray) -> tuple[int, ...]:
        if len(candidates) > HITS:
            kept = scores >= _hits_th(scores)
            candidates, scores = candidates[kept], scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:HITS]
        return tuple(candidates[order].tolist())
