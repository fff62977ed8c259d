"""The data stage: the tasks of a study, from any source, in one compact form with a manifest."""

from threespo.envs.registry import prepare as preparation
from threespo.runs.settings import DataSettings


def prepare(settings: DataSettings) -> None:
    """Write the tasks of every split and ``manifest.json`` (counts and checksums) into the environment's data folder.

    Raises:
        InputError: if the source's files are missing or broken.
    """
    preparation(settings.env)(settings.tasks, settings.paths.data(settings.env))
