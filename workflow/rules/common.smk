# The study, and how rules speak to the package.

from threespo.cli import STUDY_DIGEST
from threespo.errors import InputError
from threespo.results.outline import NOTEBOOKS, TABLES, notebooks
from threespo.study import stages
from threespo.study.config import load_study
from threespo.study.contents import file_digest
from threespo.study.matrix import (
    Paths,
    choices,
    environments,
    evaluated_runs,
    gpus_of,
    laboratory_rows,
    local_policies,
    plays_weights_of,
    probed_runs,
    searching_runs,
    trained_runs,
    trial_runs,
    trials_of,
)
from threespo.study.resolve import granted_gpus, resolve, write_study

HANDED_ON = "THREESPO_STUDY_FOLDER"


def refuse(error):
    """End with one message and the exit code of bad input, without a traceback."""
    print(f"threespo: {error}", file=sys.stderr, flush=True)
    os._exit(2)


try:
    if workflow.is_main_process:
        RESOLVED = resolve(config, granted_gpus(workflow.global_resources))
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
PYTHON = shlex.quote(sys.executable)
THREESPO = f"{PYTHON} -m threespo.cli"
THREADS = STUDY.training.threads

TRAINED = {run.run_id: run for run in (*trained_runs(STUDY), *trial_runs(STUDY))}
RUNS = {**TRAINED, **{run.run_id: run for run in evaluated_runs(STUDY)}}
NAME = "[a-z0-9][a-z0-9_-]*"


wildcard_constraints:
    env=NAME,
    policy=NAME,
    family=NAME,
    method=NAME,
    which="seed-[0-9]+|rate-[0-9.e+-]+",


def log_of(name):
    return str(PATHS.root / "logs" / f"{name}.log")


def marker_of(folder):
    """The content list of a folder, written last: it exists only if the job that fills the folder has succeeded."""
    return f"{folder}.contents.json"


MARKERS = [
    *[marker_of(PATHS.data(env)) for env in environments(STUDY)],
    *[marker_of(PATHS.policy(env, policy)) for env in environments(STUDY) for policy in local_policies(STUDY)],
    *[marker_of(PATHS.run(run) / part) for run in TRAINED.values() for part in ("weights", "snapshots")],
    *[str(PATHS.run(run) / "probe.parquet") for run in probed_runs(STUDY)],
    *[str(PATHS.choice(*choice)) for choice in choices(STUDY)],
    *[str(PATHS.run(run) / "evaluation_timing.parquet") for run in RUNS.values()],
    *[str(PATHS.laboratory(*row)) for row in laboratory_rows(STUDY)],
    str(PATHS.tables / "provenance.parquet"),
    str(PATHS.root / "logs" / "report.done"),
]
