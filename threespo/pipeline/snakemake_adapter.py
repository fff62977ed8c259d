"""What the workflow asks of Snakemake beyond its documented interface: every such attribute is used here and nowhere else.

They were read in Snakemake 9.27 and may change with any release. One of them saves time (``start_jobs_at_once``, where the
figure stands); without the others something would be wrong:

- ``dag.forcefiles``, ``dag_settings.rerun_triggers``, ``dag.check_output_mtime``: modification times would decide what runs,
  and not records, so a pulled clone would train everything anew;
- ``is_main_process``, ``executor_plugin``, ``dryrun``, ``touch``, ``common_settings.local_exec``: each job's own Snakemake
  would plan the whole study again, and a dry run would write;
- ``global_resources``, ``register_resource``: runs could not share a GPU, and ``auto`` could choose no study;
- ``config_settings.config_args``: of two equal keys the last would count, without a word;
- ``dag.needrun_jobs``: the bar would count jobs that nobody asked for;
- ``persistence.path``, ``.snakemake/locks``: after a kill the next call would stumble over copies and locks that are left.
"""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from threespo.terminal import escape_controls


def is_main_process(workflow: Any) -> bool:
    """Return whether this is the process that a person has started, and not one that Snakemake starts for a job."""
    return bool(workflow.is_main_process)


def will_execute(workflow: Any) -> bool:
    """Return whether jobs are going to run: not so in a dry run, or while something is listed. Known once rules are read."""
    return workflow.executor_plugin is not None and not workflow.dryrun and not workflow.touch


def granted_gpus(workflow: Any) -> int | None:
    """Return N of ``--resources gpu=N``, or None where it was not given."""
    granted = workflow.global_resources.get("gpu")
    value = getattr(granted, "value", granted)
    return None if value is None else int(value)


def runs_locally(workflow: Any) -> bool:
    """Return whether jobs run on this machine, and are not submitted to a cluster. Known once rules are read."""
    return bool(workflow.executor_plugin.common_settings.local_exec)


def start_jobs_at_once(workflow: Any) -> None:
    """Lift Snakemake's limit of a hundred new jobs a second, which is meant for clusters, where jobs run on this machine.

    With it every job that ends leaves one more timer that wakes the scheduler each second, for good: after 134 jobs of
    ``mini`` the main process took a third of a core, to look again and again at the files of jobs that wait. To be called
    when the graph is complete.
    """
    if runs_locally(workflow):
        workflow.scheduler.job_rate_limiter = None


def multiply_gpus(workflow: Any, factor: int) -> None:
    """Let ``factor`` times as many jobs hold a GPU at the same time as ``--resources gpu=N`` says."""
    granted = granted_gpus(workflow)
    if granted is not None and factor > 1:
        workflow.register_resource("gpu", granted * factor)


def config_texts(workflow: Any) -> list[str]:
    """Return what was written after ``--config``, each as KEY=VALUE; Snakemake keeps the last of two equal keys."""
    return list(workflow.config_settings.config_args or ())


def run_exactly(workflow: Any, outputs: Iterable[str]) -> None:
    """Make Snakemake run the jobs with these outputs, as far as they are asked for, and no other whose outputs are there.

    To be called while the graph is built. All inputs must be ``ancient``, so that no modification time counts.
    """
    workflow.dag.forcefiles.update(outputs)
    # Neither does Snakemake's memory of earlier runs, in .snakemake.
    workflow.dag_settings.rerun_triggers = frozenset()


def outputs_to_make(workflow: Any) -> set[str]:
    """Return the outputs of all jobs that are asked for and have to run. To be called when the graph is complete."""
    return {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}


def ignore_times(workflow: Any) -> None:
    """Keep Snakemake from failing jobs, and removing their results, because an input is younger: clocks may go back.

    To be called while the graph is built, in every process.
    """

    async def pass_over(*_: Any) -> None:
        """Stand in for ``DAG.check_output_mtime``."""

    workflow.dag.check_output_mtime = pass_over


def forget_backups(workflow: Any, results: Path) -> None:
    """Remove copies of ``update`` outputs below ``results`` that a killed Snakemake left: the next would fail on them."""
    backups = workflow.persistence.path / "backups"
    if is_main_process(workflow):
        # Snakemake keeps the backup of an absolute path under the path without its first slash.
        relative = results.relative_to("/") if results.is_absolute() else results
        shutil.rmtree(backups / relative, ignore_errors=True)


def find_locks(results: Path) -> list[Path]:
    """Return the locks that Snakemake has for files below ``results``, in the working folder; a killed one leaves them."""
    # Snakemake writes the paths as it was given them, and a person may ask with others. Not ``resolve``: results may be
    # reached through a link.
    root = os.path.abspath(results)  # noqa: PTH100
    locks = []
    for lock in sorted(Path(".snakemake/locks").glob("*.lock")):
        locked_paths = lock.read_text(encoding="utf-8").splitlines()
        if any(_lies_in(root, path) for path in locked_paths):
            locks.append(lock)
    return locks


def _lies_in(root: str, path: str) -> bool:
    return os.path.abspath(path).startswith(root + os.sep)  # noqa: PTH100


def refuse(error: Exception) -> NoReturn:
    """End Snakemake with one message and the exit code of bad input; an exception would be shown with its traceback."""
    print(escape_controls(f"threespo: {error}"), file=sys.stderr, flush=True)
    os._exit(2)
