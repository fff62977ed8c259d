"""Counter-based randomness: every draw is a function of named counters, never of earlier draws.

So batching, order, resuming and sharding cannot change a draw, and a checkpoint has no generator state.
"""

import hashlib
import random

import numpy as np


def derive(*counters: int | str) -> int:
    """Return a 64-bit integer that depends on every counter, e.g. ``derive(seed, "evaluate", task_id, step)``."""
    # Types and separators are part of the text, so that 1 and "1", or ("ab", "c") and ("a", "bc"), are different draws.
    text = "\x1f".join(f"{type(counter).__name__}:{counter}" for counter in counters)
    # Not ``hash``, which is salted: it differs between processes.
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def generator(*counters: int | str) -> random.Random:
    """Return a private ``random.Random`` for the given counters."""
    return random.Random(derive(*counters))


def uniforms(key: int, count: int) -> np.ndarray:
    """Return float64 numbers in [0, 1) of the Philox stream of a 64-bit ``key``, (count,)."""
    # Number i of Philox depends on (key, i) only, so a longer array begins with a shorter one.
    return np.random.Generator(np.random.Philox(key=key)).random(count)
