"""Columns of the episode that an evaluation keeps, apart: who reads them does not depend on how they are played."""

EXAMPLE_COLUMNS = (
    "env", "policy", "method", "training_seed", "split", "evaluation_seed", "task_id", "task_type", "goal", "success",
    "score", "step", "observation", "response", "action",
)  # fmt: skip
"""A row for each step from 1 on, and one for what the last action led to, without response and action."""
