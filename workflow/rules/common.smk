# The study, and how rules are made of the package's stages.

import functools
import json
import os
import shlex
import sys
from pathlib import Path

from threespo.cli import STUDY_DIGEST
from threespo.errors import InputError
from threespo.study.checksums import SUFFIX as CHECKSUMS
from threespo.study.checksums import file_digest
from threespo.study.load import load_study
from threespo.study.paths import Paths
from threespo.study.resolve import resolve, write_study
from threespo.study.stages import STAGES, Job, jobs
from threespo.study.snakemake_adapter import forget_backups, granted_gpus, is_main_process, refuse

HANDED_ON = "THREESPO_STUDY_FOLDER"

try:
    if is_main_process(workflow):
        RESOLVED = resolve(config, granted_gpus(workflow))
        write_study(RESOLVED)
        os.environ[HANDED_ON] = str(RESOLVED.paths.root)
        os.environ[STUDY_DIGEST] = file_digest(RESOLVED.paths.study)
        print(f"threespo: {RESOLVED.reason}; results in {RESOLVED.paths.root}", file=sys.stderr, flush=True)
    PATHS = Paths(Path(os.environ[HANDED_ON]))
    STUDY = load_study(PATHS.study)
except InputError as error:
    refuse(error)


envvars:
    "THREESPO_STUDY_FOLDER",
    "THREESPO_STUDY_DIGEST",


# The interpreter that runs Snakemake runs the jobs: no activation, no other environment by accident.
THREESPO = f"{shlex.quote(sys.executable)} -m threespo.cli"
THREADS = STUDY.training.threads
NAME = "[a-z0-9][a-z0-9_-]*"


wildcard_constraints:
    env=NAME,
    policy=NAME,
    family=NAME,
    method=NAME,
    name=NAME,
    which="seed-[0-9]+|rate-[0-9.e+-]+",


def job_of(stage, wildcards):
    return Job(stage, STAGES[stage].pattern.format(**wildcards))


@functools.cache
def settings_of(job):
    return job.settings(STUDY, PATHS)


def inputs_of(job):
    """Return a job's input files, and behind a folder's checksums the folder itself, however old it is."""
    found = {name: [str(path) for path in paths] for name, paths in job.inputs(STUDY, PATHS).items()}
    folders = [path.removesuffix(CHECKSUMS) for paths in found.values() for path in paths if path.endswith(CHECKSUMS)]
    return {**found, "folders": [ancient(folder) for folder in folders]}


def reads(stage):
    """Return a stage's input function."""
    return lambda wildcards: inputs_of(job_of(stage, wildcards))


def training_reads(wildcards):
    """Return a training run's inputs. A learning rate that trials decide is known only when they have ended."""
    files = reads("train")(wildcards)
    if "choice" in files:
        choice = checkpoints.tune.get(env=wildcards.env, policy=wildcards.policy, method=wildcards.method).output
        files["choice"] = [ancient(file) for file in choice]
    return files


def writes(stage, name=None):
    """Return a stage's outputs, as patterns, or those of its job ``name``.

    `update`: a job that fails leaves the earlier result as it was. What is written last is declared without it, and so is
    missing after a failure: that is how the next invocation knows that the job has to run again.
    """
    outputs = Job(stage, name or STAGES[stage].pattern).outputs(PATHS)

    def kept_file(path):
        file = str(path)
        if path in outputs.folders:
            file = directory(file)
        elif path.suffix == ".svg":
            # What `snakemake --report` shows.
            file = report(file, category="Figures", labels={"figure": path.stem}, caption="../report/figure.rst")
        return update(file)

    kept = {name: [kept_file(path) for path in paths] for name, paths in outputs.kept.items()}
    return {**kept, **{name: [str(path) for path in paths] for name, paths in outputs.last.items()}}


def code_of(stage):
    """Return the param that says what a stage's code means."""
    return lambda wildcards: job_of(stage, wildcards).fingerprint(STUDY)


def key_of(stage):
    """Return the param with the fields of the study that a stage reads."""
    return lambda wildcards: json.dumps(settings_of(job_of(stage, wildcards)).key(), sort_keys=True, separators=(",", ":"))


def gpus_for(stage):
    return lambda wildcards: settings_of(job_of(stage, wildcards)).gpus


def log_of(stage):
    return str(PATHS.log(stage, STAGES[stage].pattern))


LAST = [str(path) for job in jobs(STUDY) for paths in job.outputs(PATHS).last.values() for path in paths]
