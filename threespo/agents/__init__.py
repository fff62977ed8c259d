"""Prompting agents: what a model does without training, over any sampler (a policy of the study, or a closed model)."""
