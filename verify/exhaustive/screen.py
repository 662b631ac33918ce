"""Proving what a pass made of a small program by congruence alone, which is quick, and naming what that leaves open.

Both meanings are evaluated with one table of contents: what is equal by congruence has one name. A way to break an
obligation that would need a content to differ from itself, or a number to be above one that it is not above, is closed;
where all are closed the solver has nothing left to find. What is open is named by its kind of fault, and is for `prove`
to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule, Node

from copyproof.spec.effects import EXECUTORCH, NO_LOWERING, Profile
from copyproof.spec.obligations import Obligation
from copyproof.spec.program import Output, Program
from copyproof.spec.rule import Relation, Rule
from copyproof.verify import safety
from copyproof.verify.conformance import deviations, manners_of
from copyproof.verify.contents import constants_of
from copyproof.verify.evaluate import evaluate
from copyproof.verify.exhaustive.bounds import Frame
from copyproof.verify.exhaustive.build import Builder, mutation_of
from copyproof.verify.exhaustive.recipe import Recipe
from copyproof.verify.frontend import Reader, require_same_placeholders
from copyproof.verify.pair import Pair
from copyproof.verify.solver import Case, Differ
from copyproof.verify.trace import Content, Read, Trace, Write


class Fault(Enum):
    """A kind of fault that a placement can have; the value says it."""

    READ_DIRECTLY = "old contents read directly after the write-back"
    READ_THROUGH_VIEW = "old contents read through a view after the write-back"
    READ_THROUGH_LOWERED_VIEW = "old contents read through a lowered view after the write-back"
    DEPENDENT_COPIES = "write-backs that depend on each other in the wrong order"
    CYCLE = "a cycle of write-backs that no clone breaks"
    LATE_CLONE = "a clone of old contents taken after the write-back"
    ESCAPE = "a returned alias of old contents, not cloned"
    LOST_WRITE = "a target that is never written"
    DOUBLED_WRITE = "a target that is written back twice"
    EARLY_SOURCE = "a source copied before it is final"
    SELF_OVERLAP = "a source that overlaps its own target, not cloned"
    WRONG_STATE = "a target that holds something else than its new value"
    WRONG_PLACE = "a user output in another one's place"
    WRONG_OUTPUT = "a user output of another value, or computed from wrong contents"
    WRONG_NAME = "a signature that names another node than the output node returns"
    SWAPPED = "mutation outputs in each other's place"
    WRONG_STORAGE = "a mutation output that does not lie in its target's storage"
    WRONG_SIGNATURE = "a signature of other inputs, kinds, targets or number of outputs"
    BYSTANDER = "a write into an input that is no target"
    EFFECTS = "effects in another order or number"
    RULE = "a write-back or clone elsewhere than the rule says"
    CONTENTS = "contents of buffers changed while rewriting"
    RAISES = "the pass raises, or returns no program"


@dataclass(frozen=True)
class Open:
    """One way to break an obligation that congruence does not close."""

    obligation: Obligation
    fault: Fault
    about: str = ""


@dataclass
class Screen:
    """Screens rewritten programs; keeps what programs with the same steps share.

    Args:
        profile: how the rewritten graphs will be lowered.
        rule: the rule that the pass says it follows, whose positions are then checked too; None for no rule.
    """

    profile: Profile = EXECUTORCH
    rule: Rule | None = None
    builder: Builder = field(default_factory=Builder)
    computed: dict[Any, Any] = field(default_factory=dict)
    _frame: Frame | None = None

    def open_ways(
        self,
        recipe: Recipe,
        carried: Sequence[ExportedProgram],
        graph_module: GraphModule,
        signature: ExportGraphSignature,
    ) -> list[Open]:
        """What is open about a rewritten program; nothing where it is proved.

        Args:
            recipe: the original.
            carried: the programs whose buffers the rewritten graph may run over.
            graph_module, signature: what the pass returned.

        Raises:
            BadInput: the rewritten graph is no program.
        """
        pair = self.pair(recipe, graph_module, signature)
        found = ways_open(pair)
        if self.rule is not None:
            found += [Open(Obligation.RULE, Fault.RULE, text) for text in deviations(pair, self.rule)]
        changed = any(self.builder.has_changed(recipe, program) for program in carried)
        # A constant of the graph's own may be the very memory of a buffer.
        if changed or any(constants_of(graph_module)):
            found.append(Open(Obligation.FRAME, Fault.CONTENTS))
        if changed:
            self._frame = None
            self.computed.clear()
        return found

    def pair(self, recipe: Recipe, graph_module: GraphModule, signature: ExportGraphSignature) -> Pair:
        """The original's functional meaning and the rewritten program's memory meaning, over one table of contents."""
        self.take_up(recipe)
        original, functional = self._of_frame(recipe)
        require_same_placeholders(self.original, graph_module)
        reader = Reader(
            self.original,
            graph_module,
            signature,
            self.profile,
            self.trusted,
            read=self.program,
            computed=self.computed,
        )
        rewritten = reader.program()
        memory = evaluate(rewritten, "M", known=self.known)
        return Traced(original, rewritten, original, functional, memory)

    def take_up(self, recipe: Recipe) -> None:
        """Reads and evaluates the steps of `recipe`, if they are not those of the last one: `original` is then the
        program that writes nothing back and returns every value of these steps."""
        frame = Frame(recipe.targets, recipe.steps)
        if frame == self._frame:
            return
        self._frame = frame
        whole = Recipe(frame.targets, frame.steps, tuple(range(len(frame.targets))), ())
        whole = replace(whole, outputs=tuple(range(whole.values)))
        self.original = self.builder.program(whole)
        self.trusted: Mapping[str, Node] = {node.name: node for node in self.original.graph.nodes}
        signature = self.original.graph_signature
        reader = Reader(self.original, self.original.graph_module, signature, NO_LOWERING, {}, computed=self.computed)
        self.program = reader.program()
        self.functional = evaluate(self.program, "F")
        self.known = {(d.symbol, d.operands): name for name, d in self.functional.definitions.items()}

    def _of_frame(self, recipe: Recipe) -> tuple[Program, Trace]:
        """The frame's program and its meaning, with the sources and outputs of `recipe`."""
        shown = self.program.outputs[len(recipe.targets) :]
        held = self.functional.outputs[len(recipe.targets) :]
        outputs: list[Output] = []
        contents: list[Content] = []
        for name, role, source in zip(recipe.names, recipe.targets, recipe.sources, strict=False):
            outputs.append(replace(shown[source], kind=mutation_of(role).name, target=name))
            contents.append(held[source])
        for value in recipe.outputs:
            outputs.append(shown[value])
            contents.append(held[value])
        functional = copy(self.functional)
        functional.outputs = contents
        return replace(self.program, outputs=tuple(outputs)), functional


