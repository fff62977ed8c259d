"""One set of pins, two commands, and a command line that starts fast and fails politely."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMED = ("snakemake", "torch", "transformers", "vllm", "deepspeed", "alfworld", "pandas", "seaborn", "papermill", "dvc")


def _pins(lines):
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;]+)", line.strip())
        if match:
            found[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return found


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def constraints():
    return _pins((ROOT / "constraints.txt").read_text().splitlines())


@pytest.fixture(scope="module")
def conda():
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def test_pyproject_pins_what_constraints_pin(project, constraints):
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pins = _pins(asked)
    assert len(pins) == len(asked), "every requirement is pinned exactly"
    assert {name: constraints.get(name) for name in pins} == pins


def test_environment_yml_has_all_ten_packages_at_the_same_pins(conda, constraints):
    pins = _pins(next(entry["pip"] for entry in conda if isinstance(entry, dict)))
    assert set(NAMED) <= set(pins)
    assert {name: constraints[name] for name in pins} == pins
    assert f"pip={constraints['pip']}" in conda


def test_environment_yml_installs_the_package_itself(conda):
    lines = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert "-c constraints.txt" in lines
    assert "-e .[dev]" in lines


def test_constraints_name_each_package_once():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert len(_pins(lines)) == len(lines)


def test_the_running_environment_has_these_versions(project):
    from importlib.metadata import version

    for name, pin in _pins(project["dependencies"]).items():
        assert version(name).split("+")[0] == pin, name


def test_every_import_of_the_package_is_declared(project):
    import ast

    declared = {
        re.split(r"[\[=]", line)[0].lower() for extra in project["optional-dependencies"].values() for line in extra
    }
    declared |= {re.split(r"[\[=]", line)[0].lower() for line in project["dependencies"]}
    distributions = {"yaml": "pyyaml"}
    for path in (ROOT / "threespo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"threespo"}:
                assert distributions.get(name, name).lower() in declared, f"{path} imports {name}"


def test_the_license_is_apache(project):
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


def test_the_build_server_runs_the_same_command_as_a_person():
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_make_help_lists_the_two_commands():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("install", "test", "reproduce"):
        assert re.search(rf"^{target}\b", done.stdout, re.M)


def test_make_refuses_other_pythons(tmp_path):
    fake = tmp_path / "python3.9"
    fake.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo Python 3.9.1; exit 0; fi\nexit 1\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["make", "install", f"PYTHON={fake}", f"VENV={tmp_path}/venv"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "threespo needs Python 3.11 or 3.12" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("*/README.md")) or ["none"])
def test_folders_explain_themselves(folder):
    assert len((ROOT / folder / "README.md").read_text()) > 100


def test_no_torch_is_imported_by_the_package_its_environments_or_its_command_line():
    code = "import sys, threespo, threespo.cli, threespo.envs, threespo.study.stages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
