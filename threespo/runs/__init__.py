"""Runs: playing episodes, training, evaluating, and the data stage."""
