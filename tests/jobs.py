"""Jobs of a study, called as its commands call them: short forms for tests."""

from pathlib import Path
from typing import Any

from threespo.envs import registry
from threespo.envs.registry import environment
from threespo.paths import Paths, Run
from threespo.pipeline import integrity
from threespo.pipeline.stages import STAGES, Job
from threespo.provenance import records
from threespo.provenance.digests import DigestCache
from threespo.runs import setup
from threespo.study.config import Study

NOWHERE = Paths(Path("nowhere"))


def settings_of(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> Any:
    """Return what a job reads."""
    return Job(stage, name.run_id if isinstance(name, Run) else name).settings(study, paths)


def key_of(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> dict[str, Any]:
    """Return what decides whether a job runs again."""
    return settings_of(stage, study, name, paths).key()


def do(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> None:
    """Do a job's work."""
    STAGES[stage].run(settings_of(stage, study, name, paths))


def write_tables(study: Study, paths: Paths) -> None:
    do("tables", study, paths=paths)


def write_report(study: Study, paths: Paths) -> None:
    do("report", study, paths=paths)


def record(stage: str, study: Study, name: str | Run, paths: Paths) -> None:
    """Write the record of a job whose results are there, as its command would have."""
    job = Job(stage, name.run_id if isinstance(name, Run) else name)
    written = integrity.digest_outputs(paths, job, DigestCache())
    records.write_record(paths, records.Record(job.stage, job.name, {}, {}, {}, written, {}, {}))


def train(study: Study, run: Run, paths: Paths) -> None:
    do("train", study, run, paths)


def evaluate(study: Study, run: Run, paths: Paths) -> None:
    do("evaluate", study, run, paths)


def learn(study: Study, run: Run, paths: Paths) -> None:
    do("learning", study, run, paths)


def probe(study: Study, run: Run, paths: Paths) -> None:
    do("probe", study, run, paths)


def prepare(study: Study, env: str, folder: Path) -> None:
    """Prepare the tasks of an environment in ``folder``."""
    registry.prepare(env)(settings_of("data", study, env).tasks, folder)


def load_tasks(env: str, folder: Path, split: str) -> list[Any]:
    """Return the tasks of one split of a data folder."""
    return environment(env).load_tasks(folder, split)


def make_setup(study: Study, env: str, folder: Path) -> Any:
    """Return how episodes of a study run in an environment whose tasks lie in ``folder``."""
    return setup.make_setup(env, environment(env).episode.part_of(study.environments[env]), folder)
