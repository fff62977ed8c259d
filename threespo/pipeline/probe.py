"""The stage ``probe``: a run's state scores beside true success probabilities."""

from threespo.paths import Paths
from threespo.pipeline.of_run import run_ids, snapshot_files, training_fields
from threespo.pipeline.stage import RUN_PATTERN, Files, Outputs, Stage
from threespo.pipeline.train import extra_modules
from threespo.runs.settings import ProbeRunSettings, ProbeSettings
from threespo.study.config import Study
from threespo.study.matrix import find_run, probed_runs


def run(settings: ProbeRunSettings) -> None:
    """Probe the run."""
    from threespo.runs.probe import probe

    probe(settings)


def probe_settings(study: Study, paths: Paths, name: str) -> ProbeRunSettings:
    """Return what probes the run ``name``."""
    assert study.probe is not None
    return ProbeRunSettings(
        **training_fields(study, paths, find_run(study, name)), probe=ProbeSettings.part_of(study.probe)
    )


def probe_inputs(study: Study, paths: Paths, name: str) -> Files:
    """Return what the probe of run ``name`` reads."""
    run = find_run(study, name)
    return {"data": [paths.data(run.env)], **snapshot_files(paths.run(run))}


def probe_outputs(paths: Paths, name: str) -> Outputs:
    """Return what the probe of run ``name`` writes."""
    return Outputs({"probe": [paths.run(name).probe]})


STAGE = Stage(
    summary="set a run's state scores beside true success probabilities",
    run=run,
    arguments=("run",),
    pattern=RUN_PATTERN,
    jobs=lambda study: run_ids(probed_runs(study)),
    settings=probe_settings,
    inputs=probe_inputs,
    outputs=probe_outputs,
    extra_modules=extra_modules,
)
