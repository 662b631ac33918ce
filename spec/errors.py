"""What is wrong with an input, as one sentence."""

from __future__ import annotations


class BadInput(ValueError):
    """An input that cannot be judged at all. Its message is one sentence: what was found, and what to do."""


def first_line(error: BaseException) -> str:
    """The type of an exception and the first line of its message, also of one whose message cannot be had."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # its own __str__ raises
        lines = []
    return f"{type(error).__name__}: {lines[0].rstrip('.;')}" if lines else type(error).__name__
