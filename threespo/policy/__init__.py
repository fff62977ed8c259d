"""Policies: tokenizer, model, samplers, and how the embedded base policies are made."""
