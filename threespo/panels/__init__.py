"""The canonical panels: which tasks are for what, what is in each, and in which order they are played (docs/panels.md)."""
