"""Passes: the reference pass and end placement."""
