"""What CONTRIBUTING.md promises: a new environment is a folder and its name, a new method a file and its name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.integration.conftest import copy_repository

TESTS = Path(__file__).resolve().parents[1]

STUDY = {
    "name": "toy",
    "description": "a toy environment and a toy method",
    "seeds": [0, 1],
    "corridor": {"corridors": 12},
    "policies": {
        "tiny-s": {
            "stands_for": "qwen2.5-1.5b-instruct",
            "max_prompt_tokens": 512,
            "max_response_tokens": 16,
        }
    },
    "methods": {
        "reinforce": {"method": "reinforce", "learning_rate": 1e-3, "options": {"baseline": 0.4}},
    },
    "training": {"generations": 120, "tasks_per_epoch": 2, "group_size": 4, "minibatch": 32},
    "evaluation": {"seeds": [1]},
}


def add_name(file: Path, listed: str, name: str) -> None:
    """Add a name to a tuple of names."""
    text = file.read_text()
    assert text.count(f"{listed} = (") == 1, f"{file}: expected one list {listed!r}"
    file.write_text(text.replace(f"{listed} = (", f'{listed} = ("{name}", '))


@pytest.mark.long
def test_a_toy_environment_and_a_toy_method_train_evaluate_and_stand_in_the_report(tmp_path):
    checkout = copy_repository(tmp_path / "repository", "*.safetensors")
    package = checkout.folder / "threespo"
    shutil.copytree(
        TESTS / "toy_environment",
        package / "envs" / "corridor",
        ignore=shutil.ignore_patterns("curriculum.py"),
    )
    (package / "imitation" / "corridor").mkdir()
    (package / "imitation" / "corridor" / "__init__.py").touch()
    shutil.copy(TESTS / "toy_environment" / "curriculum.py", package / "imitation" / "corridor")
    add_name(package / "envs" / "registry.py", "ENVIRONMENTS", "corridor")
    shutil.copy(TESTS / "toy_method.py", package / "methods" / "reinforce.py")
    add_name(package / "methods" / "registry.py", "METHODS", "reinforce")
    (checkout.folder / "toy.yaml").write_text(yaml.safe_dump(STUDY))

    # The real stages; figures of other numbers than success are not drawn, to save time.
    drawn_elsewhere = "training_curves,claims,theory"
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", "--config", "study=toy.yaml"],
        cwd=checkout.folder,
        env=checkout.environment(FAKE_LOG="", FAKE_NOTEBOOKS=drawn_elsewhere),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]

    results = checkout.results("toy")
    main = pd.read_parquet(results / "tables" / "main.parquet").set_index("method")
    assert set(main["env"]) == {"corridor"}
    assert set(main["split"]) == {"test"}
    # Four colours in four rooms: taking any ball at once wins a quarter, the expert wins always.
    assert main.loc["strong", "mean"] > 60
    assert main.loc["base", "mean"] < main.loc["strong", "mean"]
    assert main.loc["reinforce", "generations"] >= 100
    assert main.loc["reinforce", "seeds"] == 2
    report = (results / "report.html").read_text()
    for said in (
        "12 corridors with a ball in each room",
        "test corridors",
        "reinforce",
        "base (weak start)",
    ):
        assert said in report
