"""What is known while a machine is followed: contents of bytes, numbers, names, and how calls read and write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from copyproof.spec.effects import Chain
from copyproof.verify.evaluate import SELECT
from copyproof.verify.machine import Items, Machine, Plain, Span, Tensor
from copyproof.verify.memory import Arena, Guard
from copyproof.verify.plan import computed_by_calls, named_by_calls
from copyproof.verify.spelling import content_of_bytes
from copyproof.verify.trace import Content, Definition
from copyproof.verify.verdicts import Conflict


@dataclass(frozen=True)
class Read:
    """Call `call` saw `content` in bytes of an arena."""

    label: str
    content: Content
    arena: int
    start: int
    end: int
    call: int


@dataclass
class Execution:
    """What one method does, as definitions.

    Attributes:
        definitions: every defined content, by name.
        outputs: what each output holds after the last call.
        final: what each mutable buffer holds after the last call, by name.
        input_types, output_types: `float32[2,3]` or `number`, one by one.
        input_layouts: how each input lies in memory; empty for a number.
        unknown: contents about which nothing is known, with the reason.
        tokens: the last token of each chain of effects.
        plan: what is wrong with the memory plan, in sentences.
        torn: reads of bytes that something else was written over.
        frame: what was written that should not be: what it is, what it held, and what it holds.
        given: what each input holds after the last call, where its memory is the caller's; else None.
        labels: which call defined a content.
        reads: where each call saw what.
        arenas: the arenas after the last call.
        lost: why what some call did is not known, or whether it stopped the method; empty where all is.
        calls: how many calls were followed.
    """

    definitions: dict[Content, Definition] = field(default_factory=dict)
    outputs: list[Content] = field(default_factory=list)
    output_types: list[str] = field(default_factory=list)
    input_types: list[str] = field(default_factory=list)
    input_layouts: list[str] = field(default_factory=list)
    final: dict[str, Content] = field(default_factory=dict)
    unknown: dict[Content, str] = field(default_factory=dict)
    tokens: dict[Chain, Content] = field(default_factory=lambda: {chain: f"in!{chain.name}" for chain in Chain})
    plan: list[str] = field(default_factory=list)
    torn: list[Conflict] = field(default_factory=list)
    frame: list[tuple[str, Content, Content]] = field(default_factory=list)
    given: list[Content | None] = field(default_factory=list)
    labels: dict[Content, str] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    arenas: list[Arena] = field(default_factory=list)
    lost: str = ""
    calls: int = 0


class Lost(Exception):
    """From here on nothing is known."""


@dataclass(frozen=True)
class View:
    """What an `et_view` made: the elements of `base` in the shape of `slot`."""

    base: Named
    slot: int
    symbol: str
    sizes: tuple[Content, ...]


@dataclass(frozen=True)
class Either:
    """What a branch chose."""

    condition: Content
    then: Named
    other: Named


Named = int | View | Either


@dataclass
class Knowledge:
    """What is known between two calls: the arenas, what stands outside of them, the numbers that calls computed (those
    with a fixed value apart), what slots name that were moved or viewed, and the effects so far."""

    arenas: list[Arena]
    unplanned: dict[int, Content]
    numbers: dict[int, Content]
    fixed: dict[int, Any]
    named: dict[int, Named]
    tokens: dict[Chain, Content]

    def copy(self) -> Knowledge:
        return Knowledge(
            [arena.copy() for arena in self.arenas],
            dict(self.unplanned),
            dict(self.numbers),
            dict(self.fixed),
            dict(self.named),
            dict(self.tokens),
        )


class Running:
    """A machine on its way: `state` is what is known before the next call, `found` what was found so far. `call` and
    `label` say which call is followed."""

    def __init__(self, machine: Machine, inputs: list[str], states: list[str], delegates: Mapping[str, int]) -> None:
        self.machine = machine
        self.slots = machine.slots
        self.inputs = inputs
        self.wanted = states
        self.delegates = delegates
        self.found = Execution(arenas=[Arena(size) for size in machine.arenas])
        self.state = Knowledge(self.found.arenas, {}, {}, {}, {}, dict(self.found.tokens))
        self.constants: dict[int, Content] = {}
        self.defined: dict[tuple[str, tuple[Content, ...]], Content] = {}
        self.flat: dict[Content, Content] = {}
        self.carried: set[int] = set()
        self.call = -1
        self.label = ""
        self.computed, self.renamed = computed_by_calls(machine), named_by_calls(machine)

    def _define(self, symbol: str, operands: list[Content]) -> Content:
        key = (symbol, tuple(operands))
        if key not in self.defined:
            name = f"P!{self.call}"
            while name in self.found.definitions:
                name += "'"
            self.found.definitions[name] = Definition(name, symbol, tuple(operands))
            self.found.labels[name] = self.label
            self.defined[key] = name
        return self.defined[key]

    def _havoc(self, reason: str) -> Content:
        content = f"P?{len(self.found.unknown)}"
        self.found.unknown[content] = reason
        return content

    def _attribute(self, index: int) -> Any:
        """An argument as a Python value; tensors, and numbers that contents decide, as `Ellipsis`."""
        slot = self.slots[index]
        if isinstance(slot, Items):
            return [None if i is None else self._attribute(i) for i in slot.slots]
        if isinstance(slot, Tensor) or index in self.state.numbers:
            return ...
        if index in self.state.fixed:
            return self.state.fixed[index]
        if index in self.computed:
            self.carried.add(index)
        return slot.value

    def _initial(self, index: int) -> Any:
        """What a slot that is no tensor holds before the first call."""
        slot = self.slots[index]
        return slot.value if isinstance(slot, Plain) else None

    def _leaves(self, index: int) -> list[int]:
        """The slots of the tensors, and of the numbers that calls computed, that an argument is made of."""
        slot = self.slots[index]
        if isinstance(slot, Items):
            return [leaf for i in slot.slots if i is not None for leaf in self._leaves(i)]
        return [index] if isinstance(slot, Tensor) or index in self.state.numbers else []

    def _tensor(self, index: int) -> Tensor:
        """A slot that is known to be a tensor's."""
        slot = self.slots[index]
        assert isinstance(slot, Tensor)
        return slot

    def _type_of(self, index: int) -> Tensor | None:
        slot = self.slots[index]
        return slot if isinstance(slot, Tensor) else None

    def _set_number(self, index: int, content: Content) -> None:
        self.state.fixed.pop(index, None)
        self.state.numbers[index] = content

    def _set_fixed(self, index: int, value: Any) -> None:
        if isinstance(value, int) and abs(value) >= 2**63:
            raise Lost(f"{self.label} computes a number that does not fit into 64 bits")
        self.state.numbers.pop(index, None)
        self.state.fixed[index] = value

    def _place(self, index: int, content: Content, writer: str) -> None:
        slot = self._tensor(index)
        if slot.constant:
            return
        if not slot.in_an_arena:
            self.state.unplanned[index] = content
            return
        arena, start, end = slot.span
        self.state.arenas[arena].write(start, end, content, _held_as(slot, index), writer)

    def _read(self, index: int) -> Content:
        slot = self.slots[index]
        if not isinstance(slot, Tensor):
            if index in self.state.numbers:
                return self.state.numbers[index]
            return f"number!{self._attribute(index)!r}"
        return self._contents(self._named(index))

    def _named(self, index: int) -> Named:
        """What a slot names now."""
        named = self.state.named.get(index)
        if named is None and index in self.renamed:
            raise Lost(f"{self.label} uses tensor {index} before the call that says what it is")
        return index if named is None else named

    def _contents(self, named: Named, assumed: Guard = frozenset()) -> Content:
        """What `named` holds now, where the assumed conditions hold."""
        if isinstance(named, Either):
            then = self._contents(named.then, assumed | {(named.condition, True)})
            other = self._contents(named.other, assumed | {(named.condition, False)})
            return then if then == other else self._define(SELECT, [named.condition, then, other])
        if isinstance(named, View):
            flat = self._flat(self._contents(named.base, assumed))
            if not self._tensor(named.slot).dynamic:
                return flat
            return self._viewed(named.symbol, flat, list(named.sizes))
        slot = self._tensor(named)
        if not slot.in_an_arena:
            return self.state.unplanned[named] if named in self.state.unplanned else self._constant(named)
        arena, start, end = slot.span
        owner = self.state.arenas[arena].read(start, end, assumed)
        if owner is not None and owner.layout == _held_as(slot, named):
            content = self._under(owner.content, assumed)
            self.found.reads.append(Read(self.label, content, arena, start, end, self.call))
            return content
        if owner is not None:
            return self._havoc(f"{self.label} reads {slot.layout} where {owner.writer} wrote {owner.layout}")
        self.found.torn.append(self._torn(arena, start, end))
        return f"torn!{self.label}!{arena}!{start}"

    def _under(self, content: Content, assumed: Guard) -> Content:
        """The contents, where the assumed conditions say which way a branch went."""
        definition = self.found.definitions.get(content)
        if definition is not None and definition.symbol == SELECT:
            condition, then, other = definition.operands
            for truth, chosen in ((True, then), (False, other)):
                if (condition, truth) in assumed:
                    return self._under(chosen, assumed)
        return content

    def _torn(self, arena: int, start: int, end: int) -> Conflict:
        """The conflict of a read of bytes that another value was written over."""
        memory = self.state.arenas[arena]
        now = memory.overlapping(start, end)
        whole = [o for o in memory.past if (o.start, o.end) == (start, end)]
        before = whole[-1].writer if whole else "nothing"
        over = max(now, key=lambda o: o.since).writer if now else "nothing"
        return Conflict(
            f"bytes {start} to {end} of arena {arena}",
            over,
            self.label,
            before,
            "plan the two values in bytes of their own while both are needed",
            tuple(memory.picture(start, end, self.call)),
        )

    def _viewed(self, symbol: str, base: Content, sizes: list[Content]) -> Content:
        """The contents of a view whose sizes are not fixed: they say its shape too."""
        flat = self._flat(base)
        content = self._define(symbol, [flat, *sizes])
        self.flat[content] = flat
        return content

    def _flat(self, content: Content) -> Content:
        """The contents that a view of `content` is a view of."""
        return self.flat.get(content, content)

    def _constant(self, index: int) -> Content:
        slot = self._tensor(index)
        if slot.held is None:
            return self._havoc(f"{self.label} reads tensor {index}, which has neither memory nor contents")
        if index not in self.constants:
            self.constants[index] = content_of_bytes(slot.held, slot.type.dtype)
        return self.constants[index]

    def _write(self, index: int, content: Content) -> None:
        named = self._named(index)
        while isinstance(named, View):
            if self._tensor(named.slot).dynamic:
                raise Lost(f"{self.label} writes through a view whose size is not fixed")
            named = named.base
        if isinstance(named, Either):
            raise Lost(f"{self.label} writes through a tensor that a branch chose")
        slot = self._tensor(named)
        if slot.constant:
            self.found.frame.append((f"constant {named}, which {self.label} writes,", self._constant(named), content))
        elif not slot.in_an_arena:
            self.state.unplanned[named] = content
        else:
            arena, start, end = slot.span
            self.state.arenas[arena].write(start, end, content, _held_as(slot, named), self.label, self.call)

    def _spans(self, named: Named) -> list[Span]:
        """The bytes that a name may stand for."""
        return [span for _, span in self._placed(named)]

    def _placed(self, named: Named, assumed: Guard = frozenset()) -> list[tuple[Guard, Span]]:
        """The bytes that a name may stand for, each with the conditions under which it does."""
        if isinstance(named, View):
            return self._placed(named.base, assumed)
        if isinstance(named, Either):
            return [
                placed
                for side, holds in ((named.then, True), (named.other, False))
                if (named.condition, not holds) not in assumed
                for placed in self._placed(side, assumed | {(named.condition, holds)})
            ]
        slot = self._tensor(named)
        return [(assumed, slot.span if slot.in_an_arena else (-1 - named, 0, int(slot.type.nbytes)))]


def together(a: Guard, b: Guard) -> bool:
    """Whether two sets of conditions can hold at once."""
    return not any((condition, not holds) in b for condition, holds in a)


def spelled_type(tensor: Tensor | None) -> str:
    """`float32[2,3]`, or `number`."""
    return tensor.type.spelled if tensor is not None else "number"


def _held_as(tensor: Tensor, index: int) -> str:
    """What a read must agree in with the write that it sees: the layout, and, where sizes are not fixed, the tensor,
    since it is what holds them."""
    return f"{tensor.layout}, sizes of tensor {index}" if tensor.dynamic else tensor.layout
