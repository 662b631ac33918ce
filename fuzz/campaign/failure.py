"""A failure: what differed, between which forms, at whose fault; and the signature that tells its kind from others."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Form(Enum):
    """A form that a program runs in, in the order in which the pipeline makes them; the value is its name."""

    EAGER = "eager"
    FUNCTIONAL = "functional graph"
    REWRITTEN = "rewritten graph"
    PLANNED = "planned arena"
    RUNTIME = "runtime"
    PROVER = "prover"


class Fault(Enum):
    """Whose fault a failure is; the value says it."""

    EXPORT = "torch.export or to_edge"
    EARLY = "an early pass of the pipeline"
    PASS = "the write-back pass"
    LATER = "a later pass of the pipeline"
    PLAN = "the memory plan"
    FILE = "emission, serialisation or the runtime"
    UNPLANNED = "a later pass or the memory plan"
    PROVER = "copyproof: a proof and a run disagree"
    PROCESS = "unknown: the process died"


@dataclass(frozen=True)
class Failure:
    """A failure of one program.

    Attributes:
        left, right: the two forms that differ; the first two neighbours that do.
        fault: whose fault it is.
        obligation: the safety obligations that the prover refutes, by name, or empty.
        shape: what kind of conflict, in words that name no node.
        pipeline: the pipeline by name; empty for a graph that no pipeline made.
        lines: the numbers that differ, or what was raised, in sentences.
    """

    left: str
    right: str
    fault: str
    obligation: str
    shape: str
    pipeline: str
    lines: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """What failures of one kind have in common. The pipeline is part of it where its own stages are at fault."""
        fault = Fault[self.fault]
        pipeline = self.pipeline if fault in (Fault.EARLY, Fault.LATER, Fault.UNPLANNED) else ""
        parts = (f"{self.left} / {self.right}", fault.value, self.obligation, self.shape, pipeline)
        return "; ".join(part for part in parts if part)

    @property
    def in_numbers(self) -> bool:
        """Whether the calls show it, in numbers; otherwise the prover, or what was raised, tells of it."""
        return any(line.startswith("call ") for line in self.lines)

    @property
    def raised(self) -> bool:
        """Whether something was raised, or gave no answer, so that there is nothing to compare."""
        return self.shape.startswith(("the pass fails", "does not lower", "does not run", "no answer"))

    @property
    def slug(self) -> str:
        """A short name for files, of the kind of failure."""
        words = re.findall(r"[a-z0-9]+", f"{self.fault} {self.obligation} {self.shape}".lower())
        digest = hashlib.sha256(self.signature.encode()).hexdigest()[:6]
        return "_".join([*words[:9], digest])

    def as_json(self) -> dict[str, Any]:
        """The failure as a dictionary of strings and lists."""
        return {**asdict(self), "lines": list(self.lines)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Failure:
        """What `as_json` gave, as a failure again."""
        return Failure(**{**data, "lines": tuple(data["lines"])})


def rank(program: str, failure: Failure) -> tuple[bool, int]:
    """Of two programs that fail alike the lower one is shown: one whose numbers show it, and then the smaller."""
    return not failure.in_numbers, len(program)


def without_names(message: str) -> str:
    """A message less what differs from program to program: numbers, quoted names, names of nodes."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "_", message)
    text = re.sub(r"\b\w*\d\w*\b", "N", text)
    return " ".join(text.split())[:120]
