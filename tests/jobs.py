"""Jobs of a study, called as its commands call them: short forms for tests."""

from pathlib import Path
from typing import Any

from threespo.envs.registry import environment, load
from threespo.runs import setup
from threespo.study import records
from threespo.study.config import Study
from threespo.study.digests import Digests
from threespo.study.paths import Paths, Run
from threespo.study.stages import STAGES, Job

NOWHERE = Paths(Path("nowhere"))


def settings_of(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> Any:
    """Return what a job reads."""
    return Job(stage, name.run_id if isinstance(name, Run) else name).settings(study, paths)


def key_of(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> dict[str, Any]:
    """Return what decides whether a job runs again."""
    return settings_of(stage, study, name, paths).key()


def do(stage: str, study: Study, name: str | Run = "", paths: Paths = NOWHERE) -> None:
    """Do a job's work."""
    load(STAGES[stage].calls)(settings_of(stage, study, name, paths))


def record(stage: str, study: Study, name: str | Run, paths: Paths) -> None:
    """Write the record of a job whose results are there, as its command would have."""
    job = Job(stage, name.run_id if isinstance(name, Run) else name)
    written = records.outputs(paths, job, Digests())
    records.write(paths, records.Record(job.stage, job.name, {}, {}, {}, written, {}, {}))


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
    load(environment(env).prepare)(settings_of("data", study, env).tasks, folder)


def load_tasks(env: str, folder: Path, split: str) -> list[Any]:
    """Return the tasks of one split of a data folder."""
    return environment(env).load_tasks(folder, split)


def make_setup(study: Study, env: str, folder: Path) -> Any:
    """Return how episodes of a study run in an environment whose tasks lie in ``folder``."""
    return setup.make_setup(env, environment(env).episode.part_of(study.environments[env]), folder)
