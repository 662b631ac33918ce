"""Options of `pytest verify` and `pytest --pyargs copyproof.verify`.

An installed plugin, since pytest reads options before it looks for the conftest files of `--pyargs` packages. It
imports nothing of the prover.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

_CORPUS_TESTS = Path(__file__).parent.parent / "verify"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--pass` and `--through`."""
    group = parser.getgroup("copyproof")
    group.addoption(
        "--pass",
        dest="write_back_pass",
        metavar="PKG.MOD:FN",
        default=None,
        help="the write-back pass to prove on copyproof's corpus (default: the reference pass, quality included)",
    )
    group.addoption(
        "--through",
        choices=["executorch"],
        default=None,
        help="lower each program of the corpus with the pass through the whole pipeline, and prove the .pte file",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker of the slow models."""
    config.addinivalue_line("markers", "slow: minutes rather than seconds; select with -m slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the exporter's log lines out of the corpus's failure messages."""
    report = yield
    if item.path.is_relative_to(_CORPUS_TESTS):
        report.sections = [section for section in report.sections if "log" not in section[0]]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the slow models of the corpus out where no marker expression decides."""
    if config.getoption("-m"):
        return
    slow = [i for i in items if i.path.is_relative_to(_CORPUS_TESTS) and i.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
