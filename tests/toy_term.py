"""A reward term in two places: 0.125 for a transition to another state. Tests add it to a copy (CONTRIBUTING.md)."""

PLACES = {
    "scoring/reward.py": (
        "    success: float\n\n",
        "    success: float\n    change: float = 0.0\n\n",
    ),
    "methods/scorer.py": (
        "success=self._reward_success(child.episode, valid),\n        )",
        "success=self._reward_success(child.episode, valid),\n        )._replace(change=0.125 * (child.key != node.key))",
    ),
}
"""File of the package -> (text that is there once, text in its place)."""
