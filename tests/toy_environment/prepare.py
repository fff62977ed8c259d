"""How the corridor's tasks are written."""

from pathlib import Path

from threespo.envs.corridor.spec import SPLITS, CorridorTasks

from threespo.files import replace_folder, write_json


def prepare(settings: CorridorTasks, out: Path) -> None:
    """Write the names of the corridors of every split; a corridor follows from its name."""
    names = {split: [f"{split}-{number}" for number in range(settings.corridors)] for split in SPLITS}
    with replace_folder(out) as folder:
        write_json(folder / "manifest.json", names)
