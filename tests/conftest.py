"""Fixtures that several test files use."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def restored() -> Iterator[None]:
    """The command line silences the libraries for its process; tests go on."""
    with warnings.catch_warnings():
        yield
    logging.disable(logging.NOTSET)
