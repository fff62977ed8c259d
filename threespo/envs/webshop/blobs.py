"""Many small texts in one file, read where they lie."""

import bisect
import mmap
from collections.abc import Iterable
from pathlib import Path

import numpy as np


class BlobWriter:
    """Appends texts to ``NAME.bin``; ``close`` adds ``NAME.npy`` with where each begins."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create ``NAME.bin`` in the folder."""
        self._offsets_file = folder / f"{name}.npy"
        self._file = (folder / f"{name}.bin").open("wb")
        self._ends = [0]

    def append(self, text: bytes) -> None:
        self._file.write(text)
        self._ends.append(self._ends[-1] + len(text))

    def close(self) -> None:
        self._file.close()
        np.save(self._offsets_file, np.array(self._ends, dtype=np.int64))


def write_blobs(folder: Path, name: str, texts: Iterable[bytes]) -> None:
    """Write all texts in one go.

    Args:
        folder: where to.
        name: of the files, without ending.
        texts: in the order of their numbers.
    """
    writer = BlobWriter(folder, name)
    for text in texts:
        writer.append(text)
    writer.close()


class Blobs:
    """The texts that :class:`BlobWriter` wrote, memory-mapped read-only."""

    __slots__ = ("_data", "_offsets")

    def __init__(self, folder: Path, name: str) -> None:
        self._offsets = memoryview(np.load(folder / f"{name}.npy", mmap_mode="r"))
        self._data: mmap.mmap | bytes = b""
        # An empty file cannot be mapped.
        if self._offsets[-1]:
            with (folder / f"{name}.bin").open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self._data[self._offsets[index] : self._offsets[index + 1]]

    def find(self, text: bytes) -> int | None:
        """Return the index of ``text`` in sorted texts, or None."""
        index = bisect.bisect_left(self, text)
        return index if index < len(self) and self[index] == text else None
