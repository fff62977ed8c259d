"""The data stage: the tasks of a study, from any source, in one compact form with a manifest."""

from threespo.envs.registry import prepare as preparation
from threespo.panels.prepared import compare_prepared
from threespo.runs.settings import DataSettings


def prepare(settings: DataSettings) -> None:
    """Write the tasks of every split and ``manifest.json`` (counts and checksums) into the environment's data folder.

    Real tasks are compared with the canonical panel by content; what differs is a warning, and part of the manifest.

    Raises:
        InputError: if the source's files are missing or broken.
    """
    folder = settings.paths.data(settings.env)
    preparation(settings.env)(settings.tasks, folder)
    compare_prepared(settings.env, settings.tasks, folder)
