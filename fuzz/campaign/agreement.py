"""What runs say of a verdict: whether they bear it out, or contradict it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from copyproof.spec.obligations import Verdict

if TYPE_CHECKING:
    from copyproof.verify.verdicts import Report


class Runs(Enum):
    """What the runs showed; the value heads a column.

    A refutation may show on the prover's own counterexample alone (other contents than those of the calls), or need no
    run, since it is counted in the program itself (a doubled write, a wrong signature).
    """

    ALIKE = "alike"
    DIFFER = "differ"
    COUNTED = "need not differ"
    NOT_RUN = "not run"


def runs_beside(report: Report, alike: bool | None) -> Runs:
    """What was seen beside a verdict.

    Args:
        report: what the prover says.
        alike: whether two forms gave the same over the calls; None where one did not run.
    """
    if alike is False or shows_numbers(report):
        return Runs.DIFFER
    refuted = [f for f in report.findings if f.verdict is Verdict.REFUTED and f.obligation.safety]
    if refuted and all(finding.structural for finding in refuted):
        return Runs.COUNTED
    return Runs.NOT_RUN if alike is None else Runs.ALIKE


def disagree(verdict: Verdict, runs: Runs) -> bool:
    """Whether a verdict and the runs contradict each other."""
    return (verdict, runs) in ((Verdict.PROVED, Runs.DIFFER), (Verdict.REFUTED, Runs.ALIKE))


def told_of(report: Report) -> list[str]:
    """Why a report refutes, and the numbers of its counterexample where they were seen; nothing where it does not."""
    refuted = [f for f in report.findings if f.verdict is Verdict.REFUTED and f.obligation.safety]
    reasons = [reason for finding in refuted for reason in finding.reasons]
    return [*reasons, *(report.witness if refuted and shows_numbers(report) else ())]


def shows_numbers(report: Report) -> bool:
    """Whether the prover's own counterexample was run, and the numbers differed."""
    return any("should" in line or "cannot run" in line for line in report.witness)
