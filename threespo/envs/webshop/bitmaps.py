"""Which products have a frequent term, one bit each: sets that are intersected and united 64 products at a time.

Stored with each word of 64 bits is how many postings of the term come before it, so that a product's posting is found
without a search in the list.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# A term with more postings than both has a bitmap: than 1,024, since a shorter list is searched as fast; than one for 128
# products, since a bitmap and its counts take 12 bytes for 64 products, so at most 24 bytes a posting.
_MIN_POSTINGS = 1 << 10
_MAX_PRODUCTS_PER_POSTING = 128
# Each term may double the work of `reaching`; the terms after these are taken together.
_MAX_DEPTH = 9

# Product number n is bit n % 64 of word n // 64.
_WORD_SHIFT = 6
_BITS_IN_WORD = 1 << _WORD_SHIFT
_BIT_MASK = _BITS_IN_WORD - 1
_ONE = np.uint64(1)
# Masks for counting ones: every second bit, every second pair, every second four, the lowest bit of each byte.
_ALTERNATE_BITS = np.uint64(0x5555555555555555)
_ALTERNATE_PAIRS = np.uint64(0x3333333333333333)
_ALTERNATE_FOURS = np.uint64(0x0F0F0F0F0F0F0F0F)
_LOWEST_BITS = np.uint64(0x0101010101010101)


def write_bitmaps(folder: Path, documents: np.ndarray, starts: np.ndarray, count: int) -> None:
    """Write the bitmaps of all frequent terms.

    Args:
        folder: where to.
        documents: the postings' documents, ascending for each term, (postings,).
        starts: where the postings of each term begin, and the end, (terms + 1,).
        count: products.
    """
    min_postings = max(_MIN_POSTINGS, count // _MAX_PRODUCTS_PER_POSTING)
    terms = np.flatnonzero(np.diff(starts) > min_postings)
    # One row at least, because an empty file cannot be mapped.
    rows = max(1, len(terms))
    words = math.ceil(count / _BITS_IN_WORD)
    shape = (rows, words)
    np.save(folder / "frequent.npy", terms)
    bits = np.memmap(folder / "bits.bin", dtype=np.uint64, mode="w+", shape=shape)
    before = np.memmap(folder / "before.bin", dtype=np.uint32, mode="w+", shape=shape)
    for row, term in enumerate(terms):
        has_term = np.zeros(words * _BITS_IN_WORD, dtype=bool)
        has_term[documents[starts[term] : starts[term + 1]]] = True
        bits[row] = np.packbits(has_term, bitorder="little").view(np.uint64)
        ones = _count_ones(bits[row])
        before[row] = np.cumsum(ones) - ones
    bits.flush()
    before.flush()


def _count_ones(words: np.ndarray) -> np.ndarray:
    """Return the number of ones of each word: sums of 2, 4 and 8 bits side by side, then of the eight bytes."""
    # NumPy has a function for this from version 2 on; version 1.26 is still supported.
    pairs = words - (words >> _ONE & _ALTERNATE_BITS)
    fours = (pairs & _ALTERNATE_PAIRS) + (pairs >> np.uint64(2) & _ALTERNATE_PAIRS)
    in_bytes = fours + (fours >> np.uint64(4)) & _ALTERNATE_FOURS
    # The product's highest byte is the sum of all eight.
    in_words = in_bytes * _LOWEST_BITS >> np.uint64(56)
    ones: np.ndarray = in_words.astype(np.int64)
    return ones


def documents_of(words: np.ndarray, most: int | None = None) -> np.ndarray:
    """Return the products of a set, ascending; with ``most``, those of its first ``most`` words that have any."""
    # Most words are empty, so only the others are unpacked.
    word_numbers = np.flatnonzero(words != 0)[:most]
    bits = np.unpackbits(words[word_numbers].view(np.uint8), bitorder="little")
    positions = np.flatnonzero(bits.view(bool))
    first_of_word = word_numbers[positions >> _WORD_SHIFT] << _WORD_SHIFT
    documents: np.ndarray = first_of_word + (positions & _BIT_MASK)
    return documents


class Bitmaps:
    """The bitmaps that ``write_bitmaps`` wrote, memory-mapped; each frequent term has a row."""

    def __init__(self, folder: Path) -> None:
        terms = np.load(folder / "frequent.npy").tolist()
        self._rows = {term: row for row, term in enumerate(terms)}
        shape = (max(1, len(terms)), -1)
        bits = np.memmap(folder / "bits.bin", dtype=np.uint64, mode="r")
        before = np.memmap(folder / "before.bin", dtype=np.uint32, mode="r")
        # Plain arrays over the mapped files: slices of numpy's own class for these are slow.
        self._bits = np.asarray(bits).reshape(shape)
        self._before = np.asarray(before).reshape(shape)

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
        most_from = [sum(bounds[first:]) for first in range(len(bounds))]
        last_terms = [self._bits[row] for row in rows[_MAX_DEPTH:]]
        # Having any of the last terms counts as reaching what is left: the set may be too large, never too small.
        any_of_last: np.ndarray | None = None
        if last_terms:
            any_of_last = functools.reduce(np.bitwise_or, last_terms)

        def reach(first: int, need: float) -> np.ndarray | None:
            """Return the set that reaches ``need`` by the terms from ``first`` on, None if they cannot."""
            if first == len(rows) or most_from[first] < need:
                return None
            if first == _MAX_DEPTH:
                return any_of_last
            with_term: np.ndarray = self._bits[rows[first]]
            # Where the term alone is not enough, its products need the rest of the sum from later terms.
            if bounds[first] < need:
                by_later_terms = reach(first + 1, need - bounds[first])
                if by_later_terms is not None:
                    with_term = with_term & by_later_terms
            without_term = reach(first + 1, need)
            return with_term if without_term is None else np.bitwise_or(with_term, without_term)

        reached = reach(0, need)
        return self._bits[rows[0]][:0] if reached is None else reached

    def look_up(self, rows: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which terms which products have, and their positions in the terms' lists, both (terms, products)."""
        words_in_row = self._bits.shape[1]
        word_numbers = rows[:, None] * words_in_row + (documents >> _WORD_SHIFT)
        # ``take`` from a flat array is faster than indexing by rows and columns.
        words = self._bits.ravel().take(word_numbers)
        own_bit = _ONE << (documents & _BIT_MASK).astype(np.uint64)
        has_term = words & own_bit != 0
        # A posting's position: those of earlier words, and the ones below its own bit.
        in_earlier_words = self._before.ravel().take(word_numbers)
        positions = in_earlier_words + _count_ones(words & (own_bit - _ONE))
        return has_term, positions
