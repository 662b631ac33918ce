"""What the tests of `pytest verify` share: the pass that `--pass` names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from copyproof.spec.errors import BadInput
from copyproof.spec.pipeline import REFERENCE_PASS
from copyproof.verify.passes import named_pass


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keeps the exporter's trace out of the failure messages."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def pass_name(request: pytest.FixtureRequest) -> str:
    """The name of the pass to prove."""
    return request.config.getoption("write_back_pass") or REFERENCE_PASS


@pytest.fixture
def write_back_pass(pass_name: str) -> Callable[[Any], Any]:
    """The pass to prove."""
    try:
        return named_pass(pass_name)
    except BadInput as error:
        pytest.exit(str(error), returncode=2)
