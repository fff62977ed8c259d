"""What a release consists of: a wheel with the whole package, which runs without the repository; one version everywhere."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import threespo
from tests.documents import ROOT, tracked

PACKAGES = ("threespo/", "threespo_verifiers/")
EPISODE = """
import gymnasium, threespo.gym
for name in ("ALFWorld", "WebShop"):
    env = gymnasium.make(f"threespo/{name}-v0")
    print(env.reset(seed=0)[0].splitlines()[0])
print(threespo.__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source distribution, and the wheel that is built of it: from the files that git knows, as in a fresh clone."""
    folder = tmp_path_factory.mktemp("distribution")
    for name in tracked(*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        folder / "dist",
        folder / "tree",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.mark.slow
def test_wheel_and_source_distribution_hold_the_package_and_nothing_else(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    named = f"threespo-{threespo.__version__}"
    assert (wheel.name, source.name) == (f"{named}-py3-none-any.whl", f"{named}.tar.gz")
    files = zipfile.ZipFile(wheel).namelist()
    assert sorted(name for name in files if not name.startswith(f"{named}.dist-info/")) == tracked(
        *PACKAGES
    )
    assert f"{named}.dist-info/licenses/LICENSE" in files
    with tarfile.open(source) as archive:
        held = {name.removeprefix(f"{named}/") for name in archive.getnames()}
    assert held >= {*tracked(*PACKAGES), "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.slow
def test_a_wheel_plays_both_environments_without_the_repository(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", EPISODE], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *begun, file = done.stdout.splitlines()
    assert begun[0].startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert begun[1].startswith("WebShop")
    assert Path(file).is_relative_to(tmp_path)


def test_all_places_name_one_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == threespo.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= citation.keys()
    headings = [
        line
        for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    assert headings[0].split()[1] == threespo.__version__
    command = [sys.executable, "-m", "threespo.cli", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"threespo {threespo.__version__}"
