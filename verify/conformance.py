"""Whether write-backs stand where a rule says: right after the last step that its constraints name, and not before.

This is what ties a proof of the rule to a pass that says it follows the rule: the positions are worked out from the
rewritten program alone, by the prover's own reading of aliases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from copyproof.spec.program import Program, Value
from copyproof.spec.rule import Relation, Rule
from copyproof.verify.pair import Pair
from copyproof.verify.trace import Write


@dataclass(frozen=True)
class Held:
    """A step that a write-back must come after: its place, its name, and in which relation it stands."""

    step: int
    name: str
    relation: Relation


def deviations(pair: Pair, rule: Rule) -> list[str]:
    """Which write-backs stand elsewhere than `rule` says, in sentences; empty where none does.

    A write-back that clones what is returned may stand later than its constraints ask for: the rule says only that the
    clone comes before it, and a clone that is made early lives long.
    """
    originals = [i for i, step in enumerate(pair.rewritten.steps) if not pair.inserted(step.name)]
    manners = manners_of(pair.rewritten)
    found = []
    for write in pair.write_backs:
        if write.storage.name not in pair.targets:
            continue
        held = [h for h in holding(pair, write, manners) if rule.demands(h.relation)]
        last = max(held, key=lambda h: h.step, default=Held(-1, "the placeholders", Relation.PLACEHOLDER))
        if write.step <= last.step:
            found.append(f"{write.name} stands before {last.name}, though {last.relation.value}")
        elif not any(h.relation is Relation.ESCAPE for h in held):
            passed = [i for i in originals if last.step < i < write.step]
            if passed:
                name = pair.rewritten.steps[passed[0]].name
                found.append(f"{write.name} stands after {name}, but the rule holds it only until {last.name}")
    return found


def holding(pair: Pair, write: Write, manners: dict[Value, Relation]) -> Iterator[Held]:
    """The steps in any relation of a rule to a write-back.

    Args:
        pair: the original and the rewritten program.
        write: the write-back.
        manners: how each value is an alias, by `manners_of`.
    """
    memory = pair.memory
    source = memory.values.get(write.copy) if write.copy is not None else None
    if source is not None:
        yield Held(source.step, "the definition of its source", Relation.SOURCE_DEFINITION)
        for other in memory.writes:
            if other.storage is source.storage and not pair.inserted(other.name):
                yield Held(other.step, other.name, Relation.SOURCE_WRITE)
    for other in memory.writes:
        if other.storage is write.storage and not pair.inserted(other.name):
            yield Held(other.step, other.name, Relation.DIRECT_READ)
    writers = {w.name for w in pair.write_backs}
    returned = {output.value for output in pair.rewritten.outputs if output.target is None}
    for read in pair.reads_of.get(write.storage.name, ()):
        if read.name in ("output", write.name):
            continue
        if read.name in writers:
            relation = Relation.COPY_READ
        elif not pair.inserted(read.name):
            relation = manners.get(read.value, Relation.LOWERED_VIEW_READ)
        else:
            relation = Relation.ESCAPE if Value(read.name) in returned else Relation.CYCLE
        yield Held(read.step, read.name, relation)


def manners_of(program: Program) -> dict[Value, Relation]:
    """How each value names its storage: directly, by a schema's view, or by what only the lowering makes a view."""
    manners = {Value(item.name): Relation.DIRECT_READ for item in program.inputs}
    for step in program.steps:
        for index, result in enumerate(step.results):
            manner = Relation.DIRECT_READ
            if result.base is not None:
                lowered = step.lowered or manners.get(result.base) is Relation.LOWERED_VIEW_READ
                manner = Relation.LOWERED_VIEW_READ if lowered else Relation.VIEW_READ
            manners[Value(step.name, index)] = manner
    return manners
