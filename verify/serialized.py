"""What a `.pte` file computes: its kernel calls over its arenas, as definitions over uninterpreted contents.

The same words as in `evaluate.py`, from the other end: a tensor of the file is a range of bytes of an arena, a kernel
call reads its operands' bytes now and writes its out arguments'. Function symbols are those of the out variants, which
the original's steps are spelled by too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.exir import schema
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.tensor import get_scalar_type

from copyproof.spec.effects import Chain, Contents, canonical, effect_of, same_order
from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.program import TensorType
from copyproof.verify.evaluate import Content, Definition, copied
from copyproof.verify.kernels import spell_values
from copyproof.verify.memory import Arena

_ALIGNMENT = 16


@dataclass
class Buffer:
    """A mutable buffer of the file: its name, bytes, and initial contents (None: zero)."""

    name: str
    value: int
    initial: bytes | None


@dataclass(frozen=True)
class State:
    """A mutated buffer of the model: the position of its placeholder, and its size in bytes and element type."""

    position: int
    nbytes: int
    dtype: str


@dataclass
class Execution:
    """What one method of a file does, as definitions.

    Attributes:
        definitions: every defined content, by name.
        outputs: what each output holds after the last call.
        final: what each mutable buffer holds after the last call, by name.
        input_types, output_types: `float32[2,3]` or `number`, one by one.
        buffers: the mutable buffers, by name.
        tokens: the last token of each chain of effects.
        unknown: contents about which nothing is known, with the reason.
        plan: what is wrong with the memory plan, in sentences.
        torn: reads of bytes that something else was written over, in sentences.
        calls: how many calls were followed.
    """

    definitions: dict[Content, Definition] = field(default_factory=dict)
    outputs: list[Content] = field(default_factory=list)
    output_types: list[str] = field(default_factory=list)
    input_types: list[str] = field(default_factory=list)
    final: dict[str, Content] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    unknown: dict[Content, str] = field(default_factory=dict)
    tokens: dict[Chain, Content] = field(default_factory=lambda: {chain: f"in!{chain.name}" for chain in Chain})
    plan: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    calls: int = 0


def execution_of(pte: bytes, method: str, inputs: list[str], states: Mapping[str, State]) -> Execution:
    """Follows the kernel calls of a method of a `.pte` file.

    Args:
        pte: the file.
        method: which method.
        inputs: the names of the contents that the inputs have, in order.
        states: the model's mutated buffers, by qualified name.

    Raises:
        BadInput: the file cannot be read, or has no such method, or another number of inputs.
    """
    try:
        file = deserialize_pte_binary(pte)
        plans = {plan.name: plan for plan in file.program.execution_plan}
    except Exception as error:  # whatever a damaged file raises
        raise BadInput(
            f"it cannot be read as a .pte file ({first_line(error)[:120]}); lower the model again"
        ) from error
    if method not in plans:
        raise BadInput(f"the .pte file has the methods {', '.join(plans)}, expected {method}")
    plan = plans[method]
    if len(plan.inputs) != len(inputs):
        raise BadInput(
            f"the .pte file takes {len(plan.inputs)} inputs, the model {len(inputs)}; is it another model's?"
        )
    try:
        return _Follower(file, plan, inputs, states).run()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the .pte file is damaged ({first_line(error)[:120]}); lower the model again") from error


class _Follower:
    def __init__(self, file: Any, plan: Any, inputs: list[str], states: Mapping[str, State]) -> None:
        self.states = states
        self.stored = file.program.constant_buffer
        self.mutable = file.mutable_data or []
        self.plan = plan
        self.inputs = inputs
        self.values = [value.val for value in plan.values]
        self.arenas = [Arena(size) for size in plan.non_const_buffer_sizes]
        self.constants: dict[int, Content] = {}
        self.unplanned: dict[int, Content] = {}
        self.numbers: dict[int, Content] = {}
        self.alias: dict[int, int] = {}
        self.found = Execution()
        self.lost = ""
        self.defined: dict[tuple[str, tuple[Content, ...]], Content] = {}

    def run(self) -> Execution:
        found = self.found
        self._buffers()
        self._check_plan()
        for index, name in zip(self.plan.inputs, self.inputs, strict=True):
            self._place_input(index, name)
        for number, instruction in enumerate(self.plan.chains[0].instructions):
            found.calls += 1
            call = instruction.instr_args
            if isinstance(call, schema.KernelCall):
                self._kernel(number, call)
            elif isinstance(call, schema.FreeCall):
                continue
            else:
                self._give_up(f"call {number} is a {type(call).__name__}, which has no model")
                break
        for index in self.plan.outputs:
            value = self.values[index]
            found.outputs.append(self._read(index, "the output"))
            found.output_types.append(self._type(value).spelled if isinstance(value, schema.Tensor) else "number")
        for name in self.states:
            if name not in found.buffers:
                found.final[name] = f"P?state {name}"
                found.unknown[f"P?state {name}"] = (
                    f"buffer {name!r} cannot be told apart in the file; lower with emit_mutable_buffer_names=True"
                )
        for name, buffer in found.buffers.items():
            found.final[name] = self._read(buffer.value, "the next call")
        return found

    def _give_up(self, reason: str) -> None:
        """From here on nothing is known: every byte may have been written."""
        for arena in self.arenas:
            arena.owned.clear()
        self.lost = reason

    def _buffers(self) -> None:
        for index, value in enumerate(self.values):
            if not isinstance(value, schema.Tensor) or value.allocation_info is None:
                continue
            extra = value.extra_tensor_info
            if extra is None or not extra.fully_qualified_name or extra.fully_qualified_name in self.found.buffers:
                continue
            initial = self._data(value, self.mutable) if value.data_buffer_idx > 0 else None
            self._buffer(extra.fully_qualified_name, index, initial)
        for name, state in self.states.items():
            if name not in self.found.buffers and self._stands_for(state):
                value = self.values[state.position]
                initial = self._data(value, self.mutable) if value.data_buffer_idx > 0 else None
                self._buffer(name, state.position, initial)

    def _buffer(self, name: str, index: int, initial: bytes | None) -> None:
        self.found.buffers[name] = Buffer(name, index, initial)
        arena, start, end = self._bytes(index)
        self.arenas[arena].write(start, end, f"state!{name}", self._type(self.values[index]).dtype, f"buffer {name}")

    def _stands_for(self, state: State) -> bool:
        """Whether a value without a name can be a buffer: the emitter makes a value for each placeholder first, in
        order. Which of the file's states is which of the model's is ours to choose: a proof for any choice holds."""
        if state.position >= len(self.values) or state.position in self.plan.inputs:
            return False
        value = self.values[state.position]
        if not isinstance(value, schema.Tensor) or value.allocation_info is None:
            return False
        kind = self._type(value)
        return (int(kind.nbytes), kind.dtype) == (state.nbytes, state.dtype)

    def _check_plan(self) -> None:
        states = {name: self._bytes(buffer.value) for name, buffer in self.found.buffers.items()}
        for index, value in enumerate(self.values):
            if not isinstance(value, schema.Tensor) or value.allocation_info is None:
                continue
            arena, start, end = self._bytes(index)
            if arena >= len(self.arenas) or end > self.arenas[arena].size:
                raise BadInput(f"tensor {index} of the .pte file lies outside of its arena; the file is damaged")
            if start % _ALIGNMENT:
                self.found.plan.append(f"tensor {index} starts at byte {start} of arena {arena}, not a multiple of 16")
            named = value.extra_tensor_info and value.extra_tensor_info.fully_qualified_name
            for name, (other, low, high) in states.items():
                shares = arena == other and start < high and low < end
                if shares and (start, end) != (low, high) and named != name:
                    self.found.plan.append(f"tensor {index} lies in bytes of the state {name!r}")

    def _place_input(self, index: int, name: str) -> None:
        value = self.values[index]
        if not isinstance(value, schema.Tensor):
            self.numbers[index] = name
            self.found.input_types.append("number")
            return
        kind = self._type(value)
        self.found.input_types.append(kind.spelled)
        if value.allocation_info is None:
            self.unplanned[index] = name
            return
        arena, start, end = self._bytes(index)
        self.arenas[arena].write(start, end, name, kind.dtype, f"input {name}")

    def _kernel(self, number: int, call: Any) -> None:
        operator = self.plan.operators[call.op_index]
        namespace, base = operator.name.split("::")
        if namespace == "executorch_prim" and base == "et_view":
            self.alias[call.args[2]] = call.args[0]
            return
        if namespace == "executorch_prim":
            self._number(number, base, call.args)
            return
        overload = _overload(namespace, base, operator.overload)
        if overload is None:
            self._give_up(f"call {number} is {operator.name}.{operator.overload}, which has no model")
            return
        arguments = overload._schema.arguments
        given = call.args[: len(arguments)]
        effect = effect_of(overload)
        operands: list[tuple[int, int]] = []
        for position, index in enumerate(given):
            if arguments[position].is_out:
                continue
            for inner in self._tensors(index):
                operands.append((position, inner))
        who = f"call {number} ({operator.name})"
        tensors = [index for _, index in operands]
        skipped = 1 if effect.contents is Contents.SECOND else 0
        contents = [self._read(index, who) if i >= skipped else f"shape!{i}" for i, (_, index) in enumerate(operands)]
        name = canonical(overload)
        symbol, in_place = spell_values(
            overload, [None if arguments[p].is_out else self._attribute(i) for p, i in enumerate(given)]
        )
        types = ";".join(self._spelled(i) for i in tensors)
        signature = f"{symbol}<{types}>"
        if effect.chain is not None:
            contents.append(self.found.tokens[effect.chain])
            self.found.tokens[effect.chain] = self._define(number, f"{signature}!{effect.chain.name}", contents)
        if not effect.writes and len(call.args) > len(arguments):
            self.numbers[call.args[len(arguments)]] = self._define(number, f"{signature}#0", contents)
        for position, index in enumerate(given):
            if position not in effect.writes:
                continue
            for k, out in enumerate(self._tensors(index)):
                into = self._type(self.values[out])
                if effect.contents is Contents.SECOND:
                    source = self._type(self.values[operands[1][1]])
                    cast = copied(source, into)
                    content = contents[1] if cast is None else self._define(number, cast, [contents[1]])
                elif self._keeps_first(effect.contents, name, tensors, into):
                    content = contents[0]
                else:
                    outs = [p for p, a in enumerate(arguments) if a.is_out]
                    if arguments[position].is_out:
                        several = len(outs) > 1 or len(self._tensors(index)) > 1
                        suffix = f"#{outs.index(position) + k}" if several else ""
                        content = self._define(number, f"{signature}->{into.spelled}{suffix}", contents)
                    elif in_place:
                        content = self._define(number, f"{signature}->{into.spelled}", contents)
                    else:
                        which = [i for i, (p, _) in enumerate(operands) if p == position][k]
                        content = self._define(number, f"{signature}!w{which}", contents)
                self._write(out, content, f"{who}")

    def _number(self, number: int, base: str, args: list[int]) -> None:
        """A call that computes a number of numbers: `executorch_prim::add(a, b, out)` is `_operator.add(a, b)`."""
        given, out = args[:-1], args[-1]
        text = ",".join("%" if i in self.numbers else repr(self._attribute(i)) for i in given)
        contents = [self.numbers[i] for i in given if i in self.numbers]
        types = ";".join("number" for _ in contents)
        self.numbers[out] = self._define(number, f"_operator.{base}({text})<{types}>#0", contents)

    def _keeps_first(self, contents: Contents, name: str, tensors: list[int], into: TensorType) -> bool:
        if contents is not Contents.FIRST or not tensors:
            return False
        value = self.values[tensors[0]]
        if not isinstance(value, schema.Tensor):
            return False
        first = self._type(value)
        return first.dtype == into.dtype and (same_order(name) or first.shape == into.shape)

    def _define(self, number: int, symbol: str, operands: list[Content]) -> Content:
        key = (symbol, tuple(operands))
        if key not in self.defined:
            name = f"P!{number}"
            while name in self.found.definitions:
                name += "'"
            self.found.definitions[name] = Definition(name, symbol, tuple(operands))
            self.defined[key] = name
        return self.defined[key]

    def _read(self, index: int, reader: str) -> Content:
        index = self._located(index)
        value = self.values[index]
        if not isinstance(value, schema.Tensor):
            return self.numbers.get(index, f"number!{index}")
        if value.allocation_info is None:
            if index in self.unplanned:
                return self.unplanned[index]
            return self._constant(index)
        kind = self._type(value)
        arena, start, end = self._bytes(index)
        if start == end:
            return f"empty!{kind.dtype}"
        owner = self.arenas[arena].read(start, end, kind.dtype)
        if owner is not None:
            return owner.content
        content = f"P?{arena}.{start}.{len(self.found.unknown)}.{len(self.found.torn)}"
        if self.lost:
            self.found.unknown[content] = self.lost
        else:
            others = self.arenas[arena].overlapping(start, end)
            names = ", ".join(f"{o.writer} (bytes {o.start} to {o.end})" for o in others) or "nothing"
            self.found.torn.append(f"{reader} reads bytes {start} to {end} of arena {arena}, which hold: {names}")
        return content

    def _write(self, index: int, content: Content, writer: str) -> None:
        index = self._located(index)
        value = self.values[index]
        if value.allocation_info is None:
            if index in self.unplanned or value.data_buffer_idx == 0:
                self.unplanned[index] = content
            else:
                self.found.plan.append(f"{writer} writes a constant")
            return
        arena, start, end = self._bytes(index)
        if start != end:
            self.arenas[arena].write(start, end, content, self._type(value).dtype, writer)

    def _located(self, index: int) -> int:
        for _ in range(len(self.alias) + 1):
            if index not in self.alias:
                return index
            index = self.alias[index]
        raise BadInput("a view in the .pte file is a view of itself; the file is damaged")

    def _constant(self, index: int) -> Content:
        if index not in self.constants:
            value = self.values[index]
            data = self._data(value, self.stored)
            if data is None:
                self.constants[index] = f"P?constant {index}"
                self.found.unknown[f"P?constant {index}"] = f"constant {index} is not in the file"
            else:
                self.constants[index] = constant_content(data, self._type(value).dtype)
        return self.constants[index]

    def _data(self, value: Any, stored: Any) -> bytes | None:
        """The bytes of a constant or of a buffer's first contents, padding left off; None where the file lacks them."""
        kind = self._type(value)
        extra = value.extra_tensor_info
        if extra is not None and extra.location == schema.TensorDataLocation.EXTERNAL:
            return None
        if value.data_buffer_idx >= len(stored):
            return None
        return bytes(stored[value.data_buffer_idx].storage)[: int(kind.nbytes)]

    def _bytes(self, index: int) -> tuple[int, int, int]:
        value = self.values[index]
        place = value.allocation_info
        start = place.memory_offset_low + (place.memory_offset_high << 32)
        kind = self._type(value)
        start += value.storage_offset * kind.itemsize
        return place.memory_id, start, start + int(kind.nbytes)

    def _type(self, value: Any) -> TensorType:
        dtype = get_scalar_type(value.scalar_type)
        return TensorType(
            tuple(value.sizes), tuple(range(len(value.sizes))), 0, dtype.itemsize, str(dtype).removeprefix("torch.")
        )

    def _spelled(self, index: int) -> str:
        value = self.values[index]
        return self._type(value).spelled if isinstance(value, schema.Tensor) else "number"

    def _tensors(self, index: int) -> list[int]:
        value = self.values[index]
        if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
            return [i for i in value.items if i >= 0 and not isinstance(self.values[i], schema.Null)]
        if isinstance(value, schema.IntList):
            return [i for i in value.items if i in self.numbers]
        return [index] if isinstance(value, schema.Tensor) or index in self.numbers else []

    def _attribute(self, index: int) -> Any:
        """An argument as a Python value; tensors, and numbers that a call computed, as `Ellipsis`."""
        value = self.values[index]
        if isinstance(value, schema.Tensor) or index in self.numbers:
            return ...
        if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
            return [... if i >= 0 and not isinstance(self.values[i], schema.Null) else None for i in value.items]
        if isinstance(value, schema.IntList):
            return [... if i in self.numbers else self.values[i].int_val for i in value.items]
        if isinstance(value, schema.DoubleList):
            return [float(v) for v in value.items]
        if isinstance(value, schema.BoolList):
            return list(value.items)
        if isinstance(value, schema.Null):
            return None
        (inner,) = vars(value).values()
        return float(inner) if isinstance(value, schema.Double) else inner


def constant_content(data: bytes, dtype: str) -> Content:
    """The content of a constant with these bytes."""
    return f"const!{dtype}!{hashlib.sha256(data).hexdigest()[:24]}"


def _overload(namespace: str, base: str, overload: str) -> torch._ops.OpOverload | None:
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None
