"""Fixtures of all tests: reference data, and a toy world that any method can be driven in."""

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
_SHARED = Path(os.environ.get("THREESPO_SHARED", Path(__file__).parent.parent.parent / "shared"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """Number-only reference files, part of the repository."""
    return GOLDEN


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data with third-party text, which may not be in the repository."""
    if not (_SHARED / "golden").is_dir():
        pytest.skip(f"reference data with third-party text not at {_SHARED}; set THREESPO_SHARED to its folder")
    return _SHARED
