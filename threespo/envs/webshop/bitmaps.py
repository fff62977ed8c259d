"""Which products have a frequent term, one bit each: sets that are intersected and united 64 products at a time.

Stored with each word of 64 bits is how many postings of the term come before it, so that a product's posting is found
without a search in the list.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# Longer lists have a bitmap: in a small shop where that saves time; in a large one where it takes few bytes, of which it and
# its counts have 12 per 64 products, so at most 24 per posting.
_FREQUENT = 1 << 10
_ONE_IN = 128
# Each term may double the work of `reaching`; the terms after these are taken together.
_DEPTH = 9

_WORD = 6
_IN_WORD = 63
_ONE = np.uint64(1)
_PAIRS, _NIBBLES, _BYTES, _UNITS = (
    np.uint64(0x0101010101010101 * byte) for byte in (0x55, 0x33, 0x0F, 0x01)
)


def write_bitmaps(folder: Path, documents: np.ndarray, starts: np.ndarray, count: int) -> None:
    """Write the bitmaps of all frequent terms.

    Args:
        folder: where to.
        documents: the postings' documents, ascending for each term, (postings,).
        starts: where the postings of each term begin, and the end, (terms + 1,).
        count: products.
    """
    terms = np.flatnonzero(np.diff(starts) > max(_FREQUENT, count // _ONE_IN))
    # One row at least, because an empty file cannot be mapped.
    shape = max(1, len(terms)), -(-count // (_IN_WORD + 1))
    np.save(folder / "frequent.npy", terms)
    bits = np.memmap(folder / "bits.bin", dtype=np.uint64, mode="w+", shape=shape)
    before = np.memmap(folder / "before.bin", dtype=np.uint32, mode="w+", shape=shape)
    for row, term in enumerate(terms):
        there = np.zeros(shape[1] << _WORD, dtype=bool)
        there[documents[starts[term] : starts[term + 1]]] = True
        bits[row] = np.packbits(there, bitorder="little").view(np.uint64)
        ones = _ones(bits[row])
        before[row] = np.cumsum(ones) - ones
    bits.flush()
    before.flush()


def _ones(words: np.ndarray) -> np.ndarray:
    """Return the number of ones of each word: sums of 2, 4 and 8 bits side by side, then of the eight bytes."""
    # NumPy has a function for this from version 2 on; version 1.26 is still supported.
    pairs = words - (words >> _ONE & _PAIRS)
    nibbles = (pairs & _NIBBLES) + (pairs >> np.uint64(2) & _NIBBLES)
    ones: np.ndarray = ((nibbles + (nibbles >> np.uint64(4)) & _BYTES) * _UNITS >> np.uint64(56)).astype(
        np.int64
    )
    return ones


def documents_of(words: np.ndarray, most: int | None = None) -> np.ndarray:
    """Return the products of a set, ascending; with ``most``, those of its first ``most`` words that have any."""
    where = np.flatnonzero(words != 0)[:most]
    places = np.flatnonzero(np.unpackbits(words[where].view(np.uint8), bitorder="little").view(bool))
    documents: np.ndarray = (where[places >> _WORD] << _WORD) + (places & _IN_WORD)
    return documents


class Bitmaps:
    """The bitmaps that ``write_bitmaps`` wrote, memory-mapped; each frequent term has a row."""

    def __init__(self, folder: Path) -> None:
        self._rows = {term: row for row, term in enumerate(np.load(folder / "frequent.npy").tolist())}
        shape = max(1, len(self._rows)), -1
        self._bits = np.asarray(np.memmap(folder / "bits.bin", dtype=np.uint64, mode="r")).reshape(shape)
        self._before = np.asarray(np.memmap(folder / "before.bin", dtype=np.uint32, mode="r")).reshape(
            shape
        )

    def row(self, term: int) -> int:
        """Return the row of a term, -1 if it is not frequent."""
        return self._rows.get(term, -1)

    def common(self, rows: Sequence[int], least: int) -> np.ndarray:
        """Return the set of products that have as many of the terms as possible, the first ones before the others.

        Args:
            rows: of the terms, at least one.
            least: a term is passed over if fewer words than this would have a product left.
        """
        common: np.ndarray = self._bits[rows[0]]
        for row in rows[1:]:
            narrower = common & self._bits[row]
            if np.count_nonzero(narrower != 0) >= least:
                common = narrower
        return common

    def reaching(self, rows: Sequence[int], bounds: Sequence[float], need: float) -> np.ndarray:
        """Return the set of products whose terms can add up to ``need``, and some that cannot.

        Args:
            rows: of the terms.
            bounds: the most that each can add, falling.
            need: the sum to reach; every product with a term can reach zero.
        """
        left = [sum(bounds[first:]) for first in range(len(bounds))]
        others = [self._bits[row] for row in rows[_DEPTH:]]
        rest: np.ndarray | None = functools.reduce(np.bitwise_or, others) if others else None

        def reach(first: int, need: float) -> np.ndarray | None:
            """Return the set that reaches ``need`` by the terms from ``first`` on, None if they cannot."""
            if first == len(rows) or left[first] < need:
                return None
            if first == _DEPTH:
                return rest
            having: np.ndarray = self._bits[rows[first]]
            # Where the term alone is not enough, its products need the rest of the sum from later terms.
            if bounds[first] < need:
                helped = reach(first + 1, need - bounds[first])
                if helped is not None:
                    having = having & helped
            without = reach(first + 1, need)
            return having if without is None else np.bitwise_or(having, without)

        found = reach(0, need)
        return self._bits[rows[0]][:0] if found is None else found

    def look_up(self, rows: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which terms which products have, and their positions in the terms' lists, both (terms, products)."""
        words = rows[:, None] * self._bits.shape[1] + (documents >> _WORD)
        bits = self._bits.ravel().take(words)
        bit = _ONE << (documents & _IN_WORD).astype(np.uint64)
        # A posting's position: those of earlier words, and the ones below its own bit.
        earlier = self._before.ravel().take(words)
        positions = earlier + _ones(bits & (bit - _ONE))
        return bits & bit != 0, positions
