"""What the workflow asks of Snakemake beyond its documented interface: every such attribute is used here and nowhere else.

They were read in Snakemake 9.27 and may change with any release.
"""

import os
import shutil
import sys
from typing import Any, NoReturn


def is_main_process(workflow: Any) -> bool:
    """Return whether this is the process that a person has started, and not one that Snakemake starts for a job."""
    return bool(workflow.is_main_process)


def granted_gpus(workflow: Any) -> int | None:
    """Return N of ``--resources gpu=N``, or None where it was not given."""
    granted = workflow.global_resources.get("gpu")
    value = getattr(granted, "value", granted)
    return None if value is None else int(value)


def forget_backups(workflow: Any) -> None:
    """Remove the copies of ``update`` outputs that a killed Snakemake has left behind: the next run would fail on them."""
    if is_main_process(workflow):
        shutil.rmtree(workflow.persistence.path / "backups", ignore_errors=True)


def refuse(error: Exception) -> NoReturn:
    """End Snakemake with one message and the exit code of bad input; an exception would be shown with its traceback."""
    print(f"threespo: {error}", file=sys.stderr, flush=True)
    os._exit(2)
