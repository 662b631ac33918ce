"""The placement rule, as data: named ordering constraints on where a write-back may stand.

A write-back of target *t* copies its *source* (the value that the functional graph names as t's new value) into
t's storage. A constraint says: the write-back of t comes after every step that stands in a given `Relation` to t.
The earliest legal point is right after the last such step. A pass that is driven by a `Rule` and a proof that takes
the same `Rule` as axioms speak of the same thing; `Rule.without` drops one constraint, for ablations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum


class Relation(Enum):
    """How a step can stand to the write-back of a target t with source s."""

    PLACEHOLDER = "the step is a placeholder"
    SOURCE_DEFINITION = "the step defines s, or the value that s is a view of"
    SOURCE_WRITE = "the step writes into the storage of s after s was defined"
    DIRECT_READ = "the step reads t's old contents by the name of t itself"
    VIEW_READ = "the step reads t's old contents through an alias that the operator schemas declare"
    LOWERED_VIEW_READ = "the step reads t's old contents through an alias that only the lowering makes"
    COPY_READ = "the step is the write-back of another target, whose source is an alias of t's old contents"
    ESCAPE = "the step is the output, and it returns an alias of t's old contents"
    CYCLE = "the step is the write-back of another target that must, by COPY_READ, also come after this one"
    OVERLAP = "the step is this write-back itself, whose source overlaps t without being all of t in order"


class Remedy(Enum):
    """What a pass does to meet a constraint."""

    WAIT = "place the write-back after the step"
    CLONE = "let the step read a clone, made before the write-back, since no order would do"


CLONED = frozenset({Relation.ESCAPE, Relation.CYCLE, Relation.OVERLAP})
"""The relations in which no order would do."""


@dataclass(frozen=True)
class Constraint:
    """A write-back comes after every step in `relation` to its target; `remedy` is how that is brought about."""

    name: str
    relation: Relation
    remedy: Remedy = Remedy.WAIT

    def __post_init__(self) -> None:
        """Raises ValueError where the name is not of small letters, digits and hyphens, or is one that proofs use, or
        the remedy cannot bring the constraint about."""
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name) or self.name.startswith("no-"):
            raise ValueError(
                f"constraint name {self.name!r} is not of small letters, digits and hyphens, or is 'no-...'"
            )
        if (self.remedy is Remedy.CLONE) != (self.relation in CLONED):
            wanted = Remedy.CLONE if self.relation in CLONED else Remedy.WAIT
            raise ValueError(f"constraint {self.name!r}: {self.relation.name} is met by {wanted}, not by {self.remedy}")


@dataclass(frozen=True)
class Rule:
    """A set of constraints. `name` is for reports."""

    name: str
    constraints: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        """Raises ValueError where two constraints have one name."""
        names = [constraint.name for constraint in self.constraints]
        if len(set(names)) < len(names):
            raise ValueError(f"rule {self.name!r} has two constraints of one name; give each its own")

    def without(self, *names: str) -> Rule:
        """This rule less the constraints with these names; the name of one of `GROUPS` stands for all of its members.

        Raises:
            KeyError: a name is neither one of this rule's constraints nor a group of them; the message lists those
                that are.
        """
        known: dict[str, tuple[str, ...]] = {constraint.name: (constraint.name,) for constraint in self.constraints}
        known |= {group: members for group, members in GROUPS.items() if known.keys() >= set(members)}
        for name in names:
            if name not in known:
                raise KeyError(f"no constraint {name!r} in rule {self.name!r}; it has {', '.join(sorted(known))}")
        dropped = {member for name in names for member in known[name]}
        kept = tuple(c for c in self.constraints if c.name not in dropped)
        return replace(self, name=f"{self.name} without {', '.join(names)}", constraints=kept)

    def demands(self, relation: Relation) -> bool:
        """Whether a constraint of this rule speaks of `relation`."""
        return any(constraint.relation is relation for constraint in self.constraints)


GROUPS: dict[str, tuple[str, ...]] = {"alias-reads": ("view-reads", "lowered-view-reads")}
"""Names that stand for several constraints at once: `alias-reads` for all that a last *direct* read does not see."""

REFERENCE = Rule(
    "reference",
    (
        Constraint("placeholders", Relation.PLACEHOLDER),
        Constraint("source-definition", Relation.SOURCE_DEFINITION),
        Constraint("source-writes", Relation.SOURCE_WRITE),
        Constraint("direct-reads", Relation.DIRECT_READ),
        Constraint("view-reads", Relation.VIEW_READ),
        Constraint("lowered-view-reads", Relation.LOWERED_VIEW_READ),
        Constraint("copy-reads", Relation.COPY_READ),
        Constraint("escapes", Relation.ESCAPE, Remedy.CLONE),
        Constraint("cycles", Relation.CYCLE, Remedy.CLONE),
        Constraint("self-overlap", Relation.OVERLAP, Remedy.CLONE),
    ),
)
"""The full rule: sufficient for ORDER, STATE and OUTPUT, and as early as those allow."""
