"""From the bytes of a `.pte` file to a machine: every value a slot, every instruction a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from executorch.exir import schema
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.tensor import get_scalar_type
from executorch.exir.version import EXECUTORCH_SCHEMA_VERSION

from copyproof.spec.errors import BadInput, first_line
from copyproof.spec.program import TensorType
from copyproof.verify.kernels import named_bytes
from copyproof.verify.machine import (
    Call,
    Delegate,
    Free,
    Items,
    JumpIfFalse,
    Kernel,
    Machine,
    Move,
    Plain,
    Slot,
    Tensor,
    layout_of,
    type_of,
)
from copyproof.verify.spelling import delegate_identity

_IDENTIFIER = b"ET12"
"""What stands in a `.pte` file after its first four bytes (exir/_serialize/program.fbs, executorch 1.5.1)."""


@dataclass(frozen=True)
class State:
    """A mutated buffer of the model: the position of its placeholder, and its size in bytes and element type."""

    position: int
    nbytes: int
    dtype: str


class File:
    """The contents of a `.pte` file, read once for all its methods.

    Args:
        pte: the file.
        data: what external data files (`.ptd`) hold, by key.

    Raises:
        BadInput: it cannot be read, or has another schema version than the installed executorch.
    """

    def __init__(self, pte: bytes, data: Mapping[str, bytes] | None = None) -> None:
        if not pte:
            raise BadInput("it cannot be read as a .pte file, since it is empty; lower the model again")
        if pte[:4] == b"PK\x03\x04":
            raise BadInput("it cannot be read as a .pte file, since it is an archive, as .pt2 files are; give the .pte")
        try:
            file = deserialize_pte_binary(pte)
            self.plans = {plan.name: plan for plan in file.program.execution_plan}
            if not all(isinstance(name, str) for name in self.plans):
                raise ValueError("a method has no name")
            if bytes(pte[4:8]) != _IDENTIFIER:
                raise ValueError(f"its identifier is {bytes(pte[4:8])!r}, not {_IDENTIFIER!r}")
            named = named_bytes(file.named_data) if file.named_data is not None else {}
        except Exception as error:  # whatever a damaged file raises
            found = first_line(error)[:120]
            raise BadInput(
                f"it cannot be read as a .pte file ({found}); expected what ExecuTorch {_version()} writes: "
                "lower the model again"
            ) from error
        if file.program.version != EXECUTORCH_SCHEMA_VERSION:
            raise BadInput(
                f"the .pte file has schema version {file.program.version}, expected {EXECUTORCH_SCHEMA_VERSION}, which "
                f"ExecuTorch {_version()} writes; lower the model again, or install the executorch that wrote it"
            )
        self.program = file.program
        self.mutable = file.mutable_data or []
        self.given = dict(data or {})
        self.data = {**named, **self.given}

    def machine(self, method: str) -> Machine:
        """One method of the file as a machine.

        Args:
            method: its name.

        Raises:
            BadInput: there is no such method, an external data file is missing, or the file is damaged.
        """
        if method not in self.plans:
            raise BadInput(f"the .pte file has the methods {', '.join(self.plans)}, expected {method}")
        try:
            return _Reader(self, self.plans[method]).machine()
        except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
            if isinstance(e, BadInput):
                raise
            raise BadInput(f"the .pte file is damaged ({first_line(e)[:120]}); lower the model again") from e


class _Reader:
    def __init__(self, file: File, plan: Any) -> None:
        self.file = file
        self.plan = plan
        self.values = [value.val for value in plan.values]
        self.slots: list[Slot] = []
        self.astray: list[str] = []

    def machine(self) -> Machine:
        self.slots = [self._slot(index, value) for index, value in enumerate(self.values)]
        calls = [self._call(number, i.instr_args) for number, i in enumerate(self.plan.chains[0].instructions)]
        if len(self.plan.chains) != 1:
            raise BadInput(f"the method has {len(self.plan.chains)} chains of calls, expected 1; lower the model again")
        if any(size < 0 for size in self.plan.non_const_buffer_sizes):
            raise BadInput("an arena of the .pte file has a negative size; lower the model again")
        labels = [self._label(number, call) for number, call in enumerate(calls)]
        machine = Machine(
            self.slots,
            calls,
            labels,
            [self._index(i) for i in self.plan.inputs],
            [self._index(i) for i in self.plan.outputs],
            [int(size) for size in self.plan.non_const_buffer_sizes],
            unnamed="it cannot be told apart from others; lower with emit_mutable_buffer_names=True",
            astray=self.astray,
        )
        for index, slot in enumerate(self.slots):
            if isinstance(slot, Tensor) and slot.place is not None:
                arena, start, end = slot.span
                if not 0 < arena < len(machine.arenas) or start < 0 or end > machine.arenas[arena]:
                    raise BadInput(f"tensor {index} of the .pte file lies outside of its arena; lower the model again")
            if isinstance(slot, Tensor) and slot.name and slot.name not in machine.buffers:
                machine.buffers[slot.name] = index
        return machine

    def _index(self, index: int) -> int:
        if not 0 <= index < len(self.values):
            raise BadInput(f"the .pte file names value {index}, and has {len(self.values)}; lower the model again")
        return index

    def _slot(self, index: int, value: Any) -> Slot:
        if isinstance(value, schema.Tensor):
            return self._tensor(index, value)
        if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
            items = [None if i < 0 or isinstance(self.values[i], schema.Null) else self._index(i) for i in value.items]
            return Items(tuple(items))
        if isinstance(value, schema.IntList):
            return Items(tuple(self._index(i) for i in value.items))
        if isinstance(value, schema.DoubleList):
            return Plain([float(v) for v in value.items])
        if isinstance(value, schema.BoolList):
            return Plain(list(value.items))
        if isinstance(value, schema.Null):
            return Plain(None)
        (inner,) = vars(value).values()
        return Plain(float(inner) if isinstance(value, schema.Double) else inner)

    def _tensor(self, index: int, value: Any) -> Tensor:
        dtype = get_scalar_type(value.scalar_type)
        kind = type_of(value.sizes, dtype, value.shape_dynamism != schema.TensorShapeDynamism.STATIC)
        shape = kind.shape
        if any(size < 0 for size in shape):
            raise BadInput(f"tensor {index} of the .pte file has the sizes {list(shape)}; lower the model again")
        order = [int(d) for d in value.dim_order]
        if sorted(order) != list(range(len(shape))):
            raise BadInput(f"tensor {index} of the .pte file has the dim order {order}; lower the model again")
        place = None
        if value.allocation_info is not None:
            start = value.allocation_info.memory_offset_low + (value.allocation_info.memory_offset_high << 32)
            place = (value.allocation_info.memory_id, start)
        if value.storage_offset:
            raise BadInput(f"tensor {index} of the .pte file has a storage offset, which ExecuTorch has not")
        extra = value.extra_tensor_info
        constant = place is None and (value.data_buffer_idx > 0 or _external(extra))
        return Tensor(
            kind,
            layout_of(kind.dtype, shape, order),
            place,
            self._held(index, value, kind, dtype, order),
            constant,
            (extra.fully_qualified_name or "") if extra is not None and not constant else "",
            tuple(order),
        )

    def _held(self, index: int, value: Any, kind: TensorType, dtype: torch.dtype, order: list[int]) -> bytes | None:
        """The contents of a constant, or the first contents of a buffer, padding left off, in logical order."""
        extra = value.extra_tensor_info
        if not int(kind.nbytes) and value.data_buffer_idx > 0:
            return b""
        if _external(extra):
            key = extra.fully_qualified_name
            if key not in self.file.data:
                raise BadInput(
                    f"the contents of {key!r} are in an external data file, which was not given; give the .ptd file too"
                    if not self.file.given
                    else f"the contents of {key!r} are not in the external data files given, which have "
                    f"{', '.join(sorted(self.file.given))}; give the .ptd file that was written with the .pte"
                )
            data = self.file.data[key]
        elif value.data_buffer_idx == 0:
            return None
        else:
            stored = self.file.mutable if value.allocation_info is not None else self.file.program.constant_buffer
            if value.data_buffer_idx >= len(stored) and value.allocation_info is not None:
                self.astray.append(
                    f"the first contents of buffer {extra.fully_qualified_name if extra else index!r} are entry "
                    f"{value.data_buffer_idx} of the mutable data, which has {len(stored)}; the runtime refuses that"
                )
                return None
            if value.data_buffer_idx >= len(stored):
                raise BadInput(
                    f"the contents of tensor {index} are not in the .pte file (buffer {value.data_buffer_idx} of "
                    f"{len(stored)}); lower the model again"
                )
            data = bytes(stored[value.data_buffer_idx].storage)
        size = int(kind.nbytes)
        if len(data) < size:
            raise BadInput(f"tensor {index} has {len(data)} bytes in the file, expected {size}; lower the model again")
        if not size or order == sorted(order):
            return data[:size]
        physical = torch.frombuffer(bytearray(data[:size]), dtype=dtype).reshape([kind.shape[d] for d in order])
        logical = physical.permute([order.index(d) for d in range(len(order))]).contiguous()
        return logical.reshape(-1).view(torch.uint8).numpy().tobytes()

    def _call(self, number: int, call: Any) -> Call:
        if isinstance(call, schema.KernelCall):
            operator = self.plan.operators[call.op_index]
            namespace, _, base = operator.name.partition("::")
            overload = None
            if namespace != "executorch_prim":
                packet = getattr(getattr(torch.ops, namespace), base, None)
                overload = getattr(packet, operator.overload or "default", None) if packet is not None else None
                expected = len(overload._schema.arguments) if overload is not None else len(call.args)
                if not expected <= len(call.args) <= expected + 1:
                    raise BadInput(
                        f"call {number} has {len(call.args)} arguments, and {operator.name} takes {expected} and a "
                        "result; lower the model again"
                    )
            return Kernel(operator.name, overload, tuple(self._index(i) for i in call.args))
        if isinstance(call, schema.DelegateCall):
            delegate = self.plan.delegates[call.delegate_index]
            payload = bytes(self.file.program.backend_delegate_data[delegate.processed.index].data)
            specs = [(spec.key, spec.value) for spec in delegate.compile_specs]
            identity = delegate_identity(delegate.id, specs, payload, self.file.data)
            return Delegate(identity, tuple(self._index(i) for i in call.args))
        if isinstance(call, schema.MoveCall):
            return Move(self._index(call.move_from), self._index(call.move_to))
        if isinstance(call, schema.JumpFalseCall):
            return JumpIfFalse(self._index(call.cond_value_index), call.destination_instruction)
        if isinstance(call, schema.FreeCall):
            return Free(self._index(call.value_index))
        kind = "of no kind" if call is None else f"a {type(call).__name__}"
        raise BadInput(
            f"instruction {number} of the .pte file is {kind} that ExecuTorch {_version()} has; install the executorch "
            "that wrote the file, or lower the model again"
        )

    @staticmethod
    def _label(number: int, call: Call) -> str:
        if isinstance(call, Kernel):
            return f"call {number} ({call.name})"
        return f"call {number} ({type(call).__name__.lower()})"


def recognised(machine: Machine, states: Mapping[str, State]) -> Machine:
    """A machine in which the model's mutated buffers that have no name in the file are found by their place.

    The emitter makes a value for each placeholder first, in order. Which of the file's states is which of the model's
    is ours to choose: a proof for any choice holds. One that is a constant there cannot change, whatever the model
    says.

    Args:
        machine: a method of a file.
        states: the model's mutated buffers, by qualified name.
    """
    found = dict(machine.buffers)
    for name, state in states.items():
        slot = machine.slots[state.position] if state.position < len(machine.slots) else None
        if name in found or state.position in machine.inputs or not isinstance(slot, Tensor) or slot.name:
            continue
        alike = (int(slot.type.nbytes), slot.type.dtype) == (state.nbytes, state.dtype)
        if alike and (slot.place is not None or slot.constant):
            found[name] = state.position
    return replace(machine, buffers=found)


def _external(extra: Any) -> bool:
    return extra is not None and extra.location == schema.TensorDataLocation.EXTERNAL


def _version() -> str:
    from importlib.metadata import version

    return version("executorch")
