"""threespo: 3SPO, its baselines and the paper's experiments as one reproducible workflow."""

__version__ = "0.1.0"
