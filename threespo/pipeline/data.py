"""The stage ``data``: the tasks of an environment."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from threespo.envs.registry import environment, environment_module
from threespo.envs.spec import RealData
from threespo.paths import Paths
from threespo.pipeline.stage import Outputs, Stage
from threespo.provenance.digests import file_digest
from threespo.runs.settings import DataSettings
from threespo.study.config import Study


def run(settings: DataSettings) -> None:
    """Prepare the tasks."""
    from threespo.runs.data import prepare

    prepare(settings)


def data_settings(study: Study, paths: Paths, name: str) -> DataSettings:
    """Return what prepares the tasks of the environment ``name``."""
    section = study.environments[name]
    tasks = environment(name).tasks.part_of(section)
    return DataSettings(
        paths=paths,
        env=name,
        tasks=tasks,
        given=_digest_of_folder(environment(name).real, section.folder),
    )


def data_outputs(paths: Paths, name: str) -> Outputs:
    """Return what preparing the tasks of environment ``name`` writes."""
    folder = paths.data(name)
    return Outputs({"data": [folder]}, (folder,))


def extra_modules(_: Study, name: str) -> Sequence[str]:
    """Return the modules that the environment ``name`` is found in."""
    return environment_module(name, "spec"), environment_module(name, "prepare")


def _digest_of_folder(real: RealData | None, folder: Path | None) -> str | None:
    """Return a digest of which data a folder holds, wherever it lies; ``None`` without a folder."""
    if real is None or folder is None:
        return None
    files = sorted(path for pattern in real.files for path in folder.glob(pattern))
    lines = [f"{path.name} {file_digest(path)}" for path in files]
    if not lines:
        found = sorted(path for name in real.listed for path in folder.rglob(name))
        lines = [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in found]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


STAGE = Stage(
    summary="prepare the tasks of an environment",
    run=run,
    arguments=("env",),
    pattern="{env}",
    jobs=lambda study: list(study.environments),
    settings=data_settings,
    inputs=lambda *_: {},
    outputs=data_outputs,
    extra_modules=extra_modules,
)
