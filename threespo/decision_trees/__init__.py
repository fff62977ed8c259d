"""Methods on decision trees with a tabular policy, where success is computed and not sampled."""
