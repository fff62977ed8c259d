"""Fixtures of all tests: reference data, and the order in which files are run."""

import os
import signal
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
_SHARED = Path(os.environ.get("THREESPO_SHARED", Path(__file__).parent.parent.parent / "shared"))


LONGEST_FIRST = ("test_dag", "test_soak", "test_extensions", "test_stages", "test_packaging")


def pytest_configure():
    """Let processes that tests start be interrupted, which those of a shell's background job, as a suite may be, are not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Begin with the files that take minutes, so that no test process waits for another at the end."""
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def golden() -> Path:
    """Number-only reference files, part of the repository."""
    return GOLDEN


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data with third-party text, which may not be in the repository."""
    if not (_SHARED / "golden").is_dir():
        pytest.skip(
            f"reference data with third-party text not at {_SHARED}; set THREESPO_SHARED to its folder"
        )
    return _SHARED
