"""Every job of the workflow is the job of the package's table of stages: the same inputs and outputs."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from threespo.paths import Paths
from threespo.pipeline.stages import STAGES, Job, list_jobs
from threespo.settings import Execution, Label
from threespo.study.catalogue import notebook_file
from threespo.study.load import load_study
from threespo.study.resolve import resolve_study

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

PRINT_JOBS = """
import contextlib, io, json, sys
from pathlib import Path
from snakemake.api import ConfigSettings, DAGSettings, ResourceSettings, SnakemakeApi

config, gpus = json.loads(sys.argv[1]), int(sys.argv[2])
with SnakemakeApi() as api, contextlib.redirect_stdout(io.StringIO()):
    workflow = api.workflow(
        resource_settings=ResourceSettings(cores=1, resources={"gpu": gpus}),
        config_settings=ConfigSettings(config=config),
        snakefile=Path("Snakefile"),
    )
    workflow.dag(dag_settings=DAGSettings(forceall=True))
    # Snakemake has no documented way to list jobs with their params; this builds its graph and shows nothing.
    workflow._workflow._prepare_dag(forceall=True, ignore_incomplete=True, lock_warn_only=True)
    workflow._workflow._build_dag()
    found = [
        {
            "rule": job.rule.name,
            "wildcards": dict(job.wildcards),
            "input": sorted(map(str, job.input)),
            "output": sorted(map(str, job.output)),
            "gpu": job.resources.get("gpu", 0),
        }
        for job in workflow._workflow.dag.jobs
    ]
print(json.dumps(found))
"""


def jobs_of_snakemake(study: str, results: Path, gpus: int = 0) -> tuple[list[dict], Path]:
    """Return the jobs of Snakemake's own graph, and the study's folder."""
    config = json.dumps({"study": study, "results": str(results)})
    done = subprocess.run(
        [sys.executable, "-c", PRINT_JOBS, config, str(gpus)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), results / study


def name_of(job: dict) -> Job | None:
    """Return our name of one of Snakemake's jobs; None if it only gathers others."""
    rule = job["rule"]
    if rule in ("all", "default", "laboratory"):
        return None
    if rule.startswith("notebook_"):
        return Job("notebook", rule.removeprefix("notebook_"))
    return Job(rule, STAGES[rule].pattern.format(**job["wildcards"]))


@pytest.mark.parametrize(("study", "gpus"), [("smoke", 0), ("ablations", 0), ("paper", 4)])
def test_the_workflow_has_the_jobs_inputs_and_outputs_of_the_stages(study, gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    found, folder = jobs_of_snakemake(study, tmp_path, gpus)
    meant, paths = resolve_study({"study": study}, gpus).study, Paths(folder)
    assert not folder.exists(), "nothing runs, so nothing is written"
    ours = {name_of(job): job for job in found}
    gathered = ours.pop(None)
    assert len(found) == len(ours) + 1, "no job of a stage occurs twice"
    assert set(ours) == set(list_jobs(meant))

    for job, theirs in ours.items():
        files = {str(path) for group in job.inputs(meant, paths).values() for path in group}
        assert set(theirs["input"]) == files, job
        assert set(theirs["output"]) == {str(path) for path in job.outputs(paths).paths()}, job
        assert theirs["gpu"] == job.settings(meant, paths).gpus, job

    results = {str(path) for job in list_jobs(meant) for path in job.outputs(paths).paths()}
    assert (gathered["rule"], gathered["input"]) == ("default", sorted(results))


def test_every_input_is_some_jobs_output_or_lies_in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    study, paths = load_study(Path("config/studies/mini.yaml")), Paths(Path("results/mini"))
    made: set[Path] = set()
    for job in list_jobs(study):
        needed = {path for group in job.inputs(study, paths).values() for path in group}
        absent = {path for path in needed - made if not path.is_file()}
        assert not absent, f"{job} needs what no earlier job makes"
        written = set(job.outputs(paths).paths())
        assert not written & made, f"{job} writes what another job writes"
        made |= written


def test_every_field_that_a_job_receives_is_in_its_key_unless_it_is_marked():
    study, paths = load_study(ROOT / "config" / "studies" / "mini.yaml"), Paths(Path("results/mini"))
    seen = set()
    for job in list_jobs(study):
        settings = job.settings(study, paths)
        for name, field in type(settings).model_fields.items():
            if name == "study":
                continue
            marked = Execution in field.metadata or Label in field.metadata
            changed = settings.model_copy(update={name: ("something", "else")})
            assert (changed.key() == settings.key()) == marked, f"{job}: {name}"
            seen.add((job.stage, name))
    assert ("train", "training") in seen
    assert ("evaluate", "evaluation") in seen


def test_the_code_of_a_notebook_has_what_its_cells_import():
    study = load_study(ROOT / "config" / "studies" / "mini.yaml")
    for name in STAGES["notebook"].jobs(study):
        cells = json.loads((ROOT / notebook_file(name)).read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        imported = {
            f"{node.module}:{alias.name}"
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("threespo")
            for alias in node.names
        }
        assert imported, name
        assert imported <= Job("notebook", name).code(study).keys(), name