class Traced(Pair):
    """A pair whose meanings are there already."""

    def __init__(
        self, original: Program, rewritten: Program, baseline: Program, functional: Trace, memory: Trace
    ) -> None:
        super().__init__(original, rewritten, baseline)
        self.__dict__.update(functional=functional, memory=memory)


def ways_open(pair: Pair) -> list[Open]:
    """What congruence leaves open about a pair: nothing where it is proved, but for what holds it (`FRAME` of contents)
    and the rule of the pass."""
    found = [
        Open(obligation, fault_of(pair, obligation, case, triple), case.about)
        for obligation, cases, triples in _all_cases(pair)
        for case, triple in zip(cases, triples, strict=True)
        if not _closed(case)
    ]
    found += [
        Open(Obligation.SIGNATURE, _wrong_signature(pair, index, what), f"{index}#{what}")
        for index, what, left, right in safety.signature_facts(pair)
        if left != right
    ]
    return found


def fault_of(pair: Pair, obligation: Obligation, case: Case, triple: tuple[Write, Read] | None) -> Fault:
    """What kind of fault it is that a case of an obligation stands for."""
    about, _, what = case.about.partition("#")
    if obligation is Obligation.ORDER:
        assert triple is not None
        return _stale(pair, *triple)
    if obligation is Obligation.STATE:
        return Fault.DOUBLED_WRITE if what else _wrong_state(pair, about)
    if obligation is Obligation.OUTPUT:
        return _wrong_output(pair, int(about))
    return Fault.BYSTANDER if obligation is Obligation.FRAME else Fault.EFFECTS


