"""Compares the tasks of a folder with those of a panel, by content: which are the panel's, missing, changed or extra."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threespo.panels.panel import Panel, load_panel, panel_names
from threespo.terminal import join_first, warn_once


@dataclass(frozen=True)
class Comparison:
    """How tasks differ from those of some splits of a panel. A task is the panel's if its content is; ids are names."""

    panel: Panel
    expected: int
    """Tasks that the panel has here."""
    same: int
    """… that are there by content, under their id or another one."""
    missing: tuple[str, ...]
    """Ids of the panel of which neither content nor name is there; empty where only some are meant to be."""
    changed: tuple[str, ...]
    """Ids of the panel that are there with another content: another goal sentence, or another layout."""
    extra: tuple[str, ...]
    """Ids of tasks that the panel does not have here, by content or name."""
    renamed: tuple[tuple[str, str], ...]
    """(id there, id of the panel) of tasks that are the panel's under another name."""

    @property
    def is_complete(self) -> bool:
        """Whether the tasks are those of the panel, all of them and no others."""
        return self.same == self.expected and not self.extra

    def words(self) -> str:
        """Return what differs, with names and the panel's number."""
        parts = [
            f"{self.same} of {self.expected} tasks of the panel {self.panel.name} are there by content"
        ]
        kinds = {
            "missing": self.missing,
            "with another content under a name of the panel's": self.changed,
            "not of the panel": self.extra,
            "the panel's under another name": [f"{here} ({name})" for here, name in self.renamed],
        }
        for kind, found in kinds.items():
            if found:
                parts.append(f"{len(found)} {kind}: {join_first(found)}")
        return "; ".join(parts)

    def values(self) -> dict[str, Any]:
        """Return the comparison as JSON values, with all names."""
        found = {
            name: getattr(self, name) for name in ("expected", "same", "missing", "changed", "extra")
        }
        return {
            "panel": self.panel.name,
            "sha256": self.panel.sha256,
            **found,
            "renamed": dict(self.renamed),
        }


def compare_with_panel(
    tasks: Mapping[str, str], panel: Panel, splits: Sequence[str], count: int | None = None
) -> Comparison:
    """Compare tasks with a panel.

    Args:
        tasks: id -> content (``threespo.panels.panel.content_hash``).
        panel: the panel.
        splits: of the panel, that the tasks are meant to be together.
        count: how many of them are meant, any; ``None``: all.
    """
    wanted = {task.task_id: task.content for split in splits for task in panel.splits[split]}
    same = {name for name, content in wanted.items() if tasks.get(name) == content}

    # A content may be that of two tasks: shops have wishes for two products.
    left: dict[str, list[str]] = {}
    for name, content in wanted.items():
        if name not in same:
            left.setdefault(content, []).append(name)

    renamed: list[tuple[str, str]] = []
    changed: list[str] = []
    extra: list[str] = []
    for name, content in tasks.items():
        if name in same:
            continue
        if left.get(content):
            renamed.append((name, left[content].pop(0)))
        elif name in wanted:
            changed.append(name)
        else:
            extra.append(name)

    # A changed task counts as met under its name, so it is not reported as missing as well.
    met = same.union(changed, (name for _, name in renamed))
    missing = tuple(name for name in wanted if name not in met) if count is None else ()
    expected = len(wanted) if count is None else min(count, len(wanted))
    return Comparison(
        panel, expected, len(same) + len(renamed), missing, tuple(changed), tuple(extra), tuple(renamed)
    )


def nearest_panel(environment: str, tasks: Mapping[str, str]) -> Panel | None:
    """Return the panel of an environment that tasks have most contents or names in common with; ``None`` if none.

    Args:
        environment: its name.
        tasks: id -> content.
    """
    panels = [panel for panel in map(load_panel, panel_names()) if panel.environment == environment]
    shared = {
        panel.name: sum(
            name in panel.split_of or content in panel.with_content for name, content in tasks.items()
        )
        for panel in panels
    }
    # Names count too: data whose every goal was changed should still be compared with the panel that they come from.
    best = max(panels, key=lambda panel: shared[panel.name], default=None)
    return best if best and shared[best.name] else None


def compare_folder(
    environment: str, path: str, splits: Sequence[str], tasks: Mapping[str, str], *, quiet: bool = False
) -> Comparison | None:
    """Compare the tasks of a folder with the nearest panel, and warn where they are not the panel's.

    Args:
        environment: its name.
        path: the folder, for the warning.
        splits: of the panel, that the tasks are meant to be together.
        tasks: id -> content.
        quiet: no warning.

    Returns:
        The comparison; ``None`` if the tasks have nothing in common with a panel, or a split is none of it.
    """
    panel = nearest_panel(environment, tasks)
    if panel is None or not set(splits) <= panel.splits.keys():
        return None
    found = compare_with_panel(tasks, panel, splits)
    if not found.is_complete and not quiet:
        warn_once(f"{path}, {' and '.join(splits)}: {found.words()}")
    return found
