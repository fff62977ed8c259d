"""Do all jobs of a study as their commands do, and note of each which functions of the package its work has called.

    python run_jobs.py FOLDER NOTES

FOLDER holds ``study.json``. NOTES gets a folder for each job, ``STAGE NAME`` with slashes as dots. Each job is done in a
copy of this process, which has imported the large libraries once.
"""

import os
import sys
import traceback
from pathlib import Path

# Imported before the first copy; modules of the package are imported by each job itself, as in a job's own process.
import matplotlib.pyplot  # noqa: F401
import pandas  # noqa: F401
import sitecustomize
import torch
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto  # noqa: F401


def do(job_name: tuple[str, str], folder: Path, notes: Path) -> None:
    from threespo.paths import Paths
    from threespo.pipeline.perform import perform
    from threespo.pipeline.stages import STAGES, Job
    from threespo.study.load import load_study

    paths = Paths(folder)
    study, job = load_study(paths.study), Job(*job_name)
    settings = job.settings(study, paths)
    notes.mkdir(parents=True)

    def work() -> None:
        sitecustomize.begin()
        os.environ["TRACED"] = str(notes)
        STAGES[job.stage].run(settings)
        sitecustomize.write(notes)

    perform(study, paths, job, work)


def main(folder: Path, notes: Path) -> int:
    torch.set_num_threads(1)
    for stage, name in listed(folder):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                do((stage, name), folder, notes / f"{stage} {name}".strip().replace("/", "."))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            return 1
    return 0


def listed(folder: Path) -> list[tuple[str, str]]:
    """Return the jobs of the study, found in a process of their own: this one is to import nothing of the package."""
    read, write = os.pipe()
    if os.fork() == 0:
        from threespo.pipeline.stages import list_jobs
        from threespo.study.load import load_study

        lines = "\n".join(
            f"{job.stage} {job.name}" for job in list_jobs(load_study(folder / "study.json"))
        )
        os.write(write, lines.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.wait()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in text.splitlines()]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