def _stale(pair: Pair, write: Write, read: Read) -> Fault:
    if read.name == "output":
        return Fault.ESCAPE
    reader = next((w for w in pair.write_backs if w.name == read.name), None)
    if reader is not None:
        source = pair.memory.values.get(write.copy) if write.copy is not None else None
        mutual = source is not None and source.storage is reader.storage
        return Fault.CYCLE if mutual else Fault.DEPENDENT_COPIES
    if pair.inserted(read.name):
        return Fault.LATE_CLONE
    return {
        Relation.DIRECT_READ: Fault.READ_DIRECTLY,
        Relation.VIEW_READ: Fault.READ_THROUGH_VIEW,
    }.get(manners_of(pair.rewritten)[read.value], Fault.READ_THROUGH_LOWERED_VIEW)


def _wrong_state(pair: Pair, target: str) -> Fault:
    mine = [write for write in pair.write_backs if write.storage.name == target]
    if not mine:
        _, output = pair.targets[target]
        source = pair.functional.values.get(output.value) if output.value is not None else None
        return Fault.WRONG_STATE if source is not None and source.storage.name == target else Fault.LOST_WRITE
    reads = [read for read in pair.memory.reads if read.name == mine[-1].name]
    if any(read.located.storage is mine[-1].storage for read in reads):
        return Fault.SELF_OVERLAP
    for read in reads:
        if read.seen not in pair.expected(read):
            overwritten = any(w.storage is read.located.storage and w.step < read.step for w in pair.write_backs)
            return Fault.DEPENDENT_COPIES if overwritten else Fault.WRONG_STATE
    source = pair.memory.values.get(mine[-1].copy) if mine[-1].copy is not None else None
    if source is not None and any(w.storage is source.storage and w.step > mine[-1].step for w in pair.memory.writes):
        return Fault.EARLY_SOURCE
    return Fault.WRONG_STATE


def _wrong_signature(pair: Pair, index: int, what: str) -> Fault:
    if what != "storage":
        return Fault.WRONG_NAME if what == "name" else Fault.WRONG_SIGNATURE
    named = pair.rewritten.outputs[index].node_name
    return Fault.SWAPPED if any(write.name == named for write in pair.memory.writes) else Fault.WRONG_STORAGE


def _wrong_output(pair: Pair, index: int) -> Fault:
    after = pair.rewritten.outputs[index].value if index < len(pair.rewritten.outputs) else None
    located = pair.memory.values.get(after) if after is not None else None
    if located is not None and located.storage.name in pair.targets:
        return Fault.ESCAPE
    seen = pair.memory.outputs[index] if index < len(pair.memory.outputs) else None
    others = [
        content
        for i, (output, content) in enumerate(zip(pair.original.outputs, pair.functional.outputs, strict=True))
        if i != index and output.target is None
    ]
    return Fault.WRONG_PLACE if seen in others else Fault.WRONG_OUTPUT


def _all_cases(pair: Pair) -> list[tuple[Obligation, list[Case], list[Any]]]:
    ordered, triples = safety.order(pair)
    others = {
        Obligation.STATE: safety.state,
        Obligation.OUTPUT: safety.output,
        Obligation.FRAME: safety.frame,
        Obligation.EFFECTS: safety.effects,
    }
    found: list[tuple[Obligation, list[Case], list[Any]]] = [(Obligation.ORDER, ordered, triples)]
    for obligation, cases_of in others.items():
        cases = cases_of(pair)
        found.append((obligation, cases, [None] * len(cases)))
    return found


def _closed(case: Case) -> bool:
    """Whether some part of a case cannot hold, whatever the operators are."""
    return any(
        part.left == part.right if isinstance(part, Differ) else part.left.value <= part.right.value
        for part in case.parts
    )
