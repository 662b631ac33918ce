"""What single calls do: kernels, delegates, views, numbers, moves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import combinations
from typing import Any

import torch

from copyproof.spec.effects import Chain, Contents, Effect, canonical, effect_of, family, same_order
from copyproof.spec.errors import BadInput
from copyproof.spec.runtime_kernels import misread, refused, reshaped, strays
from copyproof.verify.evaluate import copied, copied_row, keeps_first
from copyproof.verify.execution import Lost, Running, View, spelled_type, together
from copyproof.verify.kernels import REFUSED, VIEW, moved, spell_number, spell_values
from copyproof.verify.machine import Delegate, Free, Items, Kernel, Plain, Span, Tensor, layout_of, overlap
from copyproof.verify.memory import Guard
from copyproof.verify.trace import Content

_NUMBERS: Mapping[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "eq", "lt", "le", "gt", "ge")
}
"""What `executorch_prim` calls compute of fixed numbers."""


_MOST_MOVED = 1 << 24
"""Elements of an operand that are looked at one by one."""


class Calls(Running):
    """Follows calls one by one."""

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
            raise Lost(f"{self.label} calls {call.name}, which has no model")
        effect = effect_of(call.overload)
        if effect.opaque is not None:
            raise Lost(f"{self.label}: {effect.opaque}")
        if call.name == "aten::sym_size" and self._fixed_size(call):
            return
        self._operator(call, call.overload, effect)

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
        values = [self._attribute(index) for index in given]
        symbol, in_place = spell_values(
            overload, [None if a.is_out else v for a, v in zip(arguments, values, strict=True)]
        )
        types = [self._type_of(index) for _, index in operands]
        signature = f"{symbol}<{';'.join(spelled_type(t) for t in types)}>"
        if effect.chain is not None:
            contents.append(self.state.tokens[effect.chain])
            self.state.tokens[effect.chain] = self._define(f"{signature}!{effect.chain.name}", contents)
        returned = call.slots[len(arguments)] if len(call.slots) > len(arguments) else None
        if not effect.writes and isinstance(returned, int) and not isinstance(self.slots[returned], Plain):
            raise Lost(f"{self.label} returns a tensor of its own, which has no model")
        if effect.writes and returned is not None and not any(argument.is_out for argument in arguments):
            self._require_returned(returned, given, effect)
        if not effect.writes and returned is not None:
            self._set_number(returned, self._define(f"{signature}#0", contents))
        name = canonical(overload)
        refusal = refused(name, [t.type if t else None for t in types], values)
        outs = [p for p, argument in enumerate(arguments) if argument.is_out]
        read = [index for position, index in operands if position not in effect.writes]
        pointwise = torch.Tag.pointwise in overload.tags or effect.contents is Contents.SECOND
        ways = [self._type_of(index) for slot in given for index in self._leaves(slot)]
        doubt = misread(
            name,
            pointwise or _elementwise(overload),
            [(tuple(map(int, t.type.shape)), t.order) for t in ways if t is not None],
        )
        doubt = doubt or strays(name, [t.type for t in types if t is not None])
        # Whether such a call stops the method is not known either, so nothing about the others is proved.
        self.found.lost = self.found.lost or doubt
        written: list[tuple[int, Content]] = []
        for position in effect.writes:
            targets = self._leaves(given[position])
            for k, index in enumerate(targets):
                into = self._type_of(index)
                if into is None:
                    raise Lost(f"{self.label} writes a number, which has no model")
                refusal = refusal or self._misfit(effect, name, types, into, arguments, values)
                if refusal:
                    content = f"{REFUSED}{self.label}!{refusal}"
                elif doubt:
                    content = self._havoc(f"{self.label}: {doubt}")
                elif index in read and not pointwise:
                    content = self._havoc(f"{self.label} writes slot {index}, which it reads as another operand too")
                elif effect.contents is Contents.SECOND:
                    source = types[1]
                    cast = copied(source.type if source else None, into.type)
                    content = contents[1] if cast is None else self._define(cast, [contents[1]])
                elif same_order(name) and types[0] is not None and (_unusual(types[0]) or _unusual(into)):
                    content = self._havoc(f"{self.label} views a tensor whose dimensions lie in an unusual order")
                elif _keeps_first(effect, name, types[0] if types else None, into):
                    content = self._flat(contents[0]) if not into.dynamic else contents[0]
                elif family(name) == family(canonical(VIEW)):
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
        # One slot that is both read and written is no plan's doing.
        into_slots = [index for index, _ in written]
        self._require_apart(
            [i for i in read if i not in into_slots], into_slots, pointwise, partial(moved, overload, values)
        )
        for index, content in written:
            self._write(index, content)

    def _misfit(
        self,
        effect: Effect,
        name: str,
        types: list[Tensor | None],
        into: Tensor,
        arguments: Any,
        values: list[Any],
    ) -> str:
        """Why a call that keeps its first operand's contents does not fit its result; empty where it does."""
        first = types[0] if types else None
        if effect.contents is not Contents.FIRST or first is None:
            return ""
        order = next((v for a, v in zip(arguments, values, strict=True) if a.name == "dim_order"), None)
        if order and layout_of(into.type.dtype, into.type.shape, order) != into.layout:
            return f"its result lies in memory as {into.layout}, and it is asked for the order {order}"
        if first.dynamic or into.dynamic:
            return ""
        shape = reshaped(name, first.type.shape, values)
        return (
            "" if shape == into.type.shape else f"it gives the shape {list(shape)}, its result has {into.type.spelled}"
        )

    def _fixed_size(self, call: Kernel) -> bool:
        """Whether the call asks for a size that is fixed; then its result is set."""
        tensor, dimension = self._type_of(call.slots[0]), self._attribute(call.slots[1])
        if tensor is None or tensor.dynamic or not isinstance(dimension, int):
            return False
        if not -len(tensor.type.shape) <= dimension < len(tensor.type.shape):
            return False
        self._set_fixed(call.slots[2], tensor.type.shape[dimension])
        return True

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
            raise Lost(f"{self.label} makes slot {returned} a name of its operand, which has no model")
        if written:
            return
        uses = sum(index == returned for call in self.machine.calls for index in getattr(call, "slots", ()))
        if uses > 1 or returned in (*self.machine.inputs, *self.machine.outputs, *self.machine.buffers.values()):
            raise Lost(f"{self.label} returns a tensor of its own, which has no model")

    def _require_apart(
        self,
        read: list[int],
        written: list[int],
        pointwise: bool,
        moves: Callable[[tuple[int, ...]], torch.Tensor | None] = lambda shape: None,
    ) -> None:
        """Notes where a call writes bytes that it still reads: a kernel may write before it has read all, unless it
        goes element by element over just the same bytes, or only writes there what they hold.

        `moves` says which element of an operand of some shape each element of the result is, if it is one.
        """
        places = {index: self._placed(self._named(index)) for index in written}
        for some, others in combinations(places.values(), 2):
            for arena, start, end in _shared(some, others):
                self.found.plan.append(f"{self.label} writes two results into bytes {start} to {end} of arena {arena}")
        for index in written:
            for other in read:
                if not isinstance(self.slots[other], Tensor):
                    continue
                alike = spelled_type(self._type_of(index)) == spelled_type(self._type_of(other))
                for when, span in self._placed(self._named(other)):
                    for theirs in _shared(places[index], [(when, span)]):
                        if pointwise and alike and span == theirs:
                            continue
                        if not self._leaves_alone(moves, other, span, index, theirs):
                            arena, low, high = theirs
                            self.found.plan.append(
                                f"{self.label} writes bytes {low} to {high} of arena {arena} while it reads bytes "
                                f"{span[1]} to {span[2]}"
                            )

    def _leaves_alone(
        self,
        moves: Callable[[tuple[int, ...]], torch.Tensor | None],
        read: int,
        source: Span,
        written: int,
        target: Span,
    ) -> bool:
        """Whether a call writes onto the bytes that it reads just the elements that they hold."""
        given, made = self._type_of(read), self._type_of(written)
        if given is None or made is None or given.dynamic or made.dynamic or _unusual(given) or _unusual(made):
            return False
        shape = tuple(int(size) for size in given.type.shape)
        if given.type.dtype != made.type.dtype or math.prod(shape) > _MOST_MOVED:
            return False
        taken = moves(shape)
        if taken is None or taken.numel() * made.type.itemsize != target[2] - target[1]:
            return False
        size = made.type.itemsize
        to = target[1] + size * torch.arange(taken.numel())
        shared = (to + size > source[1]) & (to < source[2])
        return bool((source[1] + size * taken == to)[shared].all())

    def _delegate(self, call: Delegate) -> None:
        count = self.delegates.get(call.identity)
        if count is None or count > len(call.slots):
            raise Lost(
                f"{self.label} calls a delegate that the model has not (another backend, compile specs, or payload); "
                "give the model as it was delegated, with its --partitioner"
            )
        operands = [index for slot in call.slots[:count] for index in self._leaves(slot)]
        contents = [self._read(index) for index in operands]
        text = ",".join(_told(self._attribute(slot)) for slot in call.slots[:count])
        signature = f"{call.identity}({text})<{';'.join(spelled_type(self._type_of(i)) for i in operands)}>"
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
            raise Lost(f"{self.label} makes a view that has no model")
        if not of.dynamic and not into.dynamic and of.type.nbytes != into.type.nbytes:
            raise BadInput(f"{self.label} makes a view of another size; lower the model again")
        asked = self._attribute(sizes)
        fixed = not of.dynamic and isinstance(asked, list) and all(isinstance(size, int) for size in asked)
        if fixed and not into.dynamic and reshaped(canonical(VIEW), of.type.shape, [..., asked]) != into.type.shape:
            raise BadInput(f"{self.label} makes a view of sizes that are not its result's; lower the model again")
        symbol, _ = spell_values(VIEW, [..., asked])
        numbers = tuple(self._read(index) for index in self._leaves(sizes))
        self.state.named[out] = View(self._named(base), out, f"{symbol}->{into.type.spelled}", numbers)

    def _copy_index(self, call: Kernel) -> None:
        """`et_copy_index(out, value, i)`: makes `value` row i of `out`, which then has i + 1 rows."""
        out, value, position = call.slots[:3]
        row, type_ = self._attribute(position), self._type_of(value)
        into = self._type_of(out)
        if into is None or _unusual(into) or (type_ is not None and _unusual(type_)):
            raise Lost(f"{self.label} stacks tensors whose dimensions lie in an unusual order")
        if not isinstance(row, int) or type_ is None:
            raise Lost(f"{self.label} writes a row that the contents choose")
        self._require_apart([value], [out], False)
        contents = ([self._read(out)] if row else []) + [self._read(value)]
        self._write(out, self._define(copied_row(row, type_.type), contents))

    def _number(self, base: str, slots: tuple[int, ...]) -> None:
        """A call that computes a number of numbers: `executorch_prim::add(a, b, out)`."""
        given, out = [self._attribute(index) for index in slots[:-1]], slots[-1]
        contents = [self._read(i) for i, value in zip(slots, given, strict=False) if value is ...]
        compute = _NUMBERS.get(base)
        if not contents and compute is None:
            raise Lost(f"{self.label} computes {base} of fixed numbers, which has no model")
        if not contents and compute is not None:
            self._set_fixed(out, compute(*given))
        else:
            self._set_number(out, self._define(spell_number(base, given), contents))

    def _move(self, source: int, into: int) -> None:
        a, b = self.slots[source], self.slots[into]
        if isinstance(a, Items) or type(a) is not type(b):
            raise Lost(f"{self.label} moves a list, or between kinds, which has no model")
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if (a.type.spelled, a.layout, a.dynamic) != (b.type.spelled, b.layout, b.dynamic):
                raise Lost(f"call {self.call} moves {a.type.spelled} to where {b.type.spelled} is expected")
            self.state.named[into] = self._named(source)
            return
        value = self._attribute(source)
        if value is ...:
            self._set_number(into, self._read(source))
        else:
            self._set_fixed(into, value)

    def _free(self, call: Free) -> None:
        slot = self.slots[call.slot]
        if isinstance(slot, Tensor) and (slot.place is not None or slot.constant or call.slot in self.machine.inputs):
            raise Lost(f"{self.label} frees tensor {call.slot}, whose memory is not its own")


@cache
def _elementwise(overload: Any) -> bool:
    """Whether the operator that an out variant is of is pointwise: the variant itself need not say so."""
    packet = overload.overloadpacket
    given = [str(a.type) for a in overload._schema.arguments if not a.is_out]
    return any(
        torch.Tag.pointwise in other.tags and [str(a.type) for a in other._schema.arguments] == given
        for other in (getattr(packet, name) for name in packet.overloads())
    )


def _keeps_first(effect: Effect, name: str, first: Tensor | None, into: Tensor) -> bool:
    """Whether what is written holds just the first operand's contents."""
    if effect.contents is not Contents.FIRST or first is None:
        return False
    return keeps_first(first.type, into.type, same_order(name))


def _unusual(tensor: Tensor) -> bool:
    """Whether dimensions lie in memory in another order than the usual one."""
    return tensor.layout != tensor.type.dtype


def _shared(some: list[tuple[Guard, Span]], others: list[tuple[Guard, Span]]) -> list[Span]:
    """Those of `some` that overlap one of `others` under conditions that can hold together."""
    return [a for when, a in some for given, b in others if together(when, given) and overlap(a, b)]


def _told(value: Any) -> str:
    return "%" if value is ... else repr(value)
