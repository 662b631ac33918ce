"""What a machine computes: its calls over its arenas, as definitions over uninterpreted contents.

The same words as in `evaluate.py`, from the other end: a tensor is a range of bytes of an arena, a kernel call reads
its operands' bytes now and writes its out arguments'. Function symbols are those of the out variants, which the
original's steps are spelled by too. A branch that the contents decide is followed both ways, and what the ways leave is
merged; a loop whose numbers are fixed is followed round by round.
"""

from __future__ import annotations

from collections.abc import Mapping

from copyproof.spec.errors import BadInput, first_line
from copyproof.verify.calls import Calls
from copyproof.verify.evaluate import SELECT
from copyproof.verify.execution import Either, Execution, Knowledge, Lost, Named, spelled_type
from copyproof.verify.machine import Delegate, JumpIfFalse, Kernel, Machine, Move, Tensor
from copyproof.verify.plan import misplaced, unreliable
from copyproof.verify.trace import Content

_MOST_CALLS = 50_000


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


class _Follower(Calls):
    def run(self) -> Execution:
        found = self.found
        for name, index in self.machine.buffers.items():
            self._place(index, f"state!{name}", f"buffer {name}")
        found.plan += misplaced(self.machine)
        found.input_types = [spelled_type(self._type_of(index)) for index in self.machine.inputs]
        found.input_layouts = [getattr(self._type_of(index), "layout", "") for index in self.machine.inputs]
        found.output_types = [spelled_type(self._type_of(index)) for index in self.machine.outputs]
        for index, name in zip(self.machine.inputs, self.inputs, strict=True):
            slot = self.slots[index]
            if isinstance(slot, Tensor):
                self._place(index, name, f"input {name.removeprefix('in!')}")
            else:
                self.state.numbers[index] = name
        try:
            reason = unreliable(self.machine)
            if reason:
                raise Lost(reason)
            self._run(0, len(self.machine.calls))
            self.call, self.label = len(self.machine.calls), "the output"
            found.outputs = [self._output(index) for index in self.machine.outputs]
            self.label = "the next call"
            found.final = {name: self._read(index) for name, index in self.machine.buffers.items()}
            self._require_numbers_kept()
        except Lost as lost:
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

    def _run(self, at: int, end: int) -> None:
        """Follows the calls from `at` to `end`."""
        while at < end:
            self.found.calls += 1
            if self.found.calls > _MOST_CALLS:
                raise Lost(f"the loops of the method take more than {_MOST_CALLS} calls")
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
            raise Lost(f"call {at - 1} jumps out of the branch that it is in, which has no model")

    def _jump(self, at: int, end: int, jump: JumpIfFalse) -> int:
        """Where it goes on after a jump; both branches have been followed where contents decide."""
        if not 0 <= jump.to <= len(self.machine.calls):
            raise BadInput(f"call {at} jumps to call {jump.to}, which is not there; the program is damaged")
        condition = self._condition(jump.condition)
        if isinstance(condition, bool):
            return at + 1 if condition else jump.to
        if jump.to <= at:
            raise Lost(f"call {at} closes a loop whose number of rounds is not fixed")
        # The first branch ends in a jump that is always taken, over the second one.
        over = ends = jump.to
        last = self.machine.calls[jump.to - 1] if jump.to - 1 > at else None
        closing = last if isinstance(last, JumpIfFalse) and self._condition(last.condition) is False else None
        if closing is not None:
            over, ends = closing.to, jump.to - 1
        if not jump.to <= over <= end:
            raise Lost(f"call {at} jumps in a way that has no model")
        before = self.state
        self.state = before.copy()
        self._run(at + 1, ends)
        if closing is not None and self._condition(closing.condition) is not False:
            raise Lost(f"the branch at call {at} changes how it ends")
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

    def _merged(self, condition: Content, then: Knowledge, other: Knowledge) -> Knowledge:
        def either(a: Content, b: Content) -> Content:
            return a if a == b else self._define(SELECT, [condition, a, b])

        numbers = {}
        for i in {*then.numbers, *other.numbers, *then.fixed, *other.fixed}:
            a, b = self._number_in(then, i), self._number_in(other, i)
            numbers[i] = either(a, b) if a and b else self._havoc(f"number {i} is set in one branch alone")
        fixed = {i: v for i, v in then.fixed.items() if i in other.fixed and repr(other.fixed[i]) == repr(v)}
        named: dict[int, Named] = {}
        for i in {*then.named} & {*other.named}:
            first, second = then.named[i], other.named[i]
            named[i] = first if first == second else Either(condition, first, second)
        return Knowledge(
            [a.merged(b, condition, either) for a, b in zip(then.arenas, other.arenas, strict=True)],
            {i: either(then.unplanned[i], other.unplanned[i]) for i in then.unplanned if i in other.unplanned},
            {i: content for i, content in numbers.items() if i not in fixed},
            fixed,
            named,
            {chain: either(then.tokens[chain], other.tokens[chain]) for chain in then.tokens},
        )

    def _number_in(self, state: Knowledge, index: int) -> Content:
        """The number that a call has computed into a slot; empty where none has."""
        if index in state.fixed:
            return f"number!{state.fixed[index]!r}"
        return state.numbers.get(index, "")

    def _output(self, index: int) -> Content:
        value = self._attribute(index)
        return self._read(index) if value is ... else f"constant!{value!r}"

    def _require_numbers_kept(self) -> None:
        """A number that is read before any call has set it is what the last call left: it must be the first one."""
        for index in sorted(self.carried):
            last = self.state.fixed.get(index, ... if index in self.state.numbers else self._initial(index))
            if last is ... or repr(last) != repr(self._initial(index)):
                raise Lost(f"number {index} is not at the end what it was at the start, so that calls differ")
