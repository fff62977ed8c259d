"""The data stage: the tasks of a study, from any source, in one compact form with a manifest."""

from threespo.envs.registry import environment, load
from threespo.study.run_settings import DataSettings

_COMPARE = "threespo.panels.prepared:compare_prepared"
"""By name, so that the panels of all environments are no part of the code that the tasks of one are made by."""


def prepare(settings: DataSettings) -> None:
    """Write the tasks of every split and ``manifest.json`` (counts and checksums) into the environment's data folder.

    Real tasks are compared with the canonical panel by content; what differs is a warning, and part of the manifest.

    Raises:
        InputError: if the source's files are missing or broken.
    """
    folder = settings.paths.data(settings.env)
    load(environment(settings.env).prepare)(settings.tasks, folder)
    load(_COMPARE)(settings.env, settings.tasks, folder)
