"""Differential execution."""
