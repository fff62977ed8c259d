# The study, how rules are made of the package's stages, and which jobs have to run.

import functools
import os
import shlex
import sys
from pathlib import Path

from threespo.cli import STUDY_DIGEST_VARIABLE
from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline import fork_server
from threespo.pipeline.snakemake_adapter import is_main_process, multiply_gpus, refuse, run_exactly, runs_locally
from threespo.pipeline.snakemake_adapter import config_texts, will_execute, forget_backups, granted_gpus, ignore_times
from threespo.pipeline.stages import STAGES, Job, list_jobs, list_jobs_of_part
from threespo.pipeline.workflow_run import WorkflowRun
from threespo.runs.gpus import check_granted_gpus
from threespo.scaling.resources import JobResources
from threespo.study.load import load_study
from threespo.study.resolve import resolve_study
from threespo.process_environment import isolate_process
from threespo.terminal import escape_controls
from threespo.watch.status import StudyBar

HANDED_ON = "THREESPO_STUDY_FOLDER"


def say(sentence, lines=()):
    print(escape_controls("\n  ".join([f"threespo: {sentence}", *lines])), file=sys.stderr, flush=True)


isolate_process()
try:
    if is_main_process(workflow):
        RESOLVED = resolve_study(config, granted_gpus(workflow), config_texts(workflow))
        STUDY, PATHS = RESOLVED.study, RESOLVED.paths
        os.environ[HANDED_ON] = str(PATHS.root)
        os.environ[STUDY_DIGEST_VARIABLE] = RESOLVED.digest
        say(f"{RESOLVED.reason}; results in {PATHS.root}", RESOLVED.notes)
    else:
        PATHS = Paths(Path(os.environ[HANDED_ON]))
        STUDY = load_study(PATHS.study)
except InputError as error:
    refuse(error)

RUN = WorkflowRun(RESOLVED) if is_main_process(workflow) else None
BAR = StudyBar(STUDY, PATHS)


envvars:
    "THREESPO_STUDY_FOLDER",
    "THREESPO_STUDY_DIGEST",


# The interpreter that runs Snakemake runs the jobs: no activation, no other environment by accident.
THREESPO = f"{shlex.quote(sys.executable)} -m threespo.cli"
# Results may lie in a folder whose name has spaces, or worse.
STUDY_FILE = shlex.quote(str(PATHS.study))
THREADS = STUDY.training.threads
NAME = "[a-z0-9][a-z0-9_-]*"


wildcard_constraints:
    env=NAME,
    policy=NAME,
    family=NAME,
    method=NAME,
    name=NAME,
    at="base|final",
    which="(?:rate-[0-9.e+-]+-)?seed-[0-9]+",


def job_of(stage, wildcards):
    return Job(stage, STAGES[stage].pattern.format(**wildcards))


@functools.cache
def made_anew():
    """Return the outputs of the jobs that have to run.

    Decided while the graph is built: only then it is known whether anything is executed at all. A job's own process runs what
    it was told to.
    """
    if RUN is None:
        return ()
    try:
        # Before anything runs. A cluster's GPUs are not those of the machine that submits.
        if will_execute(workflow) and runs_locally(workflow) and STUDY.gpus_per_rank:
            say(check_granted_gpus(RESOLVED.call["gpus"], STUDY.runs_per_gpu))
            # Runs that share a GPU count for a part of it, and Snakemake counts in whole numbers only.
            multiply_gpus(workflow, STUDY.runs_per_gpu)
        RUN.begin(execute=will_execute(workflow))
    except InputError as error:
        refuse(error)
    run_exactly(workflow, RUN.outputs)
    say("what has to run, and why" if RUN.reasons else "everything is as recorded", RUN.reasons)
    return RUN.outputs


def reads(stage, name=None):
    """Return a stage's input function, or that of its job `name`.

    No input counts by its time: which jobs run is decided by the records of their results. Only what is about to be made anew
    is not `ancient`, so that its readers run after it.
    """

    def inputs(wildcards):
        ignore_times(workflow)
        job, anew = Job(stage, name) if name else job_of(stage, wildcards), made_anew()
        found = {group: [str(path) for path in paths] for group, paths in job.inputs(STUDY, PATHS).items()}
        return {group: [path if path in anew else ancient(path) for path in paths] for group, paths in found.items()}

    return inputs


def writes(stage, name=None):
    """Return a stage's outputs, as patterns, or those of its job ``name``.

    `update`: a result stays where it is until its job has written another. A job may find that it stands as it is; and one
    that fails leaves the earlier result.
    """
    outputs = Job(stage, name or STAGES[stage].pattern).outputs(PATHS)

    def declared(path):
        file = str(path)
        if path in outputs.folders:
            file = directory(file)
        elif path.suffix == ".svg":
            # What `snakemake --report` shows.
            file = report(file, category="Figures", labels={"figure": path.stem}, caption="../report/figure.rst")
        return update(file)

    return {name: [declared(path) for path in paths] for name, paths in outputs.files.items()}


def gpus_for(stage):
    return lambda wildcards: job_of(stage, wildcards).settings(STUDY, PATHS).gpus


# What a cluster gives a job; on one machine none of it counts. Planned once, and only if somebody asks.
@functools.cache
def allotment():
    return JobResources(STUDY)


def memory_for(stage):
    return lambda wildcards: allotment().of(job_of(stage, wildcards)).mem_mb


def minutes_for(stage):
    return lambda wildcards: allotment().of(job_of(stage, wildcards)).runtime


def nodes_for(stage):
    return lambda wildcards: allotment().of(job_of(stage, wildcards)).nodes


def log_of(stage):
    return str(PATHS.log(stage, STAGES[stage].pattern))


def outputs_of(part):
    """Return an input function: the results of a part of the study."""

    def outputs(_):
        try:
            wanted = list_jobs_of_part(STUDY, part)
        except InputError as error:
            refuse(error)
        return [str(path) for job in wanted for path in job.outputs(PATHS).paths()]

    return outputs


RESULTS = [str(path) for job in list_jobs(STUDY) for path in job.outputs(PATHS).paths()]
