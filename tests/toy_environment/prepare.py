"""How the corridor's tasks are written."""

from pathlib import Path

from threespo.envs.corridor.spec import SPLITS, CorridorTasks

from threespo.files import atomic_folder, atomic_json


def prepare(settings: CorridorTasks, out: Path) -> None:
    """Write the names of the corridors of every split; a corridor follows from its name."""
    names = {split: [f"{split}-{number}" for number in range(settings.corridors)] for split in SPLITS}
    with atomic_folder(out) as folder:
        atomic_json(folder / "manifest.json", names)
