"""The safety obligations as queries.

Each function gives the cases that would break its obligation, so `unsat` is a proof. What is asserted, and why that is
the negation, stands in each docstring. `Pair.functional` is F, `Pair.memory` is M.
"""

from __future__ import annotations

from collections.abc import Iterator

from copyproof.spec.program import Value
from copyproof.verify.arithmetic import Relation, relation
from copyproof.verify.pair import Pair
from copyproof.verify.solver import Above, Case, Differ, Number
from copyproof.verify.trace import Read, Write

ONE = Number("one", 1)


def state(pair: Pair) -> list[Case]:
    """Some target holds after M's last step what F does not assign to it, or is written back more than once.

    STATE says that neither is so for any target; a lost write leaves M with the old contents, which are free.
    """
    cases = []
    for target in pair.targets:
        cases.append(Case(target, (Differ(pair.new_values[target], pair.memory.final[target]),)))
        count = Number(f"write-backs of one element of {target}", pair.most_writes(target))
        cases.append(Case(f"{target}#count", (Above(count, ONE),)))
    return cases


def output(pair: Pair) -> list[Case]:
    """Some user output holds after M's last step something else than F's, or is of another type, or is missing."""
    cases = []
    missing = Number("missing", 2)
    for index, expected in enumerate(pair.original.outputs):
        if expected.target is not None:
            continue
        if index >= len(pair.memory.outputs):
            cases.append(Case(str(index), (Above(missing, ONE),)))
            continue
        cases.append(Case(str(index), (Differ(pair.functional.outputs[index], pair.memory.outputs[index]),)))
        if _type_of(pair, index, rewritten=False) != _type_of(pair, index, rewritten=True):
            cases.append(Case(f"{index}#type", (Above(missing, ONE),)))
    return cases


def frame(pair: Pair) -> list[Case]:
    """Some input or constant that is no target holds after M's last step something else than at the start."""
    return [
        Case(item.name, (Differ(pair.memory.values[Value(item.name)].content, pair.memory.final[item.name]),))
        for item in pair.rewritten.inputs
        if item.name not in pair.targets and item.name in pair.memory.final
    ]


def effects(pair: Pair) -> list[Case]:
    """Some chain of effects ends in another token than in F.

    Each effect makes the next token of its chain out of the last one and its operands, so tokens are equal only if the
    same effects happened, on the same contents, in the same order.
    """
    return [
        Case(chain.value, (Differ(pair.functional.tokens[chain], token),))
        for chain, token in pair.memory.tokens.items()
        if token != f"in!{chain.name}" or pair.functional.tokens[chain] != token
    ]


def signature(pair: Pair) -> list[Case]:
    """At some index the rewritten signature has another kind, target or name than it should.

    Input specs must be the original's, and so must the kinds and targets of outputs; the name must be that of the
    node which the output node has there; and the node that a mutation output names must lie in its target's storage.
    """
    codes: dict[str, int] = {}
    cases = []
    for index, what, left, right in signature_facts(pair):
        a = Number(f"{what} {index} is", codes.setdefault(left, len(codes)))
        b = Number(f"{what} {index} should be", codes.setdefault(right, len(codes)))
        # Two integers differ when one is above the other.
        high, low = (a, b) if a.value >= b.value else (b, a)
        cases.append(Case(f"{index}#{what}", (Above(high, low),)))
    return cases


def signature_facts(pair: Pair) -> Iterator[tuple[int, str, str, str]]:
    """What the signature says and should say: index, what about it, as it is, as it should be."""
    before_specs, after_specs = pair.original.input_specs, pair.rewritten.input_specs
    for index in range(max(len(before_specs), len(after_specs))):
        before_spec = before_specs[index] if index < len(before_specs) else "missing"
        after_spec = after_specs[index] if index < len(after_specs) else "missing"
        yield index, "input", after_spec, before_spec
    for index in range(max(len(pair.original.outputs), len(pair.rewritten.outputs))):
        if index >= len(pair.original.outputs) or index >= len(pair.rewritten.outputs):
            yield index, "count", str(len(pair.rewritten.outputs)), str(len(pair.original.outputs))
            continue
        before, after = pair.original.outputs[index], pair.rewritten.outputs[index]
        yield index, "kind", after.kind, before.kind
        yield index, "target", after.target or "", before.target or ""
        if after.node_name:
            yield index, "name", after.spec_name, after.node_name
        if before.target is not None:
            located = pair.memory.values.get(after.value) if after.value is not None else None
            where = located.storage.name if located is not None and not located.storage.fresh else "elsewhere"
            yield index, "storage", where, before.target


def order(pair: Pair) -> tuple[list[Case], list[tuple[Write, Read]]]:
    """Some read R comes after a write-back W2 of the storage that it reads, the regions overlap, and what R sees is
    not what it should.

    That is the conflict triple: W1 is the last write before W2, whose contents R should have seen. Regions that Z3
    proves disjoint are left out; a read that may legally see the new value is no conflict, hence the last part.

    Returns:
        the cases, and for each the write-back and the read.
    """
    cases, triples = [], []
    for write in pair.write_backs:
        where = Number(f"step of {write.name}", write.step)
        for read in pair.reads_of.get(write.storage.name, ()):
            if read.step <= write.step or read.name == write.name:
                continue
            region = read.located.region
            same_storage = read.located.storage is write.storage
            known = same_storage and region is not None and write.region is not None
            if known and relation(region, write.region, pair.memory.ranges) is Relation.DISJOINT:
                continue
            position = Number(f"step of {read.label}", read.step)
            differ = tuple(Differ(read.seen, allowed) for allowed in pair.expected(read))
            cases.append(Case(f"{write.name}/{read.label}", (Above(position, where), *differ)))
            triples.append((write, read))
    return cases, triples


def _type_of(pair: Pair, index: int, rewritten: bool) -> str:
    program, trace = (pair.rewritten, pair.memory) if rewritten else (pair.original, pair.functional)
    value: Value | None = program.outputs[index].value
    located = trace.values.get(value) if value is not None else None
    return located.type.spelled if located is not None else "number"
