"""Memory and time of 3SPO's state table as it grows to a million states.

    python -m benchmarks.states [--seed 0] [--out FILE]

Paths of 15 states, each an observation of about 200 characters with its goal before it. ``seconds_per_path`` is the time of
counting one completed path; ``ratio`` that at a million states over that at a thousand: 1 is constant (a larger dictionary
misses the processor's cache more often). ``epoch_end_seconds`` is what is done once an epoch and grows with it: decay of
all counts and the JSON text of a checkpoint. ``table_mb`` is the most memory until then, ``epoch_end_mb`` with that text.
"""

import argparse
import json
import random
import resource
import time
from pathlib import Path

from benchmarks.models import machine
from threespo.files import write_json
from threespo.scoring.table import StateTable

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LENGTH, PROBES = 15, 2_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "states.json")
    options = parser.parse_args()
    rng, table = random.Random(options.seed), StateTable()
    before, known = peak(), 0
    rows = []
    for size in SIZES:
        for number in range(known, size):
            table.add_path((key(number),), rng.random() < 0.5)
        table.commit()
        known = size
        paths = [tuple(key(rng.randrange(size)) for _ in range(LENGTH)) for _ in range(PROBES)]
        start = time.perf_counter()
        for path in paths:
            table.add_path(path, True)
            table.commit()
        took = (time.perf_counter() - start) / PROBES
        rows.append(
            {"states": size, "seconds_per_path": round(took, 8), "table_mb": round(peak() - before, 1)}
        )
        start = time.perf_counter()
        table.decay(0.9)
        json.dumps(table.dump())
        rows[-1] |= {
            "epoch_end_seconds": round(time.perf_counter() - start, 4),
            "epoch_end_mb": round(peak() - before, 1),
        }
        print(rows[-1])
    ratio = rows[-1]["seconds_per_path"] / rows[0]["seconds_per_path"]
    write_json(
        options.out,
        {"machine": machine(), "seed": options.seed, "sizes": rows, "ratio": round(ratio, 2)},
    )


def key(number: int) -> str:
    """Return a state key as long as those of the embedded games."""
    return f"put some mug on desk.\nOn the shelf {number}, you see {'a book 1, a pen 2, a mug 3, ' * 6}and a lamp {number}."


def peak() -> float:
    """Return the most memory that the process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
