"""Environments are pure functions on immutable states; see ``base.py`` for the protocol."""
