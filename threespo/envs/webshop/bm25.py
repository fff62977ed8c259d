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
_NONE = np.zeros(0, dtype=np.int64)


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


class SearchIndex:
    """A memory-mapped inverted index. Equal queries have equal answers; the latest are remembered."""

    def __init__(self, folder: Path, rank: np.ndarray, total_terms: int, documents: int) -> None:
        self._terms = Blobs(folder, "terms")
        self._starts = np.load(folder / "starts.npy", mmap_mode="r")
        pairs = np.load(folder / "pairs.npy")
        self._documents: np.ndarray = np.memmap(folder / "documents.bin", dtype=np.int32, mode="r")
        self._codes: np.ndarray = np.memmap(folder / "codes.bin", dtype=code_type(len(pairs)), mode="r")
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
        lists = self._lists(query)
        remaining = float(sum(weight for weight, _, _ in lists))
        scores = np.zeros(self._count)
        candidates: np.ndarray | None = None
        touched: list[np.ndarray] = []
        for weight, start, end in lists:
            if candidates is None and touched:
                candidates = self._pruned(scores, touched, remaining)
            remaining -= float(weight)
            documents, codes = self._documents[start:end], self._codes[start:end]
            if candidates is not None:
                places = np.searchsorted(documents, candidates)
                places[places == len(documents)] = 0
                there = documents[places] == candidates
                documents, codes = candidates[there], codes[places[there]]
            else:
                touched.append(documents)
            scores[documents] += self._scores(weight, codes)
        if candidates is None:
            candidates = np.unique(np.concatenate(touched)) if touched else _NONE
        return self._best(candidates, scores[candidates].astype(np.float32))

    def _lists(self, query: str) -> list[tuple[np.float32, int, int]]:
        """Return weight and place of each query term's postings, the highest weight first."""
        found = []
        for term, repeats in Counter(terms(query)).items():
            number = self._terms.find(term.encode("utf-8", "surrogatepass"))
            if number is not None:
                start, end = int(self._starts[number]), int(self._starts[number + 1])
                rarity = math.log(1 + (self._indexed - (end - start) + 0.5) / (end - start + 0.5))
                found.append((np.float32(repeats) * np.float32(rarity), start, end))
        return sorted(found, key=lambda item: (-item[0], item[1]))

    def _scores(self, weight: np.float32, codes: np.ndarray) -> np.ndarray:
        one = np.float32(1)
        short = len(codes) < len(self._weights)
        scores: np.ndarray = weight - weight / (one + (self._weights[codes] if short else self._weights))
        return scores if short else scores[codes]

    def _pruned(self, scores: np.ndarray, touched: list[np.ndarray], remaining: float) -> np.ndarray | None:
        """Return the only documents that can still be among the best, or None while any document can.

        A document that no list so far holds scores less than ``remaining``, the sum of the weights of the others.
        """
        seen = np.unique(np.concatenate(touched)) if len(touched) > 1 else np.asarray(touched[0])
        if len(seen) < HITS:
            return None
        so_far = scores[seen]
        least = np.partition(so_far, len(so_far) - HITS)[len(so_far) - HITS]
        # The margin covers the rounding of the final sums to float32.
        if remaining >= least - 1e-3:
            return None
        kept: np.ndarray = seen[so_far + remaining >= least - 1e-3]
        return kept

    def _best(self, candidates: np.ndarray, scores: np.ndarray) -> tuple[int, ...]:
        if len(candidates) > HITS:
            least = np.partition(scores, len(scores) - HITS)[len(scores) - HITS]
            kept = scores >= least
            candidates, scores = candidates[kept], scores[kept]
        order = np.lexsort((self._rank[candidates], -scores))[:HITS]
        return tuple(int(number) for number in candidates[order])
