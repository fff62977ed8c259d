"""Running the programs of examples/, as their users do."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60
"""Lines."""


def run_example(name: str) -> str:
    """Return what an example prints."""
    file = ROOT / "examples" / f"{name}.py"
    assert len(file.read_text().splitlines()) < LONGEST
    # A busy machine may take several times what a quiet one does.
    done = subprocess.run(
        [sys.executable, file], cwd=ROOT, env=None, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
