"""The browser in which the report's pages are tested: `python -m tests.browser` finds or gets one, before the first test.

In this order: the program that CHROMIUM names; Chromium or Chrome on PATH; Playwright's own headless build in the user's
cache, downloaded if its host can be reached; as root, the distribution's package. Else one line says what to do.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""For a machine without a screen, a GPU or a network."""

REMEDY = (
    "install one (Debian: apt install chromium) or name its program in the environment variable CHROMIUM"
)


def find() -> str | None:
    """Return the program of a browser that is there and starts, or None.

    Raises:
        SystemExit: if CHROMIUM names something that is no browser.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        if not starts(named):
            raise SystemExit(
                f"tests: CHROMIUM is {named!r}, which does not start as a browser; {REMEDY}"
            )
        return named
    places = [*map(shutil.which, ON_PATH), _playwrights()]
    return next((place for place in places if place and starts(place)), None)


def ensure() -> str:
    """Return the program of a browser; get one where there is none.

    Raises:
        SystemExit: if none can be had.
    """
    if found := find():
        return found
    print("tests: no browser here; getting Playwright's headless build", file=sys.stderr)
    _download()
    if not (found := find()) and _is_root() and shutil.which("apt-get"):
        print("tests: that did not work; getting the distribution's chromium", file=sys.stderr)
        _install_package()
        found = find()
    if not found:
        raise SystemExit(
            f"tests: no browser for the tests of the report's pages, and none could be downloaded; {REMEDY}"
        )
    return found


def starts(program: str) -> bool:
    """Return whether a program opens a page: a build may lack libraries of the system."""
    command = [program, "--headless", *FLAGS, "--dump-dom", "data:text/html,<p>here</p>"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "<p>here</p>" in done.stdout


def _playwrights() -> str | None:
    """Return the newest of Playwright's headless builds in the user's cache."""
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    builds = sorted(cache.glob("chromium_headless_shell-*/*/*headless*shell*"))
    return next((str(path) for path in reversed(builds) if os.access(path, os.X_OK)), None)


def _download() -> None:
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    _try(command, {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "20000"})


def _install_package() -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    if _try(["apt-get", "update"], quiet):
        _try(["apt-get", "install", "--yes", "--no-install-recommends", "chromium"], quiet)


def _is_root() -> bool:
    return os.geteuid() == 0


def _try(command: list[str], environment: dict[str, str]) -> bool:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
        print(
            f"tests: {' '.join(command[:4])} failed: {said[0] if said else done.returncode}",
            file=sys.stderr,
        )
    return done.returncode == 0


if __name__ == "__main__":
    print(f"tests: pages are shown by {ensure()}", file=sys.stderr)
