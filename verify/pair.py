"""An original and a rewritten program side by side: what each obligation speaks about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule

from copyproof.spec.effects import Profile
from copyproof.spec.program import Output, Program, Role, Step, Value
from copyproof.verify.arithmetic import Relation, relation
from copyproof.verify.evaluate import copied, evaluate
from copyproof.verify.frontend import original_programs_of, rewritten_program_of
from copyproof.verify.trace import Content, Definition, Read, Trace, Write


@dataclass
class Pair:
    """The functional meaning of the original, and the memory meaning of the rewritten program.

    Attributes:
        original: the original, not lowered.
        rewritten: the rewritten program, lowered.
        baseline: the original as end placement lowers it, for comparing lifetimes.
    """

    original: Program
    rewritten: Program
    baseline: Program

    @cached_property
    def functional(self) -> Trace:
        """F: the original evaluated; targets are assigned after its last step."""
        return evaluate(self.original, "F")

    @cached_property
    def memory(self) -> Trace:
        """M: the rewritten program evaluated over its storages."""
        return evaluate(self.rewritten, "M")

    @cached_property
    def original_steps(self) -> dict[str, Step]:
        """The original's steps by name."""
        return {step.name: step for step in self.original.steps}

    @cached_property
    def targets(self) -> dict[str, tuple[int, Output]]:
        """The mutation outputs of the original: index and output, by placeholder name."""
        return {o.target: (i, o) for i, o in enumerate(self.original.outputs) if o.target is not None}

    @cached_property
    def new_values(self) -> dict[str, Content]:
        """What F assigns to each target."""
        return assigned(self.original, self.functional)

    @cached_property
    def definitions(self) -> dict[Content, Definition]:
        """Every definition of the two meanings."""
        _ = self.new_values  # adds the definitions of the casts that it needs
        return {**self.functional.definitions, **self.memory.definitions}

    def inserted(self, name: str) -> bool:
        """Whether the rewritten program's step `name` is not one of the original's."""
        return name not in self._kept

    @cached_property
    def _kept(self) -> set[str]:
        kept = set()
        for step in self.rewritten.steps:
            before = self.original_steps.get(step.name)
            if before is not None and (step.lowered or (before.symbol, before.writes) == (step.symbol, step.writes)):
                kept.add(step.name)
        return kept

    @cached_property
    def write_backs(self) -> list[Write]:
        """The writes into inputs that the pass inserted."""
        return [w for w in self.memory.writes if not w.storage.fresh and self.inserted(w.name)]

    def most_writes(self, target: str) -> int:
        """How many write-backs may write the same element of a target; parts that are disjoint count apart."""
        writes = [write for write in self.write_backs if write.storage.name == target]

        def meet(a: Write, b: Write) -> bool:
            if a.region is None or b.region is None:
                return True
            return relation(a.region, b.region, self.memory.ranges) is not Relation.DISJOINT

        return max(
            (1 + sum(meet(write, other) for other in writes if other is not write) for write in writes), default=0
        )

    @cached_property
    def reads_of(self) -> dict[str, list[Read]]:
        """The reads of each storage of the memory meaning, by the storage's name."""
        found: dict[str, list[Read]] = {}
        for read in self.memory.reads:
            for storage in {read.located.storage.name, *(s.name for s, _ in read.located.maybe)}:
                found.setdefault(storage, []).append(read)
        return found

    @cached_property
    def _functional_reads(self) -> dict[tuple[str, int], Content]:
        return {(read.name, read.operand): read.seen for read in self.functional.reads}

    def expected(self, read: Read) -> list[Content]:
        """What a read may see. A step of the original must see what it sees in F; one that the pass inserted, what its
        operand held when it was named; a write-back, its target's new value; an output, F's output."""
        if read.name == "output":
            if read.operand < len(self.original.outputs) and self.original.outputs[read.operand].target is None:
                return [self.functional.outputs[read.operand]]
            return [read.seen]
        if not self.inserted(read.name):
            known = self._functional_reads.get((read.name, read.operand))
            return [read.named if known is None else known]
        allowed = [read.named]
        for write in self.write_backs:
            if write.name == read.name and write.storage.name in self.targets:
                allowed.append(self.new_values[write.storage.name])
        return allowed

    def role(self, placeholder: str) -> str:
        """`buffer 'kc'`, for messages."""
        for item in self.original.inputs:
            if item.name == placeholder:
                return f"{item.role.value} {item.target!r}" if item.role is not Role.OTHER else repr(item.name)
        return repr(placeholder)


def pair_of(
    original: ExportedProgram, graph_module: GraphModule, signature: ExportGraphSignature, profile: Profile
) -> Pair:
    """The pair of an original and what a pass made of it, lowered by `profile`.

    Raises:
        BadInput: the rewritten graph has other placeholders than the original.
    """
    functional, baseline = original_programs_of(original, profile)
    return Pair(functional, rewritten_program_of(original, graph_module, signature, profile), baseline)


def assigned(program: Program, functional: Trace) -> dict[str, Content]:
    """What F assigns to each target: its source's contents, cast and broadcast where the types are not the same. Adds
    the definitions of those casts to `functional`."""
    found = {}
    for index, output in enumerate(program.outputs):
        if output.target is None:
            continue
        content = functional.outputs[index]
        source = functional.values.get(output.value) if output.value is not None else None
        into = functional.values.get(Value(output.target))
        symbol = copied(source.type, into.type) if source is not None and into is not None else None
        if symbol is not None:
            name = f"F!assigned {output.target}"
            functional.definitions[name] = Definition(name, symbol, (content,))
            content = name
        found[output.target] = content
    return found
