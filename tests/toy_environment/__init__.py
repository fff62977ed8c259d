"""An environment in one folder: balls in a corridor. Tests add it with one line in the registry (CONTRIBUTING.md)."""
