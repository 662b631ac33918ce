"""The obligations of a rewritten graph, and the three verdicts on each."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What is known about an obligation. UNKNOWN is never shown, counted or exit-coded as a proof."""

    PROVED = "PROVED"
    REFUTED = "REFUTED"
    UNKNOWN = "UNKNOWN"


class Obligation(Enum):
    """One thing that a rewritten graph owes the original; the value is its statement."""

    ORDER = "no region of a target's old contents is read after the write-back that overwrites it"
    STATE = "after the last step every target holds its functional value, written back exactly once or in place"
    OUTPUT = "after the last step every user output holds its functional value"
    FRAME = "nothing but targets changes: no write to a constant, parameter, unmutated buffer or input"
    EFFECTS = "effectful and random operations happen in the same order, as often"
    SIGNATURE = "output i is the one that output spec i names, in the original order"
    PLAN = "in the planned memory no byte is read after another value was written over it; bounds and alignment hold"
    INIT = "each mutable buffer starts with the contents that the model gives it"
    SHARED = "state that several methods share lies in the same bytes in each, which nothing else uses"
    RULE = "each write-back stands where the rule that the pass follows says"
    EARLIEST = "one step earlier, each write-back would break an obligation"
    LIFETIME = "live bytes at every program point are at most those of end placement"

    @property
    def safety(self) -> bool:
        """Whether a failure is a miscompile (and not just a missed saving)."""
        return self not in (Obligation.RULE, Obligation.EARLIEST, Obligation.LIFETIME)


def worst(verdicts: list[Verdict]) -> Verdict:
    """REFUTED if one is, else UNKNOWN if one is, else PROVED."""
    for verdict in (Verdict.REFUTED, Verdict.UNKNOWN):
        if verdict in verdicts:
            return verdict
    return Verdict.PROVED
