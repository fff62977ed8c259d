"""Copies of runs in TensorBoard, Weights & Biases, MLflow or Trackio, made after the fact from the runs' own tables.

Nothing here is an input of anything: training does not know of it, and what was copied is never read back into results.
"""
