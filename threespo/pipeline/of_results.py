"""What the stages that show results have in common."""

from collections.abc import Sequence
from pathlib import Path

from threespo.envs.registry import environment_module
from threespo.methods.registry import method_module
from threespo.paths import Paths
from threespo.study.config import Study
from threespo.study.matrix import searching_runs


def presentation_modules(study: Study) -> list[str]:
    """Return the modules that say how the study's environments are named."""
    return [environment_module(env, "presentation") for env in study.environments]


def result_modules(study: Study, _: str) -> Sequence[str]:
    """Return the modules that tables and report find by the names of a study's environments and methods."""
    rows = [*study.methods.values(), *(study.laboratory.methods.values() if study.laboratory else ())]
    methods = dict.fromkeys(method_module(row.method) for row in rows)
    return [
        *presentation_modules(study),
        *(environment_module(env, "spec") for env in study.environments),
        *methods,
    ]


def tree_files(study: Study, paths: Paths) -> list[Path]:
    """Return the recorded search trees of all runs that search."""
    return [paths.run(run).trees for run in searching_runs(study)]
