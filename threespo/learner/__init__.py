"""The learner: from rows to optimizer steps."""
