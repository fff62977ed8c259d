"""The inverted index of :mod:`threespo.envs.webshop.bm25`, built in little memory."""

import itertools
from array import array
from collections import Counter
from pathlib import Path

import numpy as np

from threespo.envs.webshop.analyzer import terms
from threespo.envs.webshop.bitmaps import write_bitmaps
from threespo.envs.webshop.blobs import write_blobs
from threespo.envs.webshop.bm25 import code_type, length_norms, quantise

# Bounds the memory of a build, whatever the size of the catalogue.
_POSTINGS_PER_CHUNK = 4_000_000


class IndexWriter:
    """Takes documents in order; ``close`` writes the index into the folder. Chunks of postings wait on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._postings = _no_postings()
        self._chunks: list[Path] = []
        self._count = 0
        self.total_terms = 0
        self.documents = 0
        """Documents with at least one term."""

    def append(self, text: str) -> None:
        """Index the next document."""
        words = terms(text)
        norm = quantise(len(words))
        # Local names, because this loop runs once for each posting of the whole shop.
        numbers = self._numbers
        pairs = self._pairs
        of_term, of_document, of_pair = self._postings
        for word, occurrences in Counter(words).items():
            of_term.append(numbers.setdefault(word, len(numbers)))
            of_document.append(self._count)
            of_pair.append(pairs.setdefault((occurrences, norm), len(pairs)))
        self._count += 1
        self.documents += bool(words)
        self.total_terms += len(words)
        if len(of_term) >= _POSTINGS_PER_CHUNK:
            self._spill()

    def _spill(self) -> None:
        """Write the waiting postings to disk, sorted by term."""
        if not self._postings[0]:
            return

        of_term, of_document, of_pair = (np.array(values) for values in self._postings)
        order = np.argsort(of_term, kind="stable")
        path = self._folder / f"chunk-{len(self._chunks)}.npy"
        np.save(path, np.stack([of_term[order], of_document[order], of_pair[order]]))
        self._chunks.append(path)
        self._postings = _no_postings()

    def close(self) -> None:
        """Merge all chunks and write the index."""
        self._spill()
        # Sorted, so that a term is found by bisection (``Blobs.find``).
        words = sorted(
            (word.encode("utf-8", "surrogatepass"), number) for word, number in self._numbers.items()
        )
        place = np.zeros(len(words), dtype=np.int64)
        place[[number for _, number in words]] = np.arange(len(words))

        counts = np.zeros(len(words) + 1, dtype=np.int64)
        for path in self._chunks:
            of_term = np.load(path, mmap_mode="r")[0]
            counts[1:] += np.bincount(place[of_term], minlength=len(words))
        starts = np.cumsum(counts)

        pairs = np.array(list(self._pairs), dtype=np.int32).reshape(-1, 2)
        documents, codes = self._merge(place, starts)

        # A term's score grows with occurrences times length norm, so this orders pairs by the score that they give.
        strength = pairs[:, 0] * length_norms(self.total_terms, self.documents)[pairs[:, 1]]
        by_strength = np.argsort(strength, kind="stable")
        ranks = np.empty_like(by_strength)
        ranks[by_strength] = np.arange(len(by_strength))
        strongest = [
            by_strength[ranks[codes[start:end]].max()]
            for start, end in itertools.pairwise(starts.tolist())
        ]

        write_blobs(self._folder, "terms", (word for word, _ in words))
        np.save(self._folder / "starts.npy", starts)
        np.save(self._folder / "pairs.npy", pairs)
        np.save(self._folder / "strongest.npy", np.array(strongest, dtype=np.int32))
        write_bitmaps(self._folder, documents, starts, self._count)

    def _merge(self, place: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        documents, codes = (
            np.memmap(self._folder / f"{name}.bin", dtype=kind, mode="w+", shape=(int(starts[-1]),))
            for name, kind in (("documents", np.int32), ("codes", code_type(len(self._pairs))))
        )

        # Chunks are in the order of documents and sorted stably by term, so a term's postings stay in that order, too.
        filled = starts[:-1].copy()
        for path in self._chunks:
            of_term, of_document, of_pair = np.load(path)
            where = place[of_term]
            firsts = np.flatnonzero(np.diff(of_term, prepend=of_term[:1] + 1))
            sizes = np.diff(firsts, append=len(of_term))
            target = np.repeat(filled[where[firsts]] - firsts, sizes) + np.arange(len(of_term))
            documents[target] = of_document
            codes[target] = of_pair
            filled[where[firsts]] += sizes
            path.unlink()
        documents.flush()
        codes.flush()
        return documents, codes


def _no_postings() -> tuple["array[int]", "array[int]", "array[int]"]:
    """Return terms, documents and pairs, 32-bit unsigned each."""
    return array("I"), array("I"), array("I")
