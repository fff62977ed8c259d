"""Search as Lucene ranks it: BM25 in float32 over byte-quantised document lengths.

The inverted index is a list of postings per term: document numbers, and for each the code of its pair (occurrences of the
term, quantised length). A term has few different pairs, so its scores are computed once per pair and looked up.
"""

import math
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.blobs import Blobs

K1, B = np.float32(0.9), np.float32(0.4)
HITS = 50
_EXACT_LENGTHS = 24
_REMEMBERED = 4096
_SEEDS = 4096
_FAR_FEWER = 16
# Covers the rounding of a sum to float32.
_MARGIN = 1e-3

_List = tuple[float, np.float32, int, int]
"""The most that a term can add to a score, its weight, and start and end of its postings."""


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
    """Return 1 / (k1 (1 − b + b · length / mean length)) for all 256 bytes, float32."""
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


class SearchIndex:
    """A memory-mapped inverted index. Equal queries have equal answers; the latest are remembered."""

    def __init__(self, folder: Path, rank: np.ndarray, total_terms: int, documents: int) -> None:
        self._terms = Blobs(folder, "terms")
        self._starts = np.asarray(np.load(folder / "starts.npy", mmap_mode="r"))
        self._strongest = np.asarray(np.load(folder / "strongest.npy", mmap_mode="r"))
        """For each term, the pair with its highest score."""
        pairs = np.load(folder / "pairs.npy")
        # Plain arrays over the mapped files: slices of numpy's own class for these are slow.
        self._documents = np.asarray(np.memmap(folder / "documents.bin", dtype=np.int32, mode="r"))
        self._codes = np.asarray(np.memmap(folder / "codes.bin", dtype=code_type(len(pairs)), mode="r"))
        norms = length_norms(total_terms, documents)
        self._weights = pairs[:, 0].astype(np.float32) * norms[pairs[:, 1]]
        """For each pair, occurrences times length norm."""
        self._rank, self._count, self._indexed = rank, len(rank), documents
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def search(self, query: str) -> tuple[int, ...]:
        """Return the numbers of at most 50 products, best first; ties go by asin."""
        found = self._cache.get(query)
        if found is None:
            found = self._cache[query] = self._search(query)
            if len(self._cache) > _REMEMBERED:
                self._cache.popitem(last=False)
        return found

    def _search(self, query: str) -> tuple[int, ...]:
        """Score no more documents than can be among the best.

        Some documents of the rarest terms are scored in full; the 50th best of them is a threshold. Terms that even
        together stay below it cannot lift a document over it, so candidates are the documents of the other terms.
        """
        lists = self._lists(query)
        if not lists:
            return ()
        threshold = self._threshold(lists)
        bounds = np.array([bound for bound, _, _, _ in lists], dtype=np.float64)
        remaining = np.append(np.cumsum(bounds[::-1])[::-1], 0.0)
        essential = max(1, int(np.count_nonzero(remaining[:-1] >= threshold - _MARGIN)))
        scores = np.zeros(self._count)
        for item in lists[:essential]:
            self._add(scores, item)
        candidates = np.asarray(self._documents[lists[0][2] : lists[0][3]])
        if essential > 1:
            candidates = np.unique(np.concatenate([self._documents[item[2] : item[3]] for item in lists[:essential]]))
        for number, item in enumerate(lists[essential:], start=essential):
            so_far = scores[candidates]
            threshold = max(threshold, _hits_th(so_far))
            candidates = candidates[so_far + remaining[number] >= threshold - _MARGIN]
            self._add(scores, item, candidates)
        return self._best(candidates, scores[candidates].astype(np.float32))

    def _lists(self, query: str) -> list[_List]:
        """Return bound, weight and place of each query term's postings, the highest bound first."""
        found = []
        for term, repeats in Counter(terms(query)).items():
            number = self._terms.find(term.encode("utf-8", "surrogatepass"))
            if number is not None:
                start, end = int(self._starts[number]), int(self._starts[number + 1])
                rarity = math.log(1 + (self._indexed - (end - start) + 0.5) / (end - start + 0.5))
                weight = np.float32(repeats) * np.float32(rarity)
                bound = float(weight - weight / (np.float32(1) + self._weights[self._strongest[number]]))
                found.append((bound, weight, start, end))
        return sorted(found, key=lambda item: (-item[0], item[2]))

    def _threshold(self, lists: list[_List]) -> float:
        """Return a score that at least 50 documents reach, as high as is cheaply known."""
        seeds: list[np.ndarray] = []
        for _, _, start, end in sorted(lists, key=lambda item: item[3] - item[2]):
            seeds.append(np.asarray(self._documents[start : min(end, start + _SEEDS)]))
            if sum(map(len, seeds)) >= _SEEDS:
                break
        documents = np.unique(np.concatenate(seeds))
        scores = np.zeros(len(documents))
        for item in lists:
            places, there = self._find(item, documents)
            scores[there] += self._scores(item[1], self._codes[item[2] + places])
        return _hits_th(scores)

    def _add(self, scores: np.ndarray, item: _List, candidates: np.ndarray | None = None) -> None:
        """Add a term's scores, where ``candidates`` are far fewer than its documents to these alone."""
        _, weight, start, end = item
        if candidates is not None and len(candidates) * _FAR_FEWER < end - start:
            places, there = self._find(item, candidates)
            scores[candidates[there]] += self._scores(weight, self._codes[start + places])
        else:
            scores[self._documents[start:end]] += self._scores(weight, self._codes[start:end])

    def _find(self, item: _List, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the term's postings hold ``documents``, and which of these they hold."""
        postings = self._documents[item[2] : item[3]]
        places = np.searchsorted(postings, documents)
        places[places == len(postings)] = 0
        there = np.flatnonzero(postings[places] == documents)
        return places[there], there

    def _scores(self, weight: np.float32, codes: np.ndarray) -> np.ndarray:
        one = np.float32(1)
        short = len(codes) < len(self._weights)
        scores: np.ndarray = weight - weight / (one + (self._weights[codes] if short else self._weights))
        return scores if short else scores[codes]

    def _best(self, candidates: np.ndarray, scores: np.ndarray) -> tuple[int, ...]:
        if len(candidates) > HITS:
            kept = scores >= _hits_th(scores)
            candidates, scores = candidates[kept], scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:HITS]
        return tuple(int(number) for number in candidates[order])
