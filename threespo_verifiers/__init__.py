"""The package by which verifiers loads the taskset of ``threespo.adapters.verifiers``: it imports plugins by a top-level
name."""

from threespo.adapters.verifiers import ThreespoEnv, ThreespoTaskset

__all__ = ["ThreespoEnv", "ThreespoTaskset"]
