"""`guarded`: lowering that refuses to hand out a program that is refuted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig

from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import copy_of_edge
from copyproof.verify.stages import proofs_of
from copyproof.verify.verdicts import Report


class Refuted(Exception):
    """A lowered program is wrong. `report` is the refutation, and the message shows it."""

    def __init__(self, method: str, report: Report) -> None:
        super().__init__(f"the method {method!r} of the lowered program is refuted:\n{report}")
        self.report = report


@contextmanager
def guarded(timeout: float = 60.0) -> Iterator[None]:
    """Within this context `EdgeProgramManager.to_executorch` proves each method of the file that it makes.

    Args:
        timeout: seconds for each obligation.

    Raises (inside the context, from `to_executorch`):
        Refuted: a method is wrong. A method about which nothing is known (UNKNOWN) is let through.
    """
    lowering = EdgeProgramManager.to_executorch

    def checked(edge: Any, config: Any = None) -> Any:
        EdgeProgramManager.to_executorch = lowering
        try:
            before = copy_of_edge(edge)
            lowered = lowering(edge, config)
            reports = proofs_of(before, lowered, config or ExecutorchBackendConfig(), timeout)
        finally:
            EdgeProgramManager.to_executorch = checked
        for method, report in reports.items():
            if report.verdict is Verdict.REFUTED:
                raise Refuted(method, report)
        return lowered

    EdgeProgramManager.to_executorch = checked
    try:
        yield
    finally:
        EdgeProgramManager.to_executorch = lowering
