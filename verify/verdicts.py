"""What a proof says: the verdict on each obligation, and the conflicts that explain a refutation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from copyproof.spec.obligations import Obligation, Verdict, worst


@dataclass(frozen=True)
class Conflict:
    """A conflict triple, in node names.

    Attributes:
        target: the placeholder whose contents are at stake.
        write: W2, the write that comes too early.
        read: R, the step that should have seen what W1 wrote; `output i` for a user output.
        last_write: W1, the write that R should have seen: a step, or the placeholder itself.
        right: what would have been right.
        excerpt: the graph around the three, each marked.
    """

    target: str
    write: str
    read: str
    last_write: str
    right: str
    excerpt: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The verdict on one obligation.

    Attributes:
        obligation: which.
        verdict: PROVED, REFUTED or UNKNOWN.
        seconds: time spent on its query.
        reasons: why it is not proved, one sentence each; or, for a proof, what should be known about it.
        conflicts: the triples that explain a refutation.
        vacuous: why the proof holds for want of anything to prove, or empty.
        structural: it is refuted by counting (a doubled write, another type), so no run need show it.
    """

    obligation: Obligation
    verdict: Verdict
    seconds: float
    reasons: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    vacuous: str = ""
    structural: bool = False


@dataclass(frozen=True)
class Report:
    """The whole answer about one pair of programs.

    Attributes:
        findings: one for each obligation.
        approximations: what the proof assumes about operations that it has no model of.
        statistics: counts of the rewritten program (nodes, targets, write-backs, definitions) and seconds.
        witness: the numbers in which a run of the rewritten graph differs from the original, or why there is no run.
    """

    findings: tuple[Finding, ...]
    approximations: tuple[str, ...] = ()
    statistics: dict[str, Any] = field(default_factory=dict)
    witness: tuple[str, ...] = ()
    stage: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict on safety: quality obligations do not change it."""
        return worst([f.verdict for f in self.findings if f.obligation.safety])

    @property
    def strict_verdict(self) -> Verdict:
        """The verdict on safety and quality together."""
        return worst([f.verdict for f in self.findings])

    def __getitem__(self, obligation: Obligation) -> Finding:
        return next(f for f in self.findings if f.obligation is obligation)

    def __str__(self) -> str:
        from copyproof.verify.render import as_text

        return as_text(self, "")

    def as_json(self) -> dict[str, Any]:
        """The report as plain dictionaries and lists."""
        return {
            "verdict": self.verdict.value,
            "strict_verdict": self.strict_verdict.value,
            "obligations": [
                {
                    "name": f.obligation.name,
                    "verdict": f.verdict.value,
                    "seconds": round(f.seconds, 4),
                    "safety": f.obligation.safety,
                    "approximations": list(self.approximations) if f.obligation.safety else [],
                    "reasons": list(f.reasons),
                    "vacuous": f.vacuous,
                }
                for f in self.findings
            ],
            "conflicts": [
                {
                    "obligation": f.obligation.name,
                    "target": c.target,
                    "write_back": c.write,
                    "stale_read": c.read,
                    "last_write": c.last_write,
                    "right": c.right,
                    "excerpt": list(c.excerpt),
                }
                for f in self.findings
                for c in f.conflicts
            ],
            "approximations": list(self.approximations),
            "witness": list(self.witness),
            "stage": self.stage,
            "program": self.statistics,
        }
