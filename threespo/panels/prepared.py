"""Compares prepared real data with the panel that they should be; warns on standard error, and notes it in the manifest."""

from collections.abc import Mapping
from pathlib import Path

from threespo.envs.registry import contents as reader_of_contents
from threespo.envs.registry import environment
from threespo.envs.settings import TaskSettings
from threespo.files import read_json, write_json
from threespo.panels.comparison import Comparison, compare_with_panel, nearest_panel
from threespo.panels.panel import HELD_OUT, Panel, text_hash
from threespo.terminal import warn_once


def compare_prepared(name: str, tasks: TaskSettings, folder: Path) -> dict[str, Comparison]:
    """Compare prepared tasks with the nearest panel, say what differs, and add both to the folder's ``manifest.json``.

    Generated tasks, and environments without a panel, are left as they are.

    Args:
        name: of the environment.
        tasks: what was prepared; where it has a number of tasks for a split, as many of the panel's are expected.
        folder: where it was prepared.

    Returns:
        The comparisons, by split; ``train`` covers all splits that no result is reported on.
    """
    spec = environment(name)
    read = reader_of_contents(name)
    if tasks.source == "embedded" or read is None:
        return {}
    manifest = folder / "manifest.json"
    values = read_json(manifest, "Prepare the data again.")
    contents = {}
    for split in tasks.splits or spec.splits:
        contents[split] = {task: text_hash(text) for task, text in read(folder, split).items()}
    panel = nearest_panel(
        name, {task: content for found in contents.values() for task, content in found.items()}
    )
    if panel is None:
        warn_once(
            f"{folder}: no task is of a panel, by content or name: its numbers stand beside no others"
        )
        return {}

    found = _by_split(contents, panel, tasks)
    for split, one in found.items():
        if not one.is_complete:
            warn_once(f"{tasks.path or folder}, {split}: {one.words()}")
    write_json(manifest, {**values, "panel": {split: one.values() for split, one in found.items()}})
    return found


def _by_split(
    contents: Mapping[str, Mapping[str, str]], panel: Panel, tasks: TaskSettings
) -> dict[str, Comparison]:
    counts: dict[str, int] = {}
    for split in contents:
        limit = tasks.tasks_in(split)
        if limit:
            counts[split] = limit[1]
    tested = [split for split in panel.tested if split in contents]
    found = {
        split: compare_with_panel(contents[split], panel, [split], counts.get(split)) for split in tested
    }

    # With numbers of their own, training and calibration tasks are divided in another way, and may be fewer.
    # Whether such a task is trained on or calibrated on does not matter to a result, so they are compared together.
    unreported = {task: content for split in HELD_OUT for task, content in contents[split].items()}
    found["train"] = compare_with_panel(
        unreported, panel, HELD_OUT, len(unreported) if counts.keys() & set(HELD_OUT) else None
    )
    return found
