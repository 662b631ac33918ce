"""What a machine computes: its calls over its arenas, as definitions over uninterpreted contents.

The same words as in `evaluate.py`, from the other end: a tensor is a range of bytes of an arena, a kernel call reads
its operands' bytes now and writes its out arguments'. Function symbols are those of the out variants, which the
original's steps are spelled by too. A branch that the contents decide is followed both ways, and what the ways leave is
merged; a loop whose numbers are fixed is followed round by round.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from copyproof.spec.effects import Chain, Contents, Effect, canonical, effect_of, same_order
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.runtime_kernels import refused
from copyproof.verify.evaluate import SELECT, Content, Definition, copied, copied_row
from copyproof.verify.kernels import REFUSED, VIEW, spell_number, spell_values
from copyproof.verify.machine import Delegate, Free, Items, JumpIfFalse, Kernel, Machine, Move, Plain, Tensor
from copyproof.verify.memory import Arena, Guard
from copyproof.verify.spelling import content_of_bytes
from copyproof.verify.verdicts import Conflict

_MOST_CALLS = 50_000
_NUMBERS: Mapping[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "eq", "lt", "le", "gt", "ge")
}
"""What `executorch_prim` calls compute of fixed numbers."""


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
        lost: why what happened from some call on is not known; empty where all is.
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


def follow(machine: Machine, inputs: list[str], states: list[str], delegates: Mapping[str, int]) -> Execution:
    """Follows the calls of a method.

    Args:
        machine: the method.
        inputs: the names of the contents that the inputs have, in order.
        states: the model's mutated buffers, by qualified name.
        delegates: how many operands each delegate of the model has, by identity.

    Raises:
        BadInput: the machine is damaged: its calls do not fit their arguments.
    """
    try:
        return _Follower(machine, inputs, states, delegates).run()
    except BadInput:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        raise BadInput(f"the program is damaged ({first_line(e)[:120]}); lower the model again") from e


class _Lost(Exception):
    """From here on nothing is known."""


@dataclass(frozen=True)
class _View:
    """What an `et_view` made: the elements of `base` in the shape of `slot`."""

    base: _Named
    slot: int
    symbol: str
    sizes: tuple[Content, ...]


@dataclass(frozen=True)
class _Either:
    """What a branch chose."""

    condition: Content
    then: _Named
    other: _Named


_Named = int | _View | _Either


@dataclass
class _State:
    """What is known between two calls: the arenas, what stands outside of them, the numbers that calls computed (those
    with a fixed value apart), what slots name that were moved or viewed, and the effects so far."""

    arenas: list[Arena]
    unplanned: dict[int, Content]
    numbers: dict[int, Content]
    fixed: dict[int, Any]
    named: dict[int, _Named]
    tokens: dict[Chain, Content]

    def copy(self) -> _State:
        return _State(
            [arena.copy() for arena in self.arenas],
            dict(self.unplanned),
            dict(self.numbers),
            dict(self.fixed),
            dict(self.named),
            dict(self.tokens),
        )


class _Follower:
    def __init__(self, machine: Machine, inputs: list[str], states: list[str], delegates: Mapping[str, int]) -> None:
        self.machine = machine
        self.slots = machine.slots
        self.inputs = inputs
        self.wanted = states
        self.delegates = delegates
        self.found = Execution(arenas=[Arena(size) for size in machine.arenas])
        self.state = _State(self.found.arenas, {}, {}, {}, {}, dict(self.found.tokens))
        self.constants: dict[int, Content] = {}
        self.defined: dict[tuple[str, tuple[Content, ...]], Content] = {}
        self.flat: dict[Content, Content] = {}
        self.carried: set[int] = set()
        self.call = -1
        self.label = ""
        self.computed, self.renamed = _assigned(machine)
        self.viewed = {
            call.slots[-1] for call in machine.calls if isinstance(call, Kernel) and call.name.endswith("::et_view")
        }
        self.moved = {i for call in machine.calls if isinstance(call, Move) for i in (call.source, call.into)}

    def run(self) -> Execution:
        found = self.found
        for name, index in self.machine.buffers.items():
            self._place(index, f"state!{name}", f"buffer {name}")
        self._check_plan()
        found.input_types = [_spelled(self._type_of(index)) for index in self.machine.inputs]
        found.input_layouts = [getattr(self._type_of(index), "layout", "") for index in self.machine.inputs]
        found.output_types = [_spelled(self._type_of(index)) for index in self.machine.outputs]
        for index, name in zip(self.machine.inputs, self.inputs, strict=True):
            slot = self.slots[index]
            if isinstance(slot, Tensor):
                if slot.constant:
                    found.plan.append(f"input tensor {index} is a constant of the file")
                self._place(index, name, f"input {name.removeprefix('in!')}")
            else:
                self.state.numbers[index] = name
        try:
            self._require_own_names()
            self._run(0, len(self.machine.calls))
            self.call, self.label = len(self.machine.calls), "the output"
            found.outputs = [self._output(index) for index in self.machine.outputs]
            self.label = "the next call"
            found.final = {name: self._read(index) for name, index in self.machine.buffers.items()}
            self._require_numbers_kept()
        except _Lost as lost:
            found.lost = str(lost)
            self.state.tokens = {chain: self._havoc(found.lost) for chain in self.state.tokens}
            found.outputs = [self._havoc(found.lost) for _ in self.machine.outputs]
            found.final = {name: self._havoc(found.lost) for name in self.machine.buffers}
        for name in self.wanted:
            if name not in self.machine.buffers:
                reason = self.machine.unnamed or "it is not in the file"
                found.final[name] = self._havoc(f"buffer {name!r} cannot be found: {reason}")
        found.given = [self.state.unplanned.get(index) for index in self.machine.inputs]
        found.arenas = self.state.arenas
        found.tokens = self.state.tokens
        return found

    def _place(self, index: int, content: Content, writer: str) -> None:
        slot = self.slots[index]
        assert isinstance(slot, Tensor)
        if slot.constant:
            return
        if not _lies_in_an_arena(slot):
            self.state.unplanned[index] = content
            return
        arena, start, end = slot.span
        self.state.arenas[arena].write(start, end, content, _held_as(slot, index), writer)

    def _require_own_names(self) -> None:
        """Gives up where a call makes a name of another tensor of what the caller, or the next call, looks at: those
        find it by its own memory."""
        outside = {*self.machine.inputs, *self.machine.buffers.values()}
        for index in sorted(self.renamed):
            slot = self.slots[index]
            if index in outside or (isinstance(slot, Tensor) and slot.constant):
                raise _Lost(f"a call makes tensor {index}, an input, state or constant, a name of another tensor")
            if index in self.viewed and index in self.moved:
                raise _Lost(f"tensor {index} is moved, and a view, which has no model")
            if index in self.machine.outputs and isinstance(slot, Tensor) and slot.place is None:
                self.found.plan.append(
                    f"output tensor {index} is the caller's memory, and a branch makes it a name of another tensor, "
                    "which the next call then takes for the caller's; lower with alloc_graph_output=True"
                )
        for name, index in self.machine.buffers.items():
            slot = self.slots[index]
            if isinstance(slot, Tensor) and slot.place is None and not slot.constant:
                raise _Lost(f"buffer {name!r} has no memory in the plan: whoever loads the file must give it some")

    def _check_plan(self) -> None:
        """Bounds, alignment, and that no state lies in bytes of something else."""
        states = {}
        for name, index in self.machine.buffers.items():
            slot = self.slots[index]
            if isinstance(slot, Tensor) and slot.place is not None:
                states[name] = slot.span
        given = {*self.machine.inputs, *self.machine.outputs, *self.machine.buffers.values(), *self.renamed}
        for index in sorted(_used(self.machine) - given):
            slot = self.slots[index]
            if isinstance(slot, Tensor) and slot.place is None and not slot.constant and int(slot.type.nbytes):
                self.found.plan.append(f"tensor {index} has no memory in the plan, and no contents")
        for index, slot in enumerate(self.slots):
            if not isinstance(slot, Tensor) or slot.place is None:
                continue
            arena, start, end = slot.span
            size = slot.type.itemsize
            if start % size:
                self.found.plan.append(f"tensor {index} starts at byte {start} of arena {arena}, no multiple of {size}")
            loaded = slot.held is not None and index not in self.machine.buffers.values()
            for name, (other, low, high) in states.items():
                shares = arena == other and start < high and low < end
                if shares and (loaded or ((start, end) != (low, high) and slot.name != name)):
                    self.found.plan.append(f"tensor {index} lies in bytes of the state {name!r}")

    def _run(self, at: int, end: int) -> None:
        """Follows the calls from `at` to `end`."""
        while at < end:
            self.found.calls += 1
            if self.found.calls > _MOST_CALLS:
                raise _Lost(f"the loops of the method take more than {_MOST_CALLS} calls")
            call = self.machine.calls[at]
            self.call, self.label = at, self.machine.labels[at]
            if isinstance(call, JumpIfFalse):
                at = self._jump(at, end, call)
                continue
            if isinstance(call, Kernel):
                self._kernel(call)
            elif isinstance(call, Delegate):
                self._delegate(call)
            elif isinstance(call, Move):
                self._move(call.source, call.into)
            else:
                self._free(call)
            at += 1
        if at != end:
            raise _Lost(f"call {at - 1} jumps out of the branch that it is in, which has no model")

    def _jump(self, at: int, end: int, jump: JumpIfFalse) -> int:
        """Where it goes on after a jump; both branches have been followed where contents decide."""
        if not 0 <= jump.to <= len(self.machine.calls):
            raise BadInput(f"call {at} jumps to call {jump.to}, which is not there; the program is damaged")
        condition = self._condition(jump.condition)
        if isinstance(condition, bool):
            return at + 1 if condition else jump.to
        if jump.to <= at:
            raise _Lost(f"call {at} closes a loop whose number of rounds is not fixed")
        # The first branch ends in a jump that is always taken, over the second one.
        last = self.machine.calls[jump.to - 1]
        over = jump.to
        ends = jump.to
        closing = isinstance(last, JumpIfFalse) and jump.to - 1 > at and self._condition(last.condition) is False
        if isinstance(last, JumpIfFalse) and closing:
            over, ends = last.to, jump.to - 1
        if not jump.to <= over <= end:
            raise _Lost(f"call {at} jumps in a way that has no model")
        before = self.state
        self.state = before.copy()
        self._run(at + 1, ends)
        if isinstance(last, JumpIfFalse) and closing and self._condition(last.condition) is not False:
            raise _Lost(f"the branch at call {at} changes how it ends")
        then, self.state = self.state, before.copy()
        self._run(jump.to, over)
        self.label = f"the branch at {self.machine.labels[at]}"
        self.state = self._merged(condition, then, self.state)
        return over

    def _condition(self, index: int) -> bool | Content:
        value = self._attribute(index)
        if value is ...:
            return self._read(index)
        if not isinstance(value, bool):
            raise BadInput(f"call {self.call} jumps on {value!r}, which is no truth value; the program is damaged")
        return value

    def _merged(self, condition: Content, then: _State, other: _State) -> _State:
        def either(a: Content, b: Content) -> Content:
            return a if a == b else self._define(SELECT, [condition, a, b])

        numbers = {}
        for i in {*then.numbers, *other.numbers, *then.fixed, *other.fixed}:
            a, b = self._number_in(then, i), self._number_in(other, i)
            numbers[i] = either(a, b) if a and b else self._havoc(f"number {i} is set in one branch alone")
        fixed = {i: v for i, v in then.fixed.items() if i in other.fixed and repr(other.fixed[i]) == repr(v)}
        named: dict[int, _Named] = {}
        for i in {*then.named} & {*other.named}:
            first, second = then.named[i], other.named[i]
            named[i] = first if first == second else _Either(condition, first, second)
        return _State(
            [a.merged(b, condition, either) for a, b in zip(then.arenas, other.arenas, strict=True)],
            {i: either(then.unplanned[i], other.unplanned[i]) for i in then.unplanned if i in other.unplanned},
            {i: content for i, content in numbers.items() if i not in fixed},
            fixed,
            named,
            {chain: either(then.tokens[chain], other.tokens[chain]) for chain in then.tokens},
        )

    def _number_in(self, state: _State, index: int) -> Content:
        """The number that a call has computed into a slot; empty where none has."""
        if index in state.fixed:
            return f"number!{state.fixed[index]!r}"
        return state.numbers.get(index, "")

    def _free(self, call: Free) -> None:
        slot = self.slots[call.slot] if call.slot is not None else None
        if isinstance(slot, Tensor) and (slot.place is not None or slot.constant or call.slot in self.machine.inputs):
            raise _Lost(f"{self.label} frees tensor {call.slot}, whose memory is not its own")

    def _move(self, source: int, into: int) -> None:
        a, b = self.slots[source], self.slots[into]
        if isinstance(a, Items) or type(a) is not type(b):
            raise _Lost(f"{self.label} moves a list, or between kinds, which has no model")
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if (a.type.spelled, a.layout, a.dynamic) != (b.type.spelled, b.layout, b.dynamic):
                raise _Lost(f"call {self.call} moves {a.type.spelled} to where {b.type.spelled} is expected")
            self.state.named[into] = self._named(source)
            return
        value = self._attribute(source)
        if value is ...:
            self._set_number(into, self._read(source))
        else:
            self._set_fixed(into, value)

    def _set_number(self, index: int, content: Content) -> None:
        self.state.fixed.pop(index, None)
        self.state.numbers[index] = content

    def _set_fixed(self, index: int, value: Any) -> None:
        if isinstance(value, int) and abs(value) >= 2**63:
            raise _Lost(f"{self.label} computes a number that does not fit into 64 bits")
        self.state.numbers.pop(index, None)
        self.state.fixed[index] = value

    def _kernel(self, call: Kernel) -> None:
        namespace, _, base = call.name.partition("::")
        if namespace == "executorch_prim":
            if base == "et_view":
                self._view(call)
            elif base == "et_copy_index":
                self._copy_index(call)
            else:
                self._number(base, call.slots)
            return
        if call.overload is None:
            raise _Lost(f"{self.label} calls {call.name}, which has no model")
        effect = effect_of(call.overload)
        if effect.opaque is not None:
            raise _Lost(f"{self.label}: {effect.opaque}")
        if call.name == "aten::sym_size" and self._fixed_size(call):
            return
        self._operator(call, call.overload, effect)

    def _fixed_size(self, call: Kernel) -> bool:
        """Whether the call asks for a size that is fixed; then its result is set."""
        tensor, dimension = self._type_of(call.slots[0]), self._attribute(call.slots[1])
        if tensor is None or tensor.dynamic or not isinstance(dimension, int):
            return False
        if not -len(tensor.type.shape) <= dimension < len(tensor.type.shape):
            return False
        self._set_fixed(call.slots[2], tensor.type.shape[dimension])
        return True

    def _operator(self, call: Kernel, overload: Any, effect: Effect) -> None:
        arguments = overload._schema.arguments
        given = call.slots[: len(arguments)]
        for slot, argument in zip(given, arguments, strict=True):
            if not self._fits(str(argument.type), slot):
                raise BadInput(
                    f"{self.label} has no {argument.type} for its argument {argument.name}; lower the model again"
                )
        operands = [
            (position, index)
            for position, slot in enumerate(given)
            if not arguments[position].is_out
            for index in self._leaves(slot)
        ]
        skipped = 1 if effect.contents is Contents.SECOND else 0
        contents = [self._read(index) if i >= skipped else f"shape!{i}" for i, (_, index) in enumerate(operands)]
        symbol, in_place = spell_values(
            overload, [None if arguments[p].is_out else self._attribute(i) for p, i in enumerate(given)]
        )
        types = [self._type_of(index) for _, index in operands]
        signature = f"{symbol}<{';'.join(_spelled(t) for t in types)}>"
        if effect.chain is not None:
            contents.append(self.state.tokens[effect.chain])
            self.state.tokens[effect.chain] = self._define(f"{signature}!{effect.chain.name}", contents)
        returned = call.slots[len(arguments)] if len(call.slots) > len(arguments) else None
        if not effect.writes and isinstance(returned, int) and not isinstance(self.slots[returned], Plain):
            raise _Lost(f"{self.label} returns a tensor of its own, which has no model")
        if effect.writes and returned is not None and not any(argument.is_out for argument in arguments):
            self._require_returned(returned, given, effect)
        if not effect.writes and returned is not None:
            self._set_number(returned, self._define(f"{signature}#0", contents))
        name = canonical(overload)
        refusal = refused(name, [t.type if t else None for t in types], [self._attribute(i) for i in given])
        outs = [p for p, argument in enumerate(arguments) if argument.is_out]
        written: list[tuple[int, Content]] = []
        for position in effect.writes:
            targets = self._leaves(given[position])
            for k, index in enumerate(targets):
                into = self._type_of(index)
                if into is None:
                    raise _Lost(f"{self.label} writes a number, which has no model")
                if refusal:
                    content = f"{REFUSED}{self.label}!{refusal}"
                elif effect.contents is Contents.SECOND:
                    source = types[1]
                    cast = copied(source.type if source else None, into.type)
                    content = contents[1] if cast is None else self._define(cast, [contents[1]])
                elif same_order(name) and types[0] is not None and (_unusual(types[0]) or _unusual(into)):
                    content = self._havoc(f"{self.label} views a tensor whose dimensions lie in an unusual order")
                elif _keeps_first(effect, name, types, into):
                    content = self._flat(contents[0]) if not into.dynamic else contents[0]
                elif name == canonical(VIEW) or name == canonical(VIEW).replace("default", "out"):
                    content = self._viewed(f"{symbol}->{into.type.spelled}", contents[0], contents[1:])
                elif arguments[position].is_out:
                    several = len(outs) > 1 or len(targets) > 1
                    suffix = f"#{outs.index(position) + k}" if several else ""
                    content = self._define(f"{signature}->{into.type.spelled}{suffix}", contents)
                elif in_place:
                    content = self._define(f"{signature}->{into.type.spelled}", contents)
                else:
                    which = [i for i, (p, _) in enumerate(operands) if p == position][k]
                    content = self._define(f"{signature}!w{which}", contents)
                written.append((index, content))
        read = [index for position, index in operands if position not in effect.writes]
        pointwise = torch.Tag.pointwise in overload.tags or effect.contents is Contents.SECOND
        self._require_apart(read, [index for index, _ in written], pointwise)
        for index, content in written:
            self._write(index, content)

    def _fits(self, kind: str, index: int) -> bool:
        """Whether a slot is of the kind that a schema asks for, as `Optional[List[int]]`."""
        slot = self.slots[index]
        if kind.startswith("Optional["):
            return (isinstance(slot, Plain) and slot.value is None) or self._fits(kind[len("Optional[") : -1], index)
        if kind.startswith("List["):
            inner = kind[len("List[") : -1]
            if isinstance(slot, Items):
                return all(inner.startswith("Optional[") if i is None else self._fits(inner, i) for i in slot.slots)
            return isinstance(slot, Plain) and isinstance(slot.value, list)
        if kind == "Tensor":
            return isinstance(slot, Tensor)
        return isinstance(slot, Plain) and slot.value is not None

    def _require_returned(self, returned: int, given: tuple[int, ...], effect: Effect) -> None:
        """Gives up where an in-place call makes a slot a name of what it wrote, other than the one it already has; or
        where something uses a slot that it returns something of its own in."""
        written = [given[i] for result, i in effect.aliases if result == 0]
        if written and returned not in written:
            raise _Lost(f"{self.label} makes slot {returned} a name of its operand, which has no model")
        uses = sum(index == returned for call in self.machine.calls for index in getattr(call, "slots", ()))
        around = (*self.machine.inputs, *self.machine.outputs, *self.machine.buffers.values())
        if not written and (uses > 1 or returned in around):
            raise _Lost(f"{self.label} returns a tensor of its own, which has no model")

    def _require_apart(self, read: list[int], written: list[int], pointwise: bool) -> None:
        """Notes where a call writes bytes that it still reads: a kernel may write before it has read all, unless it
        goes element by element over just the same bytes."""
        spans = [span for index in dict.fromkeys(written) for span in self._spans(self._named(index))]
        for i, (arena, start, end) in enumerate(spans):
            if any(a == arena and low < end and start < high for a, low, high in spans[:i]):
                self.found.plan.append(f"{self.label} writes two results into bytes {start} to {end} of arena {arena}")
        for index in written:
            into = self._spans(self._named(index))
            for other in read:
                if not isinstance(self.slots[other], Tensor):
                    continue
                for arena, start, end in self._spans(self._named(other)):
                    for theirs, low, high in into:
                        if arena != theirs or start >= high or low >= end:
                            continue
                        a, b = self._type_of(index), self._type_of(other)
                        same = (start, end) == (low, high) and _spelled(a) == _spelled(b)
                        if not (pointwise and same):
                            self.found.plan.append(
                                f"{self.label} writes bytes {low} to {high} of arena {arena} while it reads bytes "
                                f"{start} to {end}"
                            )

    def _spans(self, named: _Named) -> list[tuple[int, int, int]]:
        """The bytes that a name may stand for."""
        if isinstance(named, _View):
            return self._spans(named.base)
        if isinstance(named, _Either):
            return self._spans(named.then) + self._spans(named.other)
        slot = self.slots[named]
        assert isinstance(slot, Tensor)
        return [slot.span] if _lies_in_an_arena(slot) else [(-1 - named, 0, int(slot.type.nbytes))]

    def _delegate(self, call: Delegate) -> None:
        count = self.delegates.get(call.identity)
        if count is None or count > len(call.slots):
            raise _Lost(
                f"{self.label} calls a delegate that the model has not (another backend, compile specs, or payload); "
                "give the model that was delegated"
            )
        operands = [index for slot in call.slots[:count] for index in self._leaves(slot)]
        contents = [self._read(index) for index in operands]
        text = ",".join(_told(self._attribute(slot)) for slot in call.slots[:count])
        signature = f"{call.identity}({text})<{';'.join(_spelled(self._type_of(i)) for i in operands)}>"
        contents.append(self.state.tokens[Chain.ORDERED])
        self.state.tokens[Chain.ORDERED] = self._define(f"{signature}!{Chain.ORDERED.name}", contents)
        results = call.slots[count:]
        tensors = [index for index in results if isinstance(self.slots[index], Tensor)]
        self._require_apart([i for i in operands if isinstance(self.slots[i], Tensor)], tensors, False)
        for k, index in enumerate(results):
            into = self._type_of(index)
            suffix = f"#{k}" if len(results) > 1 else ""
            if into is None:
                self._set_number(index, self._define(f"{signature}#{k}", contents))
            else:
                self._write(index, self._define(f"{signature}->{into.type.spelled}{suffix}", contents))

    def _view(self, call: Kernel) -> None:
        """`et_view(self, size, out)`: from now on `out` names the elements of `self`."""
        base, sizes, out = call.slots
        of, into = self._type_of(base), self._type_of(out)
        if of is None or into is None or of.type.dtype != into.type.dtype or _unusual(of) or _unusual(into):
            raise _Lost(f"{self.label} makes a view that has no model")
        if not of.dynamic and not into.dynamic and of.type.nbytes != into.type.nbytes:
            raise BadInput(f"{self.label} makes a view of another size; lower the model again")
        symbol, _ = spell_values(VIEW, [..., self._attribute(sizes)])
        numbers = tuple(self._read(index) for index in self._leaves(sizes))
        self.state.named[out] = _View(self._named(base), out, f"{symbol}->{into.type.spelled}", numbers)

    def _copy_index(self, call: Kernel) -> None:
        """`et_copy_index(out, value, i)`: makes `value` row i of `out`, which then has i + 1 rows."""
        out, value, position = call.slots[:3]
        row, type_ = self._attribute(position), self._type_of(value)
        if not isinstance(row, int) or type_ is None:
            raise _Lost(f"{self.label} writes a row that the contents choose")
        self._require_apart([value], [out], False)
        contents = ([self._read(out)] if row else []) + [self._read(value)]
        self._write(out, self._define(copied_row(row, type_.type), contents))

    def _number(self, base: str, slots: tuple[int, ...]) -> None:
        """A call that computes a number of numbers: `executorch_prim::add(a, b, out)`."""
        given, out = [self._attribute(index) for index in slots[:-1]], slots[-1]
        contents = [self._read(i) for i, value in zip(slots, given, strict=False) if value is ...]
        compute = _NUMBERS.get(base)
        if not contents and compute is None:
            raise _Lost(f"{self.label} computes {base} of fixed numbers, which has no model")
        if not contents and compute is not None:
            self._set_fixed(out, compute(*given))
        else:
            self._set_number(out, self._define(spell_number(base, given), contents))

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

    def _output(self, index: int) -> Content:
        value = self._attribute(index)
        return self._read(index) if value is ... else f"constant!{value!r}"

    def _named(self, index: int) -> _Named:
        """What a slot names now."""
        named = self.state.named.get(index)
        if named is None and index in self.renamed:
            raise _Lost(f"{self.label} uses tensor {index} before the call that says what it is")
        return index if named is None else named

    def _read(self, index: int) -> Content:
        slot = self.slots[index]
        if not isinstance(slot, Tensor):
            if index in self.state.numbers:
                return self.state.numbers[index]
            return f"number!{self._attribute(index)!r}"
        return self._contents(self._named(index))

    def _contents(self, named: _Named, assumed: Guard = frozenset()) -> Content:
        """What `named` holds now, where the assumed conditions hold."""
        if isinstance(named, _Either):
            then = self._contents(named.then, assumed | {(named.condition, True)})
            other = self._contents(named.other, assumed | {(named.condition, False)})
            return then if then == other else self._define(SELECT, [named.condition, then, other])
        if isinstance(named, _View):
            flat = self._flat(self._contents(named.base, assumed))
            slot = self.slots[named.slot]
            assert isinstance(slot, Tensor)
            if not slot.dynamic:
                return flat
            return self._viewed(named.symbol, flat, list(named.sizes))
        slot = self.slots[named]
        assert isinstance(slot, Tensor)
        if not _lies_in_an_arena(slot):
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

    def _write(self, index: int, content: Content) -> None:
        named = self._named(index)
        while isinstance(named, _View):
            slot = self.slots[named.slot]
            if not isinstance(slot, Tensor) or slot.dynamic:
                raise _Lost(f"{self.label} writes through a view whose size is not fixed")
            named = named.base
        if isinstance(named, _Either):
            raise _Lost(f"{self.label} writes through a tensor that a branch chose")
        slot = self.slots[named]
        assert isinstance(slot, Tensor)
        if slot.constant:
            self.found.frame.append((f"constant {named}, which {self.label} writes,", self._constant(named), content))
        elif not _lies_in_an_arena(slot):
            self.state.unplanned[named] = content
        else:
            arena, start, end = slot.span
            self.state.arenas[arena].write(start, end, content, _held_as(slot, named), self.label, self.call)

    def _constant(self, index: int) -> Content:
        slot = self.slots[index]
        assert isinstance(slot, Tensor)
        if slot.held is None:
            return self._havoc(f"{self.label} reads tensor {index}, which has neither memory nor contents")
        if index not in self.constants:
            self.constants[index] = content_of_bytes(slot.held, slot.type.dtype)
        return self.constants[index]

    def _type_of(self, index: int) -> Tensor | None:
        slot = self.slots[index]
        return slot if isinstance(slot, Tensor) else None

    def _leaves(self, index: int) -> list[int]:
        """The slots of the tensors, and of the numbers that calls computed, that an argument is made of."""
        slot = self.slots[index]
        if isinstance(slot, Items):
            return [leaf for i in slot.slots if i is not None for leaf in self._leaves(i)]
        return [index] if isinstance(slot, Tensor) or index in self.state.numbers else []

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

    def _require_numbers_kept(self) -> None:
        """A number that is read before any call has set it is what the last call left: it must be the first one."""
        for index in sorted(self.carried):
            last = self.state.fixed.get(index, ... if index in self.state.numbers else _plain(self.slots[index]))
            if last is ... or repr(last) != repr(_plain(self.slots[index])):
                raise _Lost(f"number {index} is not at the end what it was at the start, so that calls differ")


def _used(machine: Machine) -> set[int]:
    """The slots that calls name, those in lists too."""
    found: set[int] = set()
    for call in machine.calls:
        for index in call.slots if isinstance(call, (Kernel, Delegate)) else ():
            slot = machine.slots[index]
            found.update(i for i in (slot.slots if isinstance(slot, Items) else (index,)) if i is not None)
    return found


def _assigned(machine: Machine) -> tuple[set[int], set[int]]:
    """The slots that calls compute numbers into, and those that calls make a name of other tensors."""
    numbers, names = set(), set()
    for call in machine.calls:
        if isinstance(call, Move):
            (names if isinstance(machine.slots[call.into], Tensor) else numbers).add(call.into)
        elif isinstance(call, Kernel) and call.name == "executorch_prim::et_view":
            names.add(call.slots[-1])
        elif isinstance(call, (Kernel, Delegate)):
            returned = call.slots if isinstance(call, Delegate) else call.slots[-1:]
            if isinstance(call, Kernel) and call.overload is not None:
                returned = call.slots[len(call.overload._schema.arguments) :]
            numbers.update(i for i in returned if isinstance(machine.slots[i], Plain))
    return numbers, names


def _keeps_first(effect: Effect, name: str, types: list[Tensor | None], into: Tensor) -> bool:
    """Whether what is written holds just the first operand's elements in order, in the same shape or in one that is
    fixed."""
    first = types[0] if types else None
    if effect.contents is not Contents.FIRST or first is None or first.type.dtype != into.type.dtype:
        return False
    if first.type.shape == into.type.shape and first.dynamic == into.dynamic:
        return not into.dynamic or not same_order(name)
    return same_order(name) and not into.dynamic


def _held_as(tensor: Tensor, index: int) -> str:
    """What a read must agree in with the write that it sees: the layout, and, where sizes are not fixed, the tensor,
    since it is what holds them."""
    return f"{tensor.layout}, sizes of tensor {index}" if tensor.dynamic else tensor.layout


def _lies_in_an_arena(tensor: Tensor) -> bool:
    """Whether a tensor has bytes of an arena: the plan gives it a place, and it is not empty."""
    return tensor.place is not None and int(tensor.type.nbytes) > 0


def _unusual(tensor: Tensor) -> bool:
    """Whether dimensions lie in memory in another order than the usual one."""
    return tensor.layout != tensor.type.dtype


def _spelled(tensor: Tensor | None) -> str:
    return tensor.type.spelled if tensor is not None else "number"


def _told(value: Any) -> str:
    return "%" if value is ... else repr(value)


def _plain(slot: Any) -> Any:
    return slot.value if isinstance(slot, Plain) else None
