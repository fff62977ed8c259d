"""Typed study files and the run matrix: the only place that knows what a study contains and where its files lie."""
