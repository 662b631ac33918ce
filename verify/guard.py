"""`guarded`: lowering that refuses to hand out a program that is refuted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from executorch.exir import EdgeProgramManager

from copyproof.spec.obligations import Verdict
from copyproof.spec.pipeline import at_write_back
from copyproof.verify.program import prove_program
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
            originals = at_write_back(edge, config)
            lowered = lowering(edge, config)
        finally:
            EdgeProgramManager.to_executorch = checked
        for method, original in originals.items():
            report = prove_program(original, lowered.buffer, method=method, timeout=timeout)
            if report.verdict is Verdict.REFUTED:
                raise Refuted(method, report)
        return lowered

    EdgeProgramManager.to_executorch = checked
    try:
        yield
    finally:
        EdgeProgramManager.to_executorch = lowering
